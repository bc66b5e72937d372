"""Questions to other workers, and their answers: `all_to_all` on a process group of its own.

    ask(owners, questions, answer)     each row of `questions` goes to its owner, whose `answer` gives rows for it;
                                       these come back in the order of the questions

Every worker must ask equally often, if only nothing: each call is four `all_to_all` (numbers of questions, questions,
numbers of rows in the answers, answers), three where every question has one row for an answer. A thread that makes
batches ahead asks while the main thread adds up gradients, so the group is not the one that gradients travel in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from graphstrap.parallel.workers import PATIENCE, Workers, in_touch
from graphstrap.sparse import row_positions, row_starts


class Answer(NamedTuple):
    """Rows for some questions.

    Args:
        counts: (Q,) how many rows each question gets; None for one each.
        columns: rows of all questions, one question after the other.
    """

    counts: Tensor | None
    columns: list[Tensor]


class Exchange:
    """The way from every worker to every other. `bytes_sent` counts what went to others."""

    def __init__(self, workers: Workers) -> None:
        self.workers, self.bytes_sent = workers, 0
        self._group: Any = None
        if workers.size > 1:
            with in_touch():
                self._group = dist.new_group(backend="gloo", timeout=PATIENCE)

    def ask(self, owners: Tensor, questions: Sequence[Tensor], answer: Callable[[list[Tensor]], Answer]) -> Answer:
        """Args:
        owners: (Q,) who is asked.
        questions: columns of Q rows each.
        answer: called with columns of all the questions that this worker was asked.
        """
        order = torch.sort(owners, stable=True).indices
        asked = torch.bincount(owners, minlength=self.workers.size)
        was_asked = self._send(asked, None, None)
        table, kinds = pack([column.index_select(0, order) for column in questions])
        mine = answer(unpack(self._send(table, asked, was_asked), kinds))
        table, kinds = pack(mine.columns)
        back = torch.argsort(order)
        if mine.counts is None:
            found = unpack(self._send(table, was_asked, asked), kinds)
            return Answer(None, [column.index_select(0, back) for column in found])
        counts = self._send(mine.counts, was_asked, asked)
        found = unpack(self._send(table, _sums(mine.counts, was_asked), _sums(counts, asked)), kinds)
        rows = row_positions(row_starts(counts), back)
        return Answer(counts.index_select(0, back), [column.index_select(0, rows) for column in found])

    def close(self) -> None:
        """Let go of the group: whoever keeps it keeps its threads."""
        self._group = None

    def _send(self, table: Tensor, counts: Tensor | None, counts_back: Tensor | None) -> Tensor:
        """Rows of a table, so many for each worker in turn; what the others sent to this one."""
        if self._group is None:
            return table
        sizes = [1] * self.workers.size if counts is None else counts.tolist()
        sizes_back = [1] * self.workers.size if counts_back is None else counts_back.tolist()
        out = table.new_empty(sum(sizes_back), *table.shape[1:])
        with in_touch():
            dist.all_to_all_single(out, table.contiguous(), sizes_back, sizes, group=self._group)
        row_bytes = table[:1].nbytes
        self.bytes_sent += (len(table) - sizes[self.workers.rank]) * row_bytes
        return out


def pack(columns: Sequence[Tensor]) -> tuple[Tensor, list[tuple[torch.dtype, tuple[int, ...]]]]:
    """(R, B) the bytes of R rows of all columns side by side, and what is needed to take them apart."""
    parts = [column.reshape(len(column), column.shape[1:].numel()).view(torch.uint8) for column in columns]
    return torch.cat(parts, dim=1), [(column.dtype, tuple(column.shape[1:])) for column in columns]


def unpack(table: Tensor, kinds: Sequence[tuple[torch.dtype, tuple[int, ...]]]) -> list[Tensor]:
    columns, begin = [], 0
    for dtype, shape in kinds:
        width = dtype.itemsize * torch.Size(shape).numel()
        column = torch.empty((len(table), *shape), dtype=dtype)
        if column.numel():
            column.view(len(table), -1).view(torch.uint8).copy_(table[:, begin : begin + width])
        columns.append(column)
        begin += width
    return columns


def _sums(counts: Tensor, groups: Tensor) -> Tensor:
    """Sums of `counts` over successive groups of so many."""
    ends = row_starts(counts)
    return ends.index_select(0, groups.cumsum(0)) - ends.index_select(0, groups.cumsum(0) - groups)
