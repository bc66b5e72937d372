"""Features in the form that their product is fastest with: sparse, or a dense table in the product's type."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor

from graphstrap.graph import Graph
from graphstrap.sparse import SparseMatrix

# Above these densities the dense product wins: on CPU as measured (docs/LOG.md), on CUDA an estimate.
DENSE_FROM = {"cpu": 0.25, "cuda": 0.05}
ALIGNMENT = 16  # columns

_dense_forms: WeakKeyDictionary[Graph, dict[tuple[int, torch.dtype], Tensor]] = WeakKeyDictionary()


def product_dtype(weight: Tensor) -> torch.dtype:
    """What dense products of this weight are computed in: autocast's choice, where it is on."""
    kind = weight.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype


def best_form(graph: Graph, block: int, weight: Tensor, *, aligned: bool = False) -> Tensor | SparseMatrix:
    """A block's features: sparse, or as a dense table in the product's type where that is faster.

    A table that is made for it gets columns of zeros up to a width that the matrix units like; with `aligned`, it is
    made for the sake of that width alone.
    """
    features = graph.features[block]
    if features is None:
        raise ValueError(f"node type {graph.node_types[block]!r} has no features to project")
    if isinstance(features, SparseMatrix) and features.density < DENSE_FROM[features.device.type]:
        return features
    dtype, width = product_dtype(weight), -(-int(features.shape[1]) // ALIGNMENT) * ALIGNMENT
    if isinstance(features, Tensor) and features.dtype == dtype and not (aligned and features.shape[1] != width):
        return features
    forms = _dense_forms.setdefault(graph, {})
    if (block, dtype) not in forms:
        if isinstance(features, SparseMatrix):
            forms[block, dtype] = features.to_dense(dtype=dtype, num_columns=width)
        else:
            dense = features if isinstance(features, Tensor) else features.to_dense()
            forms[block, dtype] = F.pad(dense.to(dtype), (0, width - features.shape[1]))
    return forms[block, dtype]
