"""What a view keeps of a graph, as matrices ready for the product: worked out once for each view and graph, and shared
by every layer, network and pass."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from graphstrap.graph import Graph, View
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.ops._torch import aligned_threshold, feature_stream, global_rows, missing_degrees, pair_ids
from graphstrap.ops._triton.chunks import ChunkedMatrix, Chunks
from graphstrap.ops._triton.launch import IS_AVAILABLE, launch
from graphstrap.ops._triton.masks import degree_scale, keep_bytes, mask_elements

# The entries of a matrix that a view keeps, moved to the front of their chunk, with their weights.
#
# Shapes stay static, so a CUDA graph can hold it all, and the product reads nothing that was dropped.


# mypy: disable-error-code="untyped-decorator, no-untyped-def"


if IS_AVAILABLE:
    import triton
    import triton.language as tl

    @triton.jit
    def _compact_kernel(
        first,
        last,
        out_first,
        rows,
        opens_row,
        indices,
        positions,
        kept,
        weights,
        scale,
        out_columns,
        out_weights,
        out_counts,
        num_chunks,
        key: tl.constexpr,
        has_positions: tl.constexpr,
        is_weighted: tl.constexpr,
        scale_row: tl.constexpr,
        scale_column: tl.constexpr,
        has_loops: tl.constexpr,
        chunks: tl.constexpr,
        width: tl.constexpr,
    ):
        """Surviving entries of each chunk, and the self-loop in front of each row's first chunk."""
        chunk = tl.program_id(0) * chunks + tl.arange(0, chunks)
        valid = chunk < num_chunks
        begin = tl.load(first + chunk, mask=valid, other=0).to(tl.int64)
        end = tl.load(last + chunk, mask=valid, other=0).to(tl.int64)
        row = tl.load(rows + chunk, mask=valid, other=0)
        entry = begin[:, None] + tl.arange(0, width)[None, :]
        stays = entry < end[:, None]
        column = tl.load(indices + entry, mask=stays, other=0)
        position = tl.load(positions + entry, mask=stays, other=0).to(tl.int64) if has_positions else entry
        weight = tl.load(weights + position, mask=stays, other=0.0) if is_weighted else stays.to(tl.float32)
        if key == "entry":
            stays = stays & (tl.load(kept + position, mask=stays, other=0) != 0)
        elif key == "column":
            stays = stays & (tl.load(kept + column, mask=stays, other=0) != 0)
        row_scale = tl.load(scale + row, mask=valid, other=0.0) if scale_row or has_loops else valid.to(tl.float32)
        if scale_row:
            weight *= row_scale[:, None]
        if scale_column:
            weight *= tl.load(scale + column, mask=stays, other=0.0)
        start = tl.load(out_first + chunk, mask=valid, other=0).to(tl.int64)
        count = tl.sum(stays.to(tl.int32), axis=1)
        place = start[:, None] + tl.cumsum(stays.to(tl.int32), axis=1) - 1
        if has_loops:
            opens = valid & (tl.load(opens_row + chunk, mask=valid, other=0) != 0)
            loop = row_scale * row_scale if scale_row and scale_column else row_scale
            tl.store(out_columns + start, row, mask=opens)
            tl.store(out_weights + start, loop, mask=opens)
            count += opens.to(tl.int32)
            place += opens.to(tl.int32)[:, None]
        tl.store(out_columns + place, column, mask=stays)
        tl.store(out_weights + place, weight, mask=stays)
        tl.store(out_counts + chunk, count, mask=valid)


def compact(
    chunks: Chunks,
    indices: Tensor,
    *,
    kept: Tensor | None = None,
    key: str = "entry",
    positions: Tensor | None = None,
    weights: Tensor | None = None,
    scale: Tensor | None = None,
    scale_row: bool = False,
    scale_column: bool = False,
    loops: bool = False,
) -> ChunkedMatrix:
    """The matrix of the entries that survive.

    Args:
        kept: one byte for each position or column, as `key` says; None keeps all.
        positions: where each entry's byte and weight stand; None means at the entry's own place.
        weights: of the entries, by position; None means 1.
        scale: (rows,) factors that `scale_row` and `scale_column` multiply in.
        loops: write a self-loop into every row, of weight 1 times the scales.
    """
    first = chunks.first_with_loops if loops else chunks.first
    room = len(indices) + (chunks.num_rows if loops else 0)
    columns = torch.empty(room, dtype=torch.int32, device=indices.device)
    out_weights = torch.empty(room, dtype=torch.float32, device=indices.device)
    counts = torch.empty(len(chunks.rows), dtype=torch.int32, device=indices.device)
    if loops and scale is None:
        scale = torch.ones(chunks.num_rows, device=indices.device)
    if len(chunks.rows):
        launch(_compact_kernel, (triton.cdiv(len(chunks.rows), 8),))(
            chunks.first,
            chunks.last,
            first,
            chunks.rows,
            chunks.opens_row,
            indices,
            indices if positions is None else positions,
            counts if kept is None else kept,
            out_weights if weights is None else weights,
            out_weights if scale is None else scale,
            columns,
            out_weights,
            counts,
            len(chunks.rows),
            key="none" if kept is None else key,
            has_positions=positions is not None,
            is_weighted=weights is not None,
            scale_row=scale_row,
            scale_column=scale_column,
            has_loops=loops,
            chunks=8,
            width=chunks.width,
            num_warps=4,
        )
    return ChunkedMatrix(chunks, first, counts, columns, out_weights)


def select_rows(chunks: Chunks, indices: Tensor, weights: Tensor, kept: Tensor) -> ChunkedMatrix:
    """The matrix with the rows that are not kept emptied; nothing is moved for it."""
    counts = (chunks.last - chunks.first).int() * kept[chunks.rows]
    return ChunkedMatrix(chunks, chunks.first, counts, indices, weights)


Pair = tuple[ChunkedMatrix, ChunkedMatrix]
_graph_chunks: WeakKeyDictionary[Graph, tuple[Chunks, Chunks]] = WeakKeyDictionary()
_matrix_chunks: WeakKeyDictionary[SparseMatrix, tuple[Chunks, Chunks]] = WeakKeyDictionary()
_adjacencies: WeakKeyDictionary[View, WeakKeyDictionary[Graph, dict[str, Pair]]] = WeakKeyDictionary()
_column_masks: WeakKeyDictionary[View, dict[int, Tensor]] = WeakKeyDictionary()
_masked_features: WeakKeyDictionary[View, WeakKeyDictionary[Graph, dict[tuple[int, bool], Pair]]] = WeakKeyDictionary()
_masked_tables: WeakKeyDictionary[View, WeakKeyDictionary[Graph, dict[tuple[int, torch.dtype], Tensor]]] = (
    WeakKeyDictionary()
)


def adjacency(graph: Graph, view: View, norm: str) -> Pair:
    """The view's normalised adjacency and its transpose."""
    by_norm = _adjacencies.setdefault(view, WeakKeyDictionary()).setdefault(graph, {})
    if norm not in by_norm:
        by_norm[norm] = _draw(graph, view, norm)
    return by_norm[norm]


def masked_features(graph: Graph, view: View, block: int, features: SparseMatrix) -> Pair:
    """The view's features, all or the cold ones, and their transpose."""
    by_block = _masked_features.setdefault(view, WeakKeyDictionary()).setdefault(graph, {})
    key = block, features is graph.features[block]
    if key not in by_block:
        by_block[key] = _mask(graph, view, block, features)
    return by_block[key]


def masked_table(graph: Graph, view: View, block: int, table: Tensor) -> Tensor:
    """A dense block's features in the form that is given, of which the view drops single elements."""
    if not view.spec.masks_features:
        return table
    by_block = _masked_tables.setdefault(view, WeakKeyDictionary()).setdefault(graph, {})
    if (block, table.dtype) not in by_block:
        num_columns, rows = graph.num_features[block], global_rows(graph, block)
        threshold = aligned_threshold(view.spec.feature_mask_prob, torch.arange(num_columns, device=table.device))
        by_block[block, table.dtype] = mask_elements(
            table, rows, view.seed, threshold, num_columns=num_columns, stream=feature_stream(block)
        )
    return by_block[block, table.dtype]


def column_mask(graph: Graph, view: View, block: int) -> Tensor | None:
    """(F,) one byte for each feature column: whether the view keeps it."""
    if not view.spec.masks_features:
        return None
    by_block = _column_masks.setdefault(view, {})
    if block not in by_block:
        num_columns = graph.num_features[block]
        threshold = aligned_threshold(view.spec.feature_mask_prob, torch.arange(num_columns, device=graph.device))
        by_block[block] = keep_bytes(
            num_columns, view.seed, threshold, device=graph.device, stream=feature_stream(block)
        )
    return by_block[block]


def _draw(graph: Graph, view: View, norm: str) -> Pair:
    back = graph.transpose
    forward, backward = graph_chunks(graph)
    kept = kept_edge_bytes(graph, view)
    by_target, by_source = norm != "sum", norm == "symmetric"
    scale = degree_scale(graph.indptr, kept, graph.edge_weights, symmetric=by_source) if by_target else None
    missing = missing_degrees(graph, view)
    if scale is not None and missing is not None:
        scale = (scale.pow(-2) + missing).rsqrt() if by_source else (scale.reciprocal() + missing).reciprocal()
    shared: dict[str, Any] = {"kept": kept, "weights": graph.edge_weights, "scale": scale, "loops": True}
    turned: dict[str, Any] = {"positions": back.edge_positions, "scale_row": by_source, "scale_column": by_target}
    return (
        compact(forward, graph.indices, scale_row=by_target, scale_column=by_source, **shared),
        compact(backward, back.indices, **turned, **shared),
    )


def graph_chunks(graph: Graph) -> tuple[Chunks, Chunks]:
    """How the rows of a graph's CSR and of its transpose are cut."""
    if graph not in _graph_chunks:
        _graph_chunks[graph] = Chunks.of(graph.indptr), Chunks.of(graph.transpose.indptr)
    return _graph_chunks[graph]


def kept_edge_bytes(graph: Graph, view: View) -> Tensor | None:
    """(E,) one byte for each edge: whether the view keeps it; None where all stay."""
    if not view.spec.drops_edges:
        return None
    ids = pair_ids(graph) if view.spec.drop_directions_together else graph.edge_ids
    threshold = aligned_threshold(view.spec.edge_drop_prob, graph.edge_ids)
    return keep_bytes(graph.num_edges, view.seed, threshold, ids=ids, device=graph.device)


def _mask(graph: Graph, view: View, block: int, features: SparseMatrix) -> Pair:
    turned = features.transpose
    if features not in _matrix_chunks:
        _matrix_chunks[features] = Chunks.of(features.indptr), Chunks.of(turned.indptr)
    forward, backward = _matrix_chunks[features]
    values = features.values
    columns = None if view.spec.mask_elements else column_mask(graph, view, block)
    if columns is not None:
        return (
            compact(forward, features.indices, kept=columns, key="column", weights=values),
            select_rows(backward, turned.indices, turned.values, columns),
        )
    kept = _kept_elements(graph, view, block, features)
    return (
        compact(forward, features.indices, kept=kept, weights=values),
        compact(backward, turned.indices, kept=kept, positions=features.transpose_order, weights=values),
    )


def _kept_elements(graph: Graph, view: View, block: int, features: SparseMatrix) -> Tensor | None:
    """One byte for each entry; None where all stay."""
    spec = view.spec
    if not spec.masks_features:
        return None
    ids = global_rows(graph, block)[features.rows] * features.num_columns + features.indices
    threshold = aligned_threshold(spec.feature_mask_prob, features.indices)
    return keep_bytes(len(ids), view.seed, threshold, ids=ids, device=graph.device, stream=feature_stream(block))
