"""What a batch's nodes have, where each worker holds the rows of one part: features, labels and times by `all_to_all`.

A node that several subgraphs of a batch have is asked for once. Rows travel as they are stored (in sixteen bits, or
eight), and are scaled where they are used. The busiest nodes' rows, which batches meet again and again, can be kept by
everyone (`sampling.hot_nodes`): they are fetched once, at the start.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from graphstrap.blocks import Features
from graphstrap.graph import Graph
from graphstrap.io.parts import Part
from graphstrap.parallel.exchange import Answer, Exchange
from graphstrap.quantised import QuantisedMatrix
from graphstrap.sampling.gather import to_device
from graphstrap.scaled import Raw, ScaledMatrix
from graphstrap.sparse import SparseMatrix, row_starts

Columns = list[Tensor]


class PartGatherer:
    """Fills batches of a graph in parts.

    Args:
        part: the part, with its own rows scaled when they are read (`FeatureTransform.when_read`).
        device: where batches are to be used.
        num_hot: how many of the busiest nodes' rows to keep here.
    """

    def __init__(self, part: Part, exchange: Exchange, *, device: torch.device, num_hot: int = 0) -> None:
        self.part, self.exchange, self.device = part, exchange, device
        offsets = part.type_offsets
        self.kinds = [_Kind(part, t, exchange) for t in range(len(offsets) - 1)]
        hot = part.hot[:num_hot].sort().values
        for t, kind in enumerate(self.kinds):
            kind.keep(hot[(hot >= offsets[t]) & (hot < offsets[t + 1])])

    def fill(self, batch: Graph) -> Graph:
        """The batch with its features, labels and times, on the device where it is to be used."""
        assert batch.node_ids is not None
        features: list[Features] = []
        labels: list[Tensor] = []
        times: list[Tensor] = []
        for t, kind in enumerate(self.kinds):
            nodes, places = torch.unique(
                batch.node_ids[batch.type_offsets[t] : batch.type_offsets[t + 1]], return_inverse=True
            )
            block, label, time = kind.fetch(nodes, places, self.device)
            features.append(block)
            labels += [] if label is None else [label]
            times += [] if time is None else [time]
        moved = replace(batch, node_times=torch.cat(times) if times else None)
        return replace(
            to_device(moved, self.device),
            features=tuple(features),
            labels=torch.cat(labels).to(self.device) if labels else None,
        )


class _Kind:
    """The rows of one node type: those of this part, and the hot ones."""

    def __init__(self, part: Part, number: int, exchange: Exchange) -> None:
        own, block = part.own, part.own.features[number]
        assert own.node_ids is not None
        assert isinstance(block, ScaledMatrix)
        self.part, self.exchange, self.scaled = part, exchange, block
        rows = slice(own.type_offsets[number], own.type_offsets[number + 1])
        self.nodes = own.node_ids[rows]
        self.more = [column[rows] for column in (own.labels, own.node_times) if column is not None]
        self.has_labels, self.has_times = own.labels is not None, own.node_times is not None
        self.hot = self.nodes[:0]
        self.hot_answer: Answer | None = None

    def keep(self, hot: Tensor) -> None:
        """Fetch the rows of these nodes, for good."""
        self.hot_answer = self._ask(hot)
        self.hot = hot

    def fetch(
        self, nodes: Tensor, places: Tensor, device: torch.device
    ) -> tuple[Features, Tensor | None, Tensor | None]:
        """Features, labels and times of `nodes[places]`; `nodes` are different ones, in order."""
        assert self.hot_answer is not None
        at = torch.searchsorted(self.hot, nodes)
        is_hot = torch.zeros_like(nodes, dtype=torch.bool)
        if len(self.hot):
            is_hot = self.hot.index_select(0, at.clamp(max=len(self.hot) - 1)) == nodes
        asked = (~is_hot).nonzero().squeeze(1)
        answer = self._ask(nodes.index_select(0, asked))
        kept = self._select(self.hot_answer, at.masked_select(is_hot))
        order = torch.argsort(torch.cat([asked, is_hot.nonzero().squeeze(1)]))
        whole = self._select(_joined(answer, kept), order.index_select(0, places))
        features, rest = self._taken_apart(whole)
        label = rest.pop(0) if self.has_labels else None
        time = rest.pop(0) if self.has_times else None
        return self.scaled.apply(_moved(features, device)), label, time

    def _ask(self, nodes: Tensor) -> Answer:
        owners = self.part.part_of.index_select(0, nodes).long()
        answer = self.exchange.ask(owners, [nodes], self._tell)
        if self.more and answer.counts is not None:  # what a sparse matrix's rows do not carry
            rest = self.exchange.ask(owners, [nodes], self._tell_more)
            return Answer(answer.counts, [*answer.columns, *rest.columns])
        return answer

    def _tell(self, asked: Columns) -> Answer:
        rows, raw = torch.searchsorted(self.nodes, asked[0]), self.scaled.raw
        if isinstance(raw, SparseMatrix):
            found = raw.select_rows(rows)
            return Answer(found.indptr.diff(), [found.indices, found.values])
        table = raw.codes if isinstance(raw, QuantisedMatrix) else raw
        return Answer(None, [table.index_select(0, rows), *self._tell_more(asked).columns])

    def _tell_more(self, asked: Columns) -> Answer:
        rows = torch.searchsorted(self.nodes, asked[0])
        return Answer(None, [column.index_select(0, rows) for column in self.more])

    def _select(self, answer: Answer, rows: Tensor) -> Answer:
        """Some rows of an answer; a sparse one has (indices, values) of varying number, then columns of one each."""
        if answer.counts is None:
            return Answer(None, [column.index_select(0, rows) for column in answer.columns])
        indices, values, *more = answer.columns
        found = SparseMatrix(row_starts(answer.counts), indices, values, 0).select_rows(rows)
        counts = answer.counts.index_select(0, rows)
        return Answer(counts, [found.indices, found.values, *(column.index_select(0, rows) for column in more)])

    def _taken_apart(self, answer: Answer) -> tuple[Raw, Columns]:
        raw = self.scaled.raw
        if answer.counts is not None:
            indices, values, *more = answer.columns
            return SparseMatrix(row_starts(answer.counts), indices, values, int(raw.shape[1])), more
        table, *more = answer.columns
        return QuantisedMatrix(table, raw.scale, raw.offset) if isinstance(raw, QuantisedMatrix) else table, more


def _joined(one: Answer, other: Answer) -> Answer:
    counts = None if one.counts is None or other.counts is None else torch.cat([one.counts, other.counts])
    return Answer(counts, [torch.cat(pair) for pair in zip(one.columns, other.columns, strict=True)])


def _moved(rows: Raw, device: torch.device) -> Raw:
    """Rows on the device where they are to be used, as the gatherer of a whole graph gives them to be scaled."""
    if isinstance(rows, QuantisedMatrix):
        rows = rows.to_dense()
    return rows.to(device) if isinstance(rows, Tensor) else rows.map(lambda tensor: tensor.to(device))
