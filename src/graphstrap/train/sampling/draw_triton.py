"""Drawing edges as two Triton kernels, the same bits as `draw.draw_edges`: what PyTorch does in a hundred launches.

The first says how many edges each pair of node and relation gets; a prefix sum says where they go; the second runs
Floyd's algorithm for a block of pairs in registers and writes edges, sources, rows and factors.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphstrap.ops._triton.launch import IS_AVAILABLE, launch
from graphstrap.train.sampling.draw import Drawn, Frontier, NeighborIndex

MAX_WIDTH = 1024  # slots a pair may have; wider draws go the other way
_PAIRS_PER_PROGRAM = 32

# mypy: disable-error-code="untyped-decorator, no-untyped-def"

if IS_AVAILABLE:
    import triton
    import triton.language as tl

    from graphstrap.ops._triton.masks import hash32, mix

    @triton.jit
    def _count_kernel(
        nodes, indptr, ends, fan_outs, starts, degrees, counts, num_pairs, num_relations, has_ends: tl.constexpr
    ):
        """Where each pair's edges start, how many there are and how many are drawn."""
        pair = tl.program_id(0).to(tl.int64) * 256 + tl.arange(0, 256)
        inside = pair < num_pairs
        relation = pair % num_relations
        node = tl.load(nodes + pair // num_relations, mask=inside, other=0)
        start = tl.load(indptr + node, mask=inside, other=0)
        if has_ends:
            place = node * num_relations + relation
            end = tl.load(ends + place, mask=inside, other=0).to(tl.int64)
            begin = tl.load(ends + place - 1, mask=inside & (relation > 0), other=0).to(tl.int64)
            start += begin
            degree = end - begin
        else:
            degree = tl.load(indptr + node + 1, mask=inside, other=0) - start
        fan_out = tl.load(fan_outs + relation, mask=inside, other=0)
        tl.store(starts + pair, start, mask=inside)
        tl.store(degrees + pair, degree, mask=inside)
        tl.store(counts + pair, tl.minimum(degree, fan_out), mask=inside)

    @triton.jit
    def choose(word, degree, count, width: tl.constexpr, num_slots: tl.constexpr):
        """(1, slots) their numbers and (rows, slots) what they choose by Floyd's algorithm: `draw.choose_positions`, or
        everything in order where nothing is left out."""
        slot = tl.arange(0, num_slots)[None, :]
        last = (degree - count)[:, None] + slot  # (lanes, slots): j
        draw = mix(word[:, None] + slot.to(tl.uint32) * 0x9E3779B9).to(tl.int64)
        chosen = (draw * (last + 1)) >> 32  # t
        for i in range(1, width):
            mine = tl.sum(tl.where(slot == i, chosen, 0), axis=1)
            taken = tl.max(tl.where((slot < i) & (chosen == mine[:, None]), 1, 0), axis=1)
            mine = tl.where(taken > 0, degree - count + i, mine)
            chosen = tl.where(slot == i, mine[:, None], chosen)
        return slot, tl.where((degree > count)[:, None], chosen, slot.to(tl.int64))

    @triton.jit
    def _draw_kernel(
        nodes,
        owners,
        roots,
        seeds,
        starts,
        degrees,
        counts,
        pair_ends,
        order,
        indices,
        edges,
        sources,
        rows,
        factors,
        num_pairs,
        num_relations,
        has_owners: tl.constexpr,
        has_order: tl.constexpr,
        has_factors: tl.constexpr,
        width: tl.constexpr,
        num_slots: tl.constexpr,
        num_lanes: tl.constexpr,
    ):
        """The edges of `num_lanes` pairs, `num_slots` >= width slots each."""
        pair = tl.program_id(0).to(tl.int64) * num_lanes + tl.arange(0, num_lanes)
        inside = pair < num_pairs
        row = pair // num_relations
        node = tl.load(nodes + row, mask=inside, other=0)
        hop_seed = tl.load(seeds + tl.zeros_like(pair))
        if has_owners:
            root = tl.load(roots + tl.load(owners + row, mask=inside, other=0), mask=inside, other=0)
            node = node ^ (hash32(root, hop_seed).to(tl.int64) << 31)
        word = hash32(node, tl.load(seeds + 1 + pair % num_relations))
        start = tl.load(starts + pair, mask=inside, other=0)
        degree = tl.load(degrees + pair, mask=inside, other=0)
        count = tl.load(counts + pair, mask=inside, other=0)
        begin = tl.load(pair_ends + pair, mask=inside, other=0) - count
        slot, chosen = choose(word, degree, count, width, num_slots)
        wanted = inside[:, None] & (slot < count[:, None])
        edge = start[:, None] + chosen
        if has_order:
            edge = tl.load(order + edge, mask=wanted, other=0)
        into = begin[:, None] + slot
        tl.store(edges + into, edge, mask=wanted)
        tl.store(sources + into, tl.load(indices + edge, mask=wanted, other=0).to(tl.int64), mask=wanted)
        tl.store(rows + into, tl.zeros_like(edge) + row[:, None], mask=wanted)
        if has_factors:
            factor = (degree.to(tl.float64) / tl.maximum(count, 1).to(tl.float64)).to(tl.float32)
            tl.store(factors + into, tl.zeros_like(edge).to(tl.float32) + factor[:, None], mask=wanted)


def draw_edges(
    index: NeighborIndex, frontier: Frontier, fan_outs: list[int], *, seeds: list[int], with_factors: bool = True
) -> Drawn:
    """See `draw.draw_edges`."""
    nodes, owners, roots, before = frontier
    device, num_relations = nodes.device, index.num_relations
    num_pairs = len(nodes) * num_relations
    on_device = torch.tensor([*seeds, *fan_outs], device=device)
    seed_table, fan_out_table = on_device[: len(seeds)], on_device[len(seeds) :]
    starts, degrees, counts = _count(index, nodes, fan_out_table, before)
    ends = counts.cumsum(0)
    num_drawn = int(ends[-1]) if num_pairs else 0
    edges, sources, into_rows = (torch.empty(num_drawn, dtype=torch.int64, device=device) for _ in range(3))
    factors = torch.empty(num_drawn, device=device) if with_factors else None
    if num_drawn:
        width = max(fan_outs)
        num_slots = triton.next_power_of_2(width)
        num_lanes = max(1, min(_PAIRS_PER_PROGRAM, 2048 // num_slots))
        # In the place of what is not given stands a tensor that is not read.
        rows = nodes, nodes if owners is None else owners, nodes if roots is None else roots, seed_table
        pairs = starts, degrees, counts, ends, edges if index.order is None else index.order, index.sources
        results = edges, sources, into_rows, edges if factors is None else factors
        kinds = {"has_owners": owners is not None, "has_order": index.order is not None, "has_factors": with_factors}
        sizes = {"width": width, "num_slots": num_slots, "num_lanes": num_lanes}
        launch(_draw_kernel, (triton.cdiv(num_pairs, num_lanes),))(
            *rows, *pairs, *results, num_pairs, num_relations, **kinds, **sizes
        )
    of_rows = counts if num_relations == 1 else counts.view(-1, num_relations).sum(1)
    return Drawn(of_rows, edges, sources, into_rows, factors)


def _count(
    index: NeighborIndex, nodes: Tensor, fan_outs: Tensor, before: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """(F * R,) for each pair of node and relation: where its edges start, how many there are and are drawn."""
    if before is not None:
        start, degree = index.segments(nodes, before)
        return start.flatten(), degree.flatten(), torch.minimum(degree, fan_outs).flatten()
    num_pairs = len(nodes) * index.num_relations
    start, degree, count = (torch.empty(num_pairs, dtype=torch.int64, device=nodes.device) for _ in range(3))
    if num_pairs:
        tensors = nodes, index.indptr, nodes if index.ends is None else index.ends, fan_outs, start, degree, count
        kinds = {"has_ends": index.ends is not None}
        launch(_count_kernel, (triton.cdiv(num_pairs, 256),))(*tensors, num_pairs, index.num_relations, **kinds)
    return start, degree, count
