"""A CSR that is too large to sort or gather at once: its transpose, and means over neighbours, range by range.

Both work on tensors in memory, on a GPU, or over memory maps, and hold about `max_edges` edges at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from graphstrap.graph.blocks import QuantisedMatrix, dense, encodable, take_rows

_NUM_BINS = 1 << 16
_SCAN = 1 << 23  # edges looked at together


class TransposedRange(NamedTuple):
    """The edges into the columns from `begin` to `end`, sorted by column; equal ones as they stand in the CSR."""

    begin: int
    end: int
    counts: Tensor  # (end - begin,) edges of each column
    rows: Tensor  # (K,) int64
    positions: Tensor  # (K,) int64, where each edge stands in `indices`


def transposed_ranges(
    indptr: Tensor, indices: Tensor, *, num_columns: int, max_edges: int
) -> Iterator[TransposedRange]:
    """The transpose of a CSR, column range by column range, with one pass over `indices` for each.

    A range has at most `max_edges` edges, unless so many end in one 65,536th of the columns.
    """
    for begin, end in _column_ranges(indices, num_columns, max_edges):
        columns, positions = _between(indices, begin, end)
        rows = torch.searchsorted(indptr, positions, right=True) - 1
        counts = torch.bincount(columns, minlength=end - begin)
        order = torch.sort(columns, stable=True).indices
        yield TransposedRange(begin, end, counts, rows[order], positions[order])


def count_columns(indices: Tensor, num_columns: int) -> Tensor:
    """(num_columns,) how often each column occurs."""
    counts = torch.zeros(num_columns, dtype=torch.int64, device=indices.device)
    step = max(_SCAN, num_columns)
    for begin in range(0, len(indices), step):
        counts += torch.bincount(indices[begin : begin + step], minlength=num_columns)
    return counts


def neighbour_means(
    directions: Sequence[tuple[Tensor, Tensor]],
    block: Tensor | QuantisedMatrix,
    *,
    rows: tuple[int, int],
    first: int,
    max_edges: int,
) -> Iterator[Tensor]:
    """Float32 means of the features of the neighbours that have them, for a range of rows, in pieces.

    Neighbours are the ends in every direction, each an (indptr, indices), that `block` covers: the nodes from `first`
    on, one for each of its rows. A node without such neighbours gets zeros. A piece holds at most `max_edges` edges; a
    row with more of them is summed in several steps.
    """
    begin = rows[0]
    while begin < rows[1]:
        end = _last_row(directions, begin, rows[1], max_edges)
        sums = torch.zeros(end - begin, block.shape[1], device=block.device)
        counts = torch.zeros(end - begin, dtype=torch.int64, device=block.device)
        for indptr, indices in directions:
            for row, numbers, starts in _pieces(indptr, indices, begin, end, max_edges):
                local = numbers - first
                known = (local >= 0) & (local < block.shape[0])
                offsets = torch.cat([known.new_zeros(1, dtype=torch.int64), known.cumsum(0)])[starts]
                values = dense(encodable(take_rows(block, local[known].long())))
                chosen = slice(row - begin, row - begin + len(starts) - 1)
                sums[chosen] += torch.segment_reduce(values, "sum", offsets=offsets, initial=0.0)
                counts[chosen] += offsets.diff()
        yield sums / counts.clamp(min=1)[:, None]
        begin = end


def _column_ranges(indices: Tensor, num_columns: int, max_edges: int) -> list[tuple[int, int]]:
    width = -(-num_columns // _NUM_BINS) or 1
    num_bins = -(-num_columns // width)
    bins = torch.zeros(num_bins, dtype=torch.int64, device=indices.device)
    for start in range(0, len(indices), _SCAN):
        bins += torch.bincount(indices[start : start + _SCAN] // width, minlength=num_bins)
    ranges, begin, total = [], 0, 0
    for number, count in enumerate(bins.tolist()):
        if total and total + count > max_edges:
            ranges.append((begin, number * width))
            begin, total = number * width, 0
        total += count
    return [*ranges, (begin, num_columns)] if num_columns else []


def _between(indices: Tensor, begin: int, end: int) -> tuple[Tensor, Tensor]:
    """The columns, counted from `begin`, and positions of the edges into a range of columns."""
    columns, positions = [indices.new_empty(0)], [torch.empty(0, dtype=torch.int64, device=indices.device)]
    for start in range(0, len(indices), _SCAN):
        chunk = indices[start : start + _SCAN]
        hits = ((chunk >= begin) & (chunk < end)).nonzero()[:, 0]
        columns.append(chunk[hits] - begin)
        positions.append(hits + start)
    return torch.cat(columns), torch.cat(positions)


def _last_row(directions: Sequence[tuple[Tensor, Tensor]], begin: int, end: int, max_edges: int) -> int:
    """The end of the longest range of rows from `begin` with at most `max_edges` edges; at least one row."""
    end = min(end, begin + max_edges)
    total = sum(indptr[begin + 1 : end + 1] - indptr[begin] for indptr, _ in directions)
    assert isinstance(total, Tensor)
    return begin + max(1, int((total <= max_edges).sum()))


def _pieces(
    indptr: Tensor, indices: Tensor, begin: int, end: int, max_edges: int
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """(first row, ends of edges, where each row starts in them): all rows at once, or one row in several steps."""
    starts = indptr[begin : end + 1] - indptr[begin]
    offset, num_edges = int(indptr[begin]), int(starts[-1])
    if num_edges <= max_edges:
        yield begin, indices[offset : offset + num_edges], starts
        return
    for start in range(0, num_edges, max_edges):
        numbers = indices[offset + start : offset + min(num_edges, start + max_edges)]
        yield begin, numbers, torch.tensor([0, len(numbers)], device=indices.device)
