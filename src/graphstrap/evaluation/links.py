"""Links: can edges that were hidden be told from pairs of nodes that are not linked?

    features(u, v)  =  h_u / ||h_u||  *  h_v / ||h_v||                                  element by element
    score(u, v)     =  a logistic regression of those, fitted on the edges that are left and as many random pairs
    auc             =  how often a hidden edge scores above a random pair that is not linked, in percent
    hits@50         =  the part of the hidden edges that score above the 50th best of those pairs, in percent; of fewer
                       than 500 pairs the 50th best is no rare one, and it is left out

The embeddings must come from the graph without the hidden edges, best from an encoder that never saw them. Where nodes
are of several types, or of several graphs, random pairs are of the types and within the graphs that edges are of, as
often: else a node's type would tell a user and an item from two users. An edge from a node to itself is not hidden.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.evaluation.registry import Evaluation
from graphstrap.evaluation.task import Array, Embeddings, Vectors
from graphstrap.graph import Graph
from graphstrap.graph.blocks import row_starts

HIDDEN_SHARE = 0.1
HITS_AT, MIN_FOR_HITS = 50, 500
MAX_FITTED = 20_000  # edges that the regression is fitted on
_MIN_EDGES = 20
_MAX_ROUNDS = 50


@dataclass(frozen=True, eq=False)
class HiddenEdges:
    """`remaining` is the graph without the `hidden` pairs (M, 2); `unlinked` (M, 2) were never linked. `seen` and
    `unseen` are pairs of both kinds to fit on."""

    remaining: Graph
    hidden: Array
    unlinked: Array
    seen: Array
    unseen: Array


def hide_edges(graph: Graph, *, share: float = HIDDEN_SHARE, seed: int = 0) -> HiddenEdges:
    """Hide a part of the edges, an undirected one in both directions, and draw as many pairs that are not linked."""
    random = np.random.default_rng((seed, 2))
    sources, targets = graph.indices.long().numpy(), graph.targets.numpy()
    low, high, leads_on = np.minimum(sources, targets), np.maximum(sources, targets), sources != targets
    keys, pair_of = np.unique((low * graph.num_nodes + high)[leads_on], return_inverse=True)
    if len(keys) < _MIN_EDGES:
        raise InputError(f"the protocol 'links' needs at least {_MIN_EDGES} edges, the graph has {len(keys)}")
    order = random.permutation(len(keys))
    num_hidden = max(1, round(share * len(keys)))
    is_hidden = np.zeros(len(keys), dtype=bool)
    is_hidden[order[:num_hidden]] = True
    keep = np.ones(graph.num_edges, dtype=bool)
    keep[leads_on] = ~is_hidden[pair_of.reshape(-1)]
    remaining = select_edges(graph, torch.from_numpy(keep))
    num_fitted = min(MAX_FITTED, len(keys) - num_hidden)
    starts = np.array(graph.graph_offsets if graph.num_graphs > 1 else graph.type_offsets)
    unlinked = _unlinked_pairs(keys, starts, num_hidden + num_fitted, random)
    hidden, seen = (_pairs(keys[chosen], graph.num_nodes) for chosen in (order[:num_hidden], order[-num_fitted:]))
    return HiddenEdges(remaining, hidden, unlinked[:num_hidden], seen, unlinked[num_hidden:])


def evaluate_links(h: Embeddings, edges: HiddenEdges) -> tuple[float, float | None]:
    """AUC and hits@50, if there are pairs enough, of the embeddings of the remaining graph, both in percent."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.preprocessing import MaxAbsScaler

    vectors = Vectors.of(h)
    if vectors.num_nodes != edges.remaining.num_nodes:
        raise InputError(f"h has {vectors.num_nodes} rows, the graph has {edges.remaining.num_nodes} nodes")
    scale = MaxAbsScaler()
    fitted = scale.fit_transform(_products(vectors, np.concatenate([edges.seen, edges.unseen])))
    is_edge = np.repeat([1, 0], [len(edges.seen), len(edges.unseen)])
    model = LogisticRegression(max_iter=300).fit(fitted, is_edge)
    scores = model.decision_function(
        scale.transform(_products(vectors, np.concatenate([edges.hidden, edges.unlinked])))
    )
    found, others = scores[: len(edges.hidden)], scores[len(edges.hidden) :]
    auc = roc_auc_score(np.repeat([1, 0], [len(found), len(others)]), scores)
    if len(others) < MIN_FOR_HITS:
        return 100.0 * float(auc), None
    return 100.0 * float(auc), 100.0 * float((found > np.sort(others)[-HITS_AT]).mean())


def summarise_links(runs: list[tuple[float, float | None]], *, how: str) -> Evaluation:
    """The evaluation of one or more draws; `how` says what saw which edges."""
    aucs, hits = [auc for auc, _ in runs], [one for _, one in runs if one is not None]
    detail = f"{100 * HIDDEN_SHARE:.0f} % of the edges hidden, {how}"
    if hits:
        deviation = f" ± {np.std(hits):.2f}" if len(hits) > 1 else ""
        detail += f"; hits@{HITS_AT} {np.mean(hits):.2f}{deviation}"
    return Evaluation.of_runs("links", "auc", aucs, detail)


def select_edges(graph: Graph, keep: Tensor) -> Graph:
    """The graph with only those edges for which `keep` (E,) is true. Nodes stay."""
    counts = torch.zeros(graph.num_nodes, dtype=torch.int64).index_add_(0, graph.targets, keep.long())
    columns: dict[str, Any] = {
        name: None if getattr(graph, name) is None else getattr(graph, name)[keep]
        for name in ("edge_types", "edge_weights", "edge_times", "edge_columns", "edge_ids")
    }
    return replace(graph, indptr=row_starts(counts), indices=graph.indices[keep], outgoing=None, **columns)


def _unlinked_pairs(keys: Array, starts: Array, count: int, random: np.random.Generator) -> Array:
    """Random pairs of different nodes that are not among the sorted `keys`, no pair twice. Where nodes are of several
    blocks, types or graphs, which begin at `starts`, each pair is of the blocks of an edge that is drawn for it."""
    num_nodes, is_one_block = int(starts[-1]), len(starts) == 2
    num_pairs = num_nodes * (num_nodes - 1) // 2
    num_unlinked = num_pairs - len(keys)
    if is_one_block and num_unlinked < count:
        raise InputError(f"the protocol 'links' needs {count:,} pairs without an edge, the graph has {num_unlinked:,}")
    if is_one_block and num_pairs < 4 * (len(keys) + count):  # so few that all can be listed
        low, high = np.triu_indices(num_nodes, 1)
        return _pairs(random.permutation(np.setdiff1d(low * num_nodes + high, keys))[:count], num_nodes)
    found = np.zeros(0, dtype=np.int64)
    for _ in range(_MAX_ROUNDS):
        if is_one_block:
            ends = random.integers(num_nodes, size=(2 * count, 2))
        else:
            block = np.searchsorted(starts, _pairs(random.choice(keys, 2 * count), num_nodes), side="right") - 1
            ends = random.integers(starts[block], starts[block + 1])
        drawn = ends.min(1) * num_nodes + ends.max(1)
        place = np.minimum(np.searchsorted(keys, drawn), len(keys) - 1)
        found = np.concatenate([found, drawn[(keys[place] != drawn) & (ends[:, 0] != ends[:, 1])]])
        found = found[np.sort(np.unique(found, return_index=True)[1])]  # each where it was drawn first
        if len(found) >= count:
            return _pairs(found[:count], num_nodes)
    raise InputError(
        f"the protocol 'links' needs more pairs without an edge, of the types and within the graphs of its edges: "
        f"{count:,}, while {len(found):,} were found"
    )


def _pairs(keys: Array, num_nodes: int) -> Array:
    return np.stack(np.divmod(keys, num_nodes), axis=1)


def _products(vectors: Vectors, pairs: Array) -> Any:
    left, right = vectors.take(pairs[:, 0]), vectors.take(pairs[:, 1])
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        return (left * right).cpu().numpy()
    return left.multiply(right).tocsr()
