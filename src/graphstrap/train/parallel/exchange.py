"""Questions to other workers, and their answers: `all_to_all` on a process group of its own.

    ask(owners, questions, answer)     each row of `questions` goes to its owner, whose `answer` gives rows for it;
                                       these come back in the order of the questions

Every worker must ask equally often, if only nothing: each call is four `all_to_all` (numbers of questions, questions,
numbers of rows in the answers, answers), three where every question has one row for an answer. A thread that makes
batches ahead asks while the main thread adds up gradients, so the group is not the one that gradients travel in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from graphstrap.graph import Graph
from graphstrap.graph.blocks import (
    Features,
    QuantisedMatrix,
    Raw,
    ScaledMatrix,
    SparseMatrix,
    row_positions,
    row_starts,
)
from graphstrap.io.parts import Part
from graphstrap.train.parallel.workers import PATIENCE, Workers, in_touch
from graphstrap.train.sampling.subgraph import rows_to

_NODE_COLUMNS = ("labels", "node_times")


class Answer(NamedTuple):
    """Rows for some questions.

    Args:
        counts: (Q,) how many rows each question gets; None for one each.
        columns: rows of all questions, one question after the other.
        more: with `counts`, columns of which each question gets one row.
    """

    counts: Tensor | None
    columns: Sequence[Tensor]
    more: Sequence[Tensor] = ()

    def select(self, questions: Tensor) -> Answer:
        """The rows for some of the questions, in this order."""
        more = [column.index_select(0, questions) for column in self.more]
        if self.counts is None:
            return Answer(None, [column.index_select(0, questions) for column in self.columns], more)
        rows = row_positions(row_starts(self.counts), questions)
        columns = [column.index_select(0, rows) for column in self.columns]
        return Answer(self.counts.index_select(0, questions), columns, more)

    def joined(self, other: Answer) -> Answer:
        """The rows for both questions: these, then the other's."""
        counts = None if self.counts is None or other.counts is None else torch.cat([self.counts, other.counts])
        columns = [torch.cat(pair) for pair in zip(self.columns, other.columns, strict=True)]
        return Answer(counts, columns, [torch.cat(pair) for pair in zip(self.more, other.more, strict=True)])


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
        back = torch.argsort(order)
        table, kinds = pack(mine.columns if mine.counts is None else [mine.counts, *mine.more])
        found = unpack(self._send(table, was_asked, asked), kinds)
        if mine.counts is None:
            return Answer(None, found).select(back)
        counts, *more = found
        table, kinds = pack(mine.columns)
        columns = unpack(self._send(table, _sums(mine.counts, was_asked), _sums(counts, asked)), kinds)
        return Answer(counts, columns, more).select(back)

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
    parts = torch.split(table, [dtype.itemsize * torch.Size(shape).numel() for dtype, shape in kinds], dim=1)
    copies = [part.clone(memory_format=torch.contiguous_format).view(-1) for part in parts]
    return [part.view(dtype).view(len(table), *shape) for part, (dtype, shape) in zip(copies, kinds, strict=True)]


def _sums(counts: Tensor, groups: Tensor) -> Tensor:
    """Sums of `counts` over successive groups of these sizes."""
    return torch.stack([group.sum() for group in torch.split(counts, groups.tolist())])


class PartGatherer:
    """Fills batches of a graph in parts with features, labels and times, which each worker holds for its own part.

    A node that several subgraphs of a batch have is asked for once. Rows travel as they are stored (in sixteen bits, or
    eight), and are scaled where they are used. The busiest nodes' rows, which batches meet again and again, can be kept
    by everyone (`sampling.hot_nodes`): they are fetched once, at the start.

    Args:
        part: the part, with its own rows scaled when they are read (`FeatureTransform.when_read`).
        device: where batches are to be used.
        num_hot: how many of the busiest nodes' rows to keep here.
    """

    def __init__(self, part: Part, exchange: Exchange, *, device: torch.device, num_hot: int = 0) -> None:
        self.part, self.exchange, self.device = part, exchange, device
        hot = part.hot[:num_hot].sort().values
        self.kinds = [
            _Kind(part, t, exchange, hot=hot[(hot >= first) & (hot < last)])
            for t, (first, last) in enumerate(pairwise(part.type_offsets))
        ]

    def fill(self, batch: Graph) -> Graph:
        """The batch with its features, labels and times, on the device where it is to be used."""
        assert batch.node_ids is not None
        features, columns = [], []
        for kind, (first, last) in zip(self.kinds, pairwise(batch.type_offsets), strict=True):
            nodes, places = torch.unique(batch.node_ids[first:last], return_inverse=True)
            block, *rest = kind.fetch(nodes, places, self.device)
            features.append(block)
            columns.append(rest)
        names = [name for name in _NODE_COLUMNS if getattr(self.part.own, name) is not None]
        found: dict[str, Any] = dict(zip(names, map(torch.cat, zip(*columns, strict=True)), strict=True))
        return replace(replace(batch, **found).to(self.device), features=tuple(features))


class _Kind:
    """The rows of one node type: those of this part, and the hot ones."""

    def __init__(self, part: Part, number: int, exchange: Exchange, *, hot: Tensor) -> None:
        own, block = part.own, part.own.features[number]
        assert own.node_ids is not None
        assert isinstance(block, ScaledMatrix)
        self.part, self.exchange, self.scaled = part, exchange, block
        rows = slice(own.type_offsets[number], own.type_offsets[number + 1])
        self.nodes = own.node_ids[rows]
        columns = [getattr(own, name) for name in _NODE_COLUMNS]
        self.more = [column[rows] for column in columns if column is not None]
        self.hot, self.hot_answer = hot, self._ask(hot)

    def fetch(self, nodes: Tensor, places: Tensor, device: torch.device) -> tuple[Features, *tuple[Tensor, ...]]:
        """Features of `nodes[places]`, and their other columns; `nodes` are different ones, in order."""
        at = torch.searchsorted(self.hot, nodes)
        is_hot = torch.zeros_like(nodes, dtype=torch.bool)
        if len(self.hot):
            is_hot = self.hot.index_select(0, at.clamp(max=len(self.hot) - 1)) == nodes
        asked = (~is_hot).nonzero().squeeze(1)
        answer = self._ask(nodes.index_select(0, asked))
        kept = self.hot_answer.select(at.masked_select(is_hot))
        order = torch.argsort(torch.cat([asked, is_hot.nonzero().squeeze(1)]))
        features, more = self._taken_apart(answer.joined(kept).select(order.index_select(0, places)))
        if isinstance(features, QuantisedMatrix):
            features = features.to_dense()
        return self.scaled.apply(rows_to(features, device)), *more

    def _ask(self, nodes: Tensor) -> Answer:
        owners = self.part.part_of.index_select(0, nodes).long()
        return self.exchange.ask(owners, [nodes], self._tell)

    def _tell(self, asked: list[Tensor]) -> Answer:
        rows, raw = torch.searchsorted(self.nodes, asked[0]), self.scaled.raw
        more = [column.index_select(0, rows) for column in self.more]
        if isinstance(raw, SparseMatrix):
            found = raw.select_rows(rows)
            return Answer(found.indptr.diff(), [found.indices, found.values], more)
        table = raw.codes if isinstance(raw, QuantisedMatrix) else raw
        return Answer(None, [table.index_select(0, rows), *more])

    def _taken_apart(self, answer: Answer) -> tuple[Raw, Sequence[Tensor]]:
        raw = self.scaled.raw
        if answer.counts is not None:
            indices, values = answer.columns
            return SparseMatrix(row_starts(answer.counts), indices, values, int(raw.shape[1])), answer.more
        table, *more = answer.columns
        return QuantisedMatrix(table, raw.scale, raw.offset) if isinstance(raw, QuantisedMatrix) else table, more
