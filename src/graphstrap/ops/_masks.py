"""What a view keeps, as arrays: for backends that must materialise it, and the law that the kernels are held to."""

from __future__ import annotations

import torch
from torch import Tensor

from graphstrap.graph import Graph
from graphstrap.keep import child_seed, drop_threshold, hash32, keep
from graphstrap.view import Probability, View

# Edges and features draw from different hashes of the view's seed, and so does each node type's feature block.
_FEATURE_STREAM = child_seed(0, 1)


def kept_edges(graph: Graph, view: View) -> Tensor | None:
    """(E,) whether each edge survives, in the order of `graph.indices`; None when all do."""
    spec = view.spec
    if not spec.drops_edges:
        return None
    edge_ids = torch.arange(graph.num_edges, device=graph.device) if graph.edge_ids is None else graph.edge_ids
    threshold = aligned_threshold(spec.edge_drop_prob, edge_ids)
    return torch.as_tensor(keep(pair_ids(graph) if spec.drop_directions_together else edge_ids, view.seed, threshold))


def missing_degrees(graph: Graph, view: View) -> Tensor | None:
    """(N,) how much of the edges that a sampled batch lacks the view would keep, on average; None where it lacks
    none."""
    if graph.missing_degrees is None or not view.spec.drops_edges:
        return graph.missing_degrees
    prob = view.spec.edge_drop_prob
    return graph.missing_degrees * (1.0 - (prob.mean() if isinstance(prob, Tensor) else prob))


def kept_columns(view: View, *, num_columns: int, block: int, device: torch.device) -> Tensor | None:
    """(F,) whether each feature column of a block survives; None when all do, or when elements are masked instead."""
    if not view.spec.masks_features or view.spec.mask_elements:
        return None
    columns = torch.arange(num_columns, device=device)
    threshold = aligned_threshold(view.spec.feature_mask_prob, columns)
    return torch.as_tensor(keep(columns, stream_seed(view.seed, feature_stream(block)), threshold))


def kept_elements(view: View, *, rows: Tensor, columns: Tensor, num_columns: int, block: int) -> Tensor | None:
    """Whether each (row, column) element survives, for global row numbers; None when elements are not masked."""
    if not view.spec.masks_features or not view.spec.mask_elements:
        return None
    threshold = aligned_threshold(view.spec.feature_mask_prob, columns)
    return torch.as_tensor(keep(rows * num_columns + columns, stream_seed(view.seed, feature_stream(block)), threshold))


def aligned_threshold(drop_prob: Probability, ids: Tensor | None) -> Tensor | int:
    """The threshold below which a hash means "dropped": one for all, or one for each of `ids` (None: 0, 1, 2, ...)."""
    if isinstance(drop_prob, Tensor) and ids is not None:
        drop_prob = drop_prob[ids.to(drop_prob.device)].to(ids.device)
    threshold = drop_threshold(drop_prob)
    return threshold if isinstance(threshold, Tensor) else int(threshold)


def pair_ids(graph: Graph) -> Tensor:
    """(E,) an id that u->v and v->u share."""
    source, target = graph.indices.long(), graph.targets
    if graph.node_ids is not None:
        source, target = graph.node_ids[source], graph.node_ids[target]
    return (torch.minimum(source, target) << 32) | torch.maximum(source, target)


def feature_stream(block: int) -> int:
    """The stream that a block's features draw from."""
    return child_seed(_FEATURE_STREAM, block)


def stream_seed(seed: int | Tensor, stream: int) -> int | Tensor:
    """The seed of one of a view's streams."""
    mixed = ((hash32(seed, stream) << 31) ^ seed) & 0x7FFF_FFFF_FFFF_FFFF
    return mixed if isinstance(mixed, Tensor) else int(mixed)
