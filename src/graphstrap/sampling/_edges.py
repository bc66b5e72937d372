"""Drawing edges for a frontier: the reference, and the fast way on a CPU."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from graphstrap.keep import hash32
from graphstrap.sampling._draw import choose_positions
from graphstrap.sampling._rows import Rows


class Drawn(NamedTuple):
    """Edges drawn for a frontier, row by row."""

    counts: Tensor  # (F,) how many each row has
    edges: Tensor  # (E,) their ids
    sources: Tensor  # (E,) where they come from
    rows: Tensor  # (E,) whose they are, counted within the frontier
    factors: Tensor | None  # (E,) how many edges each stands for: d / k


class Pairs(NamedTuple):
    """(F * R,) for each pair of node and relation: where its edges start, how many there are and are drawn."""

    start: Tensor
    degree: Tensor
    drawn: Tensor


def draw_edges(
    rows: Rows,
    nodes: Tensor,
    fan_outs: list[int],
    *,
    seeds: list[int],
    owners: Tensor | None = None,
    roots: Tensor | None = None,
    before: Tensor | None = None,
    with_factors: bool = True,
) -> Drawn:
    """min(d, k) of the d edges of each relation into each node.

    Args:
        nodes: (F,) the frontier.
        fan_outs: k for each relation.
        seeds: one to hash roots with, then one for each relation.
        owners, roots: (F,) the number of each node's root, and (B,) the roots, where draws depend on the root.
        before: (F,) leave out edges from nodes newer than that.
        with_factors: whether to say how many edges each one stands for.
    """
    device, num_relations = nodes.device, rows.num_relations
    start, degree = (part.flatten() for part in rows.segments(nodes, before))
    if num_relations == 1:
        count = degree.clamp(max=fan_outs[0])
    else:
        count = torch.minimum(degree.view(-1, num_relations), torch.tensor(fan_outs, device=device)).flatten()
    ends = count.cumsum(0)
    num_drawn = int(ends[-1]) if len(ends) else 0
    begins = ends - count
    pairs = torch.repeat_interleave(count, output_size=num_drawn)
    places = (start - begins).index_select(0, pairs)
    places += torch.arange(num_drawn, device=device)
    cut = (degree > count).logical_and_(count > 0).nonzero().squeeze(1)  # pairs of which only a part is drawn
    if len(cut):
        words = _words(nodes, owners, roots, seeds).index_select(0, cut)
        num_chosen = count.index_select(0, cut)
        width = (
            int(num_chosen.max()) if num_relations > 1 else fan_outs[0]
        )  # a relation that is taken whole may be wide
        chosen = choose_positions(degree.index_select(0, cut), num_chosen, words, width=width)
        slot = torch.arange(width, device=device)[:, None]
        into, chosen = begins.index_select(0, cut) + slot, chosen + start.index_select(0, cut)
        if num_relations > 1:  # fan-outs differ
            is_wanted = slot < num_chosen
            into, chosen = into[is_wanted], chosen[is_wanted]
        places.scatter_(0, into.flatten(), chosen.flatten())  # `places[into] = chosen` takes four times as long
    factors = None
    if with_factors:  # float64: a quotient that is rounded once, on every device
        factors = (degree.double() / count.clamp(min=1)).float().index_select(0, pairs)
    edges = rows.edges(places)
    return Drawn(
        count if num_relations == 1 else count.view(-1, num_relations).sum(1),
        edges,
        rows.sources.index_select(0, edges).long(),
        pairs if num_relations == 1 else pairs // num_relations,
        factors,
    )


def _words(nodes: Tensor, owners: Tensor | None, roots: Tensor | None, seeds: list[int]) -> Tensor:
    """(F * R,) the hash that the draws of each pair are made from."""
    if owners is not None:
        nodes = nodes ^ (hash32(roots, seeds[0]).index_select(0, owners) << 31)
    return torch.stack([hash32(nodes, seed) for seed in seeds[1:]], dim=1).flatten()
