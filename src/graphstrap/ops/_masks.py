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
    threshold = _thresholds(spec.edge_drop_prob, edge_ids)
    return torch.as_tensor(keep(_pair_ids(graph) if spec.drop_directions_together else edge_ids, view.seed, threshold))


def kept_columns(view: View, *, num_columns: int, block: int, device: torch.device) -> Tensor | None:
    """(F,) whether each feature column of a block survives; None when all do, or when elements are masked instead."""
    if not view.spec.masks_features or view.spec.mask_elements:
        return None
    columns = torch.arange(num_columns, device=device)
    threshold = _thresholds(view.spec.feature_mask_prob, columns)
    return torch.as_tensor(keep(columns, _feature_seed(view, block), threshold))


def kept_elements(view: View, *, rows: Tensor, columns: Tensor, num_columns: int, block: int) -> Tensor | None:
    """Whether each (row, column) element survives, for global row numbers; None when elements are not masked."""
    if not view.spec.masks_features or not view.spec.mask_elements:
        return None
    threshold = _thresholds(view.spec.feature_mask_prob, columns)
    return torch.as_tensor(keep(rows * num_columns + columns, _feature_seed(view, block), threshold))


def _thresholds(drop_prob: Probability, ids: Tensor) -> Tensor | int:
    threshold = drop_threshold(drop_prob)
    return threshold.to(ids.device)[ids] if isinstance(threshold, Tensor) else int(threshold)


def _pair_ids(graph: Graph) -> Tensor:
    """(E,) an id that u->v and v->u share."""
    source, target = graph.indices.long(), graph.targets
    if graph.node_ids is not None:
        source, target = graph.node_ids[source], graph.node_ids[target]
    return (torch.minimum(source, target) << 32) | torch.maximum(source, target)


def _feature_seed(view: View, block: int) -> int | Tensor:
    stream = child_seed(_FEATURE_STREAM, block)
    if isinstance(view.seed, Tensor):
        return torch.as_tensor((hash32(view.seed, stream) << 31) ^ view.seed) & 0x7FFF_FFFF_FFFF_FFFF
    return int((hash32(view.seed, stream) << 31) ^ view.seed) & 0x7FFF_FFFF_FFFF_FFFF
