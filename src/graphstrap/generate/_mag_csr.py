"""The edges of a MAG-like graph as one CSR by destination, both directions of every relation, built without a sort of
all of them.

A relation is drawn for the rows on one side and turned range by range for the other. The rows of the result are filled
relation by relation, in an order in which sources ascend and relations too:

    paper        papers that it cites, papers that cite it, authors       cited ids are smaller, citing ones larger
    author       papers, institutions
    institution  authors
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphstrap.csr import count_columns, turn
from graphstrap.generate._mag_draws import Draw, draw_cites, draw_institutions, draw_writers
from graphstrap.generate._plan import Plan
from graphstrap.sparse import row_starts

# Relations from source to target, in the order of a row.
RELATIONS = ("reverse_cites", "cites", "writes", "reverse_writes", "affiliated_with", "reverse_affiliated_with")


@dataclass(frozen=True)
class Half:
    """A relation seen from one side: CSR of rows, numbered within their node type, to columns within theirs."""

    indptr: Tensor
    indices: Tensor
    num_columns: int

    @property
    def num_rows(self) -> int:
        return len(self.indptr) - 1


@dataclass(frozen=True)
class Edges:
    indptr: Tensor
    indices: Tensor
    edge_types: Tensor
    num_given: int


def draw_half(plan: Plan, draw: Draw, *, num_rows: int, num_columns: int, chunk_rows: int) -> Half:
    """Draw a relation for all rows; an end that a row draws twice counts once."""
    counts, columns = [], []
    for begin in range(0, num_rows, chunk_rows):
        rows = torch.arange(begin, min(num_rows, begin + chunk_rows), device=plan.device)
        draws, ends = draw(plan, rows)
        owner = torch.repeat_interleave(torch.arange(len(rows), device=plan.device), draws)
        keys = (owner * num_columns + ends)[ends >= 0].sort().values
        is_first = torch.ones_like(keys, dtype=torch.bool)
        is_first[1:] = keys[1:] != keys[:-1]
        keys = keys[is_first]
        counts.append(torch.bincount(keys // num_columns, minlength=len(rows)))
        columns.append((keys % num_columns).int())
    degrees = torch.cat(counts)
    return Half(row_starts(degrees), torch.cat(columns), num_columns)


def draw_edges(plan: Plan, *, chunk_rows: int, max_edges: int) -> Edges:
    """All relations, both ways."""
    num_papers, num_authors, num_institutions = plan.sizes
    cites = draw_half(plan, draw_cites, num_rows=num_papers, num_columns=num_papers, chunk_rows=chunk_rows)
    writes = draw_half(plan, draw_writers, num_rows=num_papers, num_columns=num_authors, chunk_rows=chunk_rows)
    belongs = draw_half(
        plan, draw_institutions, num_rows=num_authors, num_columns=num_institutions, chunk_rows=chunk_rows
    )
    cited, written, members = (count_columns(half.indices, half.num_columns) for half in (cites, writes, belongs))
    citing, written_by, affiliated = (half.indptr.diff() for half in (cites, writes, belongs))
    degrees = torch.cat([citing + cited + written_by, written + affiliated, members])
    indptr = row_starts(degrees)
    del degrees
    filler = _Filler.of(indptr, max_edges=max_edges)
    authors, institutions = num_papers, num_papers + num_authors
    # (relation, what lies before it in each row, first row, first source)
    filler.straight(cites, 0, indptr[:num_papers], first_source=0)
    filler.turned(cites, 1, indptr[:num_papers] + citing, first_source=0)
    filler.straight(writes, 2, indptr[:num_papers] + citing + cited, first_source=authors)
    filler.turned(writes, 3, indptr[authors:institutions], first_source=0)
    filler.turned(belongs, 4, indptr[institutions:-1], first_source=authors)
    filler.straight(belongs, 5, indptr[authors:institutions] + written, first_source=institutions)
    num_given = sum(len(half.indices) for half in (cites, writes, belongs))
    return Edges(indptr, filler.indices, filler.edge_types, num_given)


@dataclass(frozen=True)
class _Filler:
    indices: Tensor
    edge_types: Tensor
    max_edges: int

    @classmethod
    def of(cls, indptr: Tensor, *, max_edges: int) -> _Filler:
        num_edges, device = int(indptr[-1]), indptr.device
        indices = torch.empty(num_edges, dtype=torch.int32, device=device)
        return cls(indices, torch.empty(num_edges, dtype=torch.uint8, device=device), max_edges)

    def straight(self, half: Half, relation: int, bases: Tensor, *, first_source: int) -> None:
        """Edges into the rows of a half, whose columns are sources; `bases` is where each row's edges go."""
        step = max(1, self.max_edges)
        for begin in range(0, len(half.indices), step):
            positions = torch.arange(begin, min(len(half.indices), begin + step), device=bases.device)
            rows = torch.searchsorted(half.indptr, positions, right=True) - 1
            places = bases[rows] + positions - half.indptr[rows]
            self._put(places, half.indices[begin : begin + step] + first_source, relation)

    def turned(self, half: Half, relation: int, bases: Tensor, *, first_source: int) -> None:
        """Edges into the columns of a half, whose rows are sources."""
        for part in turn(half.indptr, half.indices, num_columns=half.num_columns, max_edges=self.max_edges):
            starts = part.counts.cumsum(0) - part.counts
            shifts = torch.repeat_interleave(bases[part.begin : part.end] - starts, part.counts)
            places = shifts + torch.arange(len(shifts), device=bases.device)
            self._put(places, (part.rows + first_source).int(), relation)

    def _put(self, places: Tensor, sources: Tensor, relation: int) -> None:
        self.indices[places] = sources
        self.edge_types[places] = relation
