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

import numpy as np
import torch
from torch import Tensor

from graphstrap.csr import neighbour_means
from graphstrap.edge_table import Cleaning
from graphstrap.errors import InputError
from graphstrap.generate._draw import below, uniform
from graphstrap.generate._mag_csr import RELATIONS, Edges, draw_edges
from graphstrap.generate._plan import FIRST_YEAR, NUM_CLASSES, TEST_YEAR, VAL_YEAR, Plan, centroids
from graphstrap.graph import Graph, Splits
from graphstrap.keep import hash32

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
    years, topics = _papers(plan, chunk_bytes >> 7)
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
    for begin in range(0, len(years), max(1, chunk_rows)):
        ids = torch.arange(begin, min(len(years), begin + max(1, chunk_rows)), device=plan.device)
        years[begin : begin + len(ids)], topics[begin : begin + len(ids)] = plan.papers.cell_of(ids)
    return years, topics


def _labels(plan: Plan, years: Tensor, topics: Tensor) -> tuple[Tensor, Splits]:
    num_nodes, branch = sum(plan.sizes), plan.branch(20)
    labels = torch.full((num_nodes,), -1, device=plan.device)
    masks = torch.zeros(3, num_nodes, 1, dtype=torch.bool, device=plan.device)
    step = 1 << 24
    for begin in range(0, len(years), step):
        ids = torch.arange(begin, min(len(years), begin + step), device=plan.device)
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
    for begin in range(0, len(years), step):
        end = min(len(years), begin + step)
        ids = torch.arange(begin, end, device=plan.device)[:, None]
        centre = centres[years[begin:end].long(), topics[begin:end].long()]
        x[begin:end] = spectrum * (centre + NOISE * _normal(ids * num_features + columns, branch))
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
