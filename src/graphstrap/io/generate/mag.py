"""mag: a synthetic graph in the shape of MAG240M, at any size.

Papers, authors and institutions in MAG240M's numbers times `scale`; citations, authorship and affiliation with
power-law degrees; 153 topics that grow, shrink and move over 51 years; paper features that are a topic's centroid of
that year plus noise; about 1.1 % of the papers labelled, the train part up to 2018, validation 2019, test 2020.

    x[paper, j]     =  s[j] * (centroid[year, topic, j] + noise * n[paper, j])      s[j] = (j + 1) ** -1/2, n ~ N(0, 1)
    x[author]       =  mean of the papers,    x[institution]  =  mean of the authors
    label[paper]    =  its topic, or with probability 0.2 any topic of its field

It is made, not measured: its numbers say how fast and how much, and only roughly how well. Columns stand for the first
principal components of MAG240M's 768, so their variance falls. Ids of papers grow with time, so that rows that are
sorted by id are sorted by time as well. Every draw is a hash (`keep.py`): the same graph on every device, whatever the
chunks. How its statistics compare with the published ones: docs/generated.md.

Departs from MAG240M: all papers are of one of the labelled topics; the labels of the test part are there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph import Graph, Splits
from graphstrap.graph.blocks import row_starts
from graphstrap.graph.csr import count_columns, neighbour_means, transposed_ranges
from graphstrap.graph.edge_list import Cleaning
from graphstrap.graph.views import hash32
from graphstrap.io.generate.mag_plan import (
    FIRST_YEAR,
    NUM_CLASSES,
    TEST_YEAR,
    VAL_YEAR,
    Draw,
    Plan,
    below,
    centroids,
    draw_cites,
    draw_institutions,
    draw_writers,
    uniform,
)

# The edges of a MAG-like graph as one CSR by destination, both directions of every relation, built without a sort of
# all of them.
#
# A relation is drawn for the rows on one side and turned range by range for the other. The rows of the result are
# filled relation by relation, in an order in which sources ascend and relations too:
#
# paper        papers that it cites, papers that cite it, authors       cited ids are smaller, citing ones larger
# author       papers, institutions
# institution  authors


# Relations from source to target, in the order of a row.
RELATIONS = ("reverse_cites", "cites", "writes", "reverse_writes", "affiliated_with", "reverse_affiliated_with")


@dataclass(frozen=True)
class Half:
    """A relation seen from one side: CSR of rows, numbered within their node type, to columns within theirs."""

    indptr: Tensor
    indices: Tensor
    num_columns: int


@dataclass(frozen=True)
class Edges:
    indptr: Tensor
    indices: Tensor
    edge_types: Tensor
    num_given: int


def _chunks(number: int, step: int, device: torch.device) -> Iterator[Tensor]:
    """The integers from 0 to `number`, some at a time."""
    for begin in range(0, number, step):
        yield torch.arange(begin, min(number, begin + step), device=device)


def draw_half(plan: Plan, draw: Draw, *, num_rows: int, num_columns: int, chunk_rows: int) -> Half:
    """Draw a relation for all rows; an end that a row draws twice counts once."""
    counts, columns = [], []
    for rows in _chunks(num_rows, chunk_rows, plan.device):
        draws, ends = draw(plan, rows)
        owner = torch.repeat_interleave(torch.arange(len(rows), device=plan.device), draws)
        keys = torch.unique_consecutive((owner * num_columns + ends)[ends >= 0].sort().values)
        counts.append(torch.bincount(keys // num_columns, minlength=len(rows)))
        columns.append((keys % num_columns).int())
    return Half(row_starts(torch.cat(counts)), torch.cat(columns), num_columns)


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
    indptr = row_starts(torch.cat([citing + cited + written_by, written + affiliated, members]))
    num_given = sum(len(half.indices) for half in (cites, writes, belongs))
    indices = torch.empty(int(indptr[-1]), dtype=torch.int32, device=plan.device)
    edges = Edges(indptr, indices, torch.empty_like(indices, dtype=torch.uint8), num_given)
    authors, institutions = num_papers, num_papers + num_authors
    # (relation, what lies before it in each row, first row, first source)
    _fill(edges, cites, 0, indptr[:num_papers], first_source=0, max_edges=max_edges)
    _fill_turned(edges, cites, 1, indptr[:num_papers] + citing, first_source=0, max_edges=max_edges)
    _fill(edges, writes, 2, indptr[:num_papers] + citing + cited, first_source=authors, max_edges=max_edges)
    _fill_turned(edges, writes, 3, indptr[authors:institutions], first_source=0, max_edges=max_edges)
    _fill_turned(edges, belongs, 4, indptr[institutions:-1], first_source=authors, max_edges=max_edges)
    _fill(edges, belongs, 5, indptr[authors:institutions] + written, first_source=institutions, max_edges=max_edges)
    return edges


def _fill(edges: Edges, half: Half, relation: int, bases: Tensor, *, first_source: int, max_edges: int) -> None:
    """Edges into the rows of a half, whose columns are sources; `bases` is where each row's edges go."""
    chunks = _chunks(len(half.indices), max_edges, bases.device)
    for positions, columns in zip(chunks, torch.split(half.indices, max_edges), strict=False):
        rows = torch.searchsorted(half.indptr, positions, right=True) - 1
        places = bases[rows] + positions - half.indptr[rows]
        edges.indices[places] = columns + first_source
        edges.edge_types[places] = relation


def _fill_turned(edges: Edges, half: Half, relation: int, bases: Tensor, *, first_source: int, max_edges: int) -> None:
    """Edges into the columns of a half, whose rows are sources."""
    for part in transposed_ranges(half.indptr, half.indices, num_columns=half.num_columns, max_edges=max_edges):
        starts = part.counts.cumsum(0) - part.counts
        shifts = torch.repeat_interleave(bases[part.begin : part.end] - starts, part.counts)
        places = shifts + torch.arange(len(shifts), device=bases.device)
        edges.indices[places] = (part.rows + first_source).int()
        edges.edge_types[places] = relation


NOISE = 4.5
LABEL_NOISE = 0.2
NO_TIME = torch.iinfo(torch.int64).min  # authors and institutions have no year
_BYTE_SUM_MEAN, _BYTE_SUM_STD = 4 * 127.5, (4 * (256**2 - 1) / 12) ** 0.5
_CHUNK_BYTES = {"cpu": 1 << 27, "cuda": 1 << 31}


def mag(
    scale: float = 0.01,
    *,
    seed: int = 0,
    num_features: int = 128,
    feature_dtype: torch.dtype = torch.float16,
    device: torch.device | str = "cpu",
    chunk_bytes: int | None = None,
) -> Graph:
    """A MAG-like graph; `scale=1` has 244 million nodes and 1.7 billion edges before their reverses are added.

    Args:
        scale: of the numbers of papers, authors and institutions.
        seed: another one gives another graph of the same kind.
        num_features: columns; 0 for none.
        feature_dtype: float16, bfloat16 or float32.
        device: where the graph is made and stays.
        chunk_bytes: about how much memory to use beside the result; the result does not depend on it, but for the last
            bit of the features of authors and institutions with very many papers.
    """
    if not 0 < scale <= 8:
        raise InputError(f"scale must be above 0 and at most 8, got {scale}")
    place = torch.device(device)
    chunk_bytes = chunk_bytes or _CHUNK_BYTES.get(place.type, 1 << 28)
    plan = Plan.of(scale, seed=seed, device=place)
    edges = draw_edges(plan, chunk_rows=max(1, chunk_bytes >> 11), max_edges=max(1, chunk_bytes >> 6))
    years, topics = _papers(plan, max(1, chunk_bytes >> 7))
    labels, splits = _labels(plan, years, topics)
    offsets = (0, *np.cumsum(plan.sizes).tolist())
    times = torch.full((offsets[-1],), NO_TIME, device=place)
    times[: len(years)] = years.long() + FIRST_YEAR
    blocks: tuple[Tensor | None, ...] = (None, None, None)
    if num_features:
        x = _features(plan, years, topics, num_features, feature_dtype, chunk_bytes)
        blocks = _derived(x, edges, offsets, chunk_bytes)
    return Graph(
        indptr=edges.indptr,
        indices=edges.indices,
        edge_types=edges.edge_types,
        edge_type_names=RELATIONS,
        features=blocks,
        type_offsets=offsets,
        node_types=("paper", "author", "institution"),
        labels=labels,
        class_names=tuple(f"topic {topic}" for topic in range(NUM_CLASSES)),
        splits=splits,
        node_times=times,
        cleaning=Cleaning(num_edges_given=edges.num_given, num_reverse_edges_added=edges.num_given),
        name=f"mag-like-{scale:g}",
    )


def _papers(plan: Plan, chunk_rows: int) -> tuple[Tensor, Tensor]:
    """(papers,) year, from 0, and topic: one byte each is enough."""
    years = torch.empty(plan.sizes[0], dtype=torch.uint8, device=plan.device)
    topics = torch.empty_like(years)
    of_chunks = (torch.split(column, chunk_rows) for column in (years, topics))
    for ids, year, topic in zip(_chunks(len(years), chunk_rows, plan.device), *of_chunks, strict=True):
        year[:], topic[:] = plan.papers.cell_of(ids)
    return years, topics


def _labels(plan: Plan, years: Tensor, topics: Tensor) -> tuple[Tensor, Splits]:
    num_nodes, branch = sum(plan.sizes), plan.branch(20)
    labels = torch.full((num_nodes,), -1, device=plan.device)
    masks = torch.zeros(3, num_nodes, 1, dtype=torch.bool, device=plan.device)
    for ids in _chunks(len(years), 1 << 24, plan.device):
        labelled = ids[plan.has_label(ids)]
        topic, when = topics[labelled].long(), years[labelled].long() + FIRST_YEAR
        start = plan.field_starts[plan.fields[topic]]
        size = plan.field_starts[plan.fields[topic] + 1] - start
        in_field = start + below(uniform(labelled, branch + 1), size)
        labels[labelled] = torch.where(uniform(labelled, branch + 2) < LABEL_NOISE, in_field, topic)
        masks[0, labelled[when < VAL_YEAR]] = True
        masks[1, labelled[when == VAL_YEAR]] = True
        masks[2, labelled[when == TEST_YEAR]] = True
    return labels, Splits(masks[0], masks[1], masks[2])


def _features(
    plan: Plan, years: Tensor, topics: Tensor, num_features: int, dtype: torch.dtype, chunk_bytes: int
) -> Tensor:
    """(papers, F) centroid of the topic in its year, plus noise."""
    centres, branch = centroids(plan, num_features), plan.branch(21)
    columns = torch.arange(num_features, device=plan.device)
    spectrum = (1.0 / (columns + 1).double()).sqrt().float()
    x = torch.empty(len(years), num_features, dtype=dtype, device=plan.device)
    step = max(1, chunk_bytes // (64 * num_features))
    of_chunks = (torch.split(column, step) for column in (years, topics, x))
    for ids, year, topic, rows in zip(_chunks(len(years), step, plan.device), *of_chunks, strict=True):
        noise = _normal(ids[:, None] * num_features + columns, branch)
        rows[:] = spectrum * (centres[year.long(), topic.long()] + NOISE * noise)
    return x


def _normal(ids: Tensor, seed: int) -> Tensor:
    """Nearly normal: the four bytes of a hash, added up, with mean 0 and variance 1."""
    word = hash32(ids, seed)
    total: Tensor = (word & 255) + ((word >> 8) & 255) + ((word >> 16) & 255) + (word >> 24)
    return total.float().sub_(_BYTE_SUM_MEAN).div_(_BYTE_SUM_STD)


def _derived(x: Tensor, edges: Edges, offsets: tuple[int, ...], chunk_bytes: int) -> tuple[Tensor, Tensor, Tensor]:
    """The features of papers, of authors as means of them, and of institutions as means of authors."""
    incoming, max_edges = [(edges.indptr, edges.indices)], max(1, chunk_bytes // (16 * x.shape[1]))
    blocks = [x]
    for kind in (1, 2):
        block = torch.empty(offsets[kind + 1] - offsets[kind], x.shape[1], dtype=x.dtype, device=x.device)
        begin, rows = 0, (offsets[kind], offsets[kind + 1])
        for means in neighbour_means(incoming, blocks[-1], rows=rows, first=offsets[kind - 1], max_edges=max_edges):
            block[begin : begin + len(means)] = means
            begin += len(means)
        blocks.append(block)
    return blocks[0], blocks[1], blocks[2]
