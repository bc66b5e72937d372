"""The plan of a MAG-like graph: how many of what, in which year and topic. Small tables, made on the CPU.

Papers stand in the order of years, so that ids grow with time, and within a year in a scattered order. What a paper
is follows from its id: id -> place in its year -> (year, topic), by tables of where each topic of each year starts.
Authors are laid out the same way, by the year of their first paper and their topic. The labelled papers of a cell stand
side by side in its middle, where papers are neither the most nor the least cited.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphstrap.generate._draw import Shuffle, Table, signs
from graphstrap.keep import child_seed, hash32

# What is published of MAG240M (OGB-LSC).
NUM_PAPERS, NUM_AUTHORS, NUM_INSTITUTIONS = 121_751_666, 122_383_112, 25_721
NUM_CITES, NUM_WRITES, NUM_AFFILIATED = 1_297_748_926, 386_022_720, 44_592_586
NUM_TRAIN, NUM_VAL, NUM_TEST = 1_112_392, 138_949, 146_818
NUM_CLASSES = 153
VAL_YEAR, TEST_YEAR = 2019, 2020

# Chosen here.
FIRST_YEAR, NUM_YEARS, NUM_FIELDS = 1970, 51, 12
_GROWTH = 1.055  # papers a year
_LABELLED_RATIO = 0.884  # labelled papers of a year before VAL_YEAR to those of the next
_ZIPF = 0.6  # how unequal topics are


@dataclass(frozen=True)
class Layout:
    """Nodes by (year, topic). `starts` (years * topics + 1,) is where each cell begins in the order of places."""

    starts: Tensor
    shuffles: Shuffle  # one for each year

    @classmethod
    def of(cls, count: int, shares: Table, *, seed: int, device: torch.device) -> Layout:
        """`shares` (years, topics) adds up to 1; cells get their parts of `count` nodes, rounded at their borders."""
        ends = np.floor(np.cumsum(shares.reshape(-1)) * count).astype(np.int64)
        starts = np.concatenate([[0], ends])
        starts[-1] = count
        years = starts[:: shares.shape[1]]
        return cls(torch.from_numpy(starts).to(device), Shuffle.of(years, seed, device=device))

    @property
    def num_topics(self) -> int:
        return (len(self.starts) - 1) // NUM_YEARS

    def cell_of(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The year, from 0, and the topic of each id."""
        cell = torch.searchsorted(self.starts, self.place_of(ids), right=True) - 1
        return cell // self.num_topics, cell % self.num_topics

    def place_of(self, ids: Tensor) -> Tensor:
        return self.shuffles.back(ids, self._year_of(ids))

    def id_of(self, places: Tensor) -> Tensor:
        return self.shuffles.forth(places, self._year_of(places))

    def _year_of(self, numbers: Tensor) -> Tensor:
        """An id and its place are in the same year."""
        return torch.searchsorted(self.shuffles.starts, numbers, right=True) - 1


@dataclass(frozen=True)
class Plan:
    """Everything that is decided before any node is drawn."""

    seed: int
    papers: Layout
    authors: Layout
    sizes: tuple[int, int, int]
    fields: Tensor  # (topics + fields,) the field of each topic, then the first topic of each field
    field_starts: Tensor  # (fields + 1,)
    labelled_starts: Tensor  # (cells,) the first place of each cell that has a label
    labelled_counts: Tensor  # (cells,) how many have one

    @classmethod
    def of(cls, scale: float, *, seed: int, device: torch.device) -> Plan:
        num_papers = max(NUM_YEARS, round(NUM_PAPERS * scale))
        num_authors = max(NUM_YEARS, round(NUM_AUTHORS * scale))
        num_institutions = max(1, round(NUM_INSTITUTIONS * scale))
        shares = topic_shares(seed)
        field_starts = np.arange(NUM_FIELDS + 1) * NUM_CLASSES // NUM_FIELDS
        fields = np.repeat(np.arange(NUM_FIELDS), np.diff(field_starts))
        papers = Layout.of(num_papers, shares, seed=child_seed(seed, 1), device=device)
        starts, counts = papers.starts[:-1], papers.starts.diff()
        labelled = shares / shares.sum(axis=1, keepdims=True) * labels_by_year()[:, None] * (num_papers / NUM_PAPERS)
        ends = np.floor(np.cumsum(labelled.reshape(-1)))
        wanted = torch.from_numpy(np.diff(ends, prepend=0).astype(np.int64)).to(device)
        return cls(
            seed=seed,
            papers=papers,
            authors=Layout.of(num_authors, shares, seed=child_seed(seed, 2), device=device),
            sizes=(num_papers, num_authors, num_institutions),
            fields=torch.from_numpy(fields).to(device),
            field_starts=torch.from_numpy(field_starts).to(device),
            labelled_starts=starts + counts // 2,
            labelled_counts=torch.minimum(wanted, counts - counts // 2),
        )

    @property
    def device(self) -> torch.device:
        return self.fields.device

    def has_label(self, papers: Tensor) -> Tensor:
        """Whether papers, by their ids, are labelled."""
        place = self.papers.place_of(papers)
        cell = torch.searchsorted(self.papers.starts, place, right=True) - 1
        offset = place - self.labelled_starts[cell]
        return (offset >= 0) & (offset < self.labelled_counts[cell])

    def branch(self, *path: int) -> int:
        return child_seed(self.seed, *path)


def topic_shares(seed: int) -> Table:
    """(years, topics) the part of all papers in each cell: more every year, topics waxing and waning."""
    topics = np.arange(NUM_CLASSES, dtype=np.int64)
    order = np.argsort(hash32(topics, child_seed(seed, 3)))  # which topics are large
    size = (1.0 + np.argsort(order)) ** -_ZIPF
    trend = hash32(topics, child_seed(seed, 4)) * 2.0**-31 - 1.0
    years = (np.arange(NUM_YEARS) - NUM_YEARS / 2)[:, None]
    shares = size * np.exp(trend * years / 20.0)
    shares = shares / shares.sum(axis=1, keepdims=True) * _GROWTH**years
    result: Table = shares / shares.sum()
    return result


def labels_by_year() -> Table:
    """(years,) labelled papers of the full graph: the published parts; before, each year a little fewer."""
    last_train = VAL_YEAR - 1 - FIRST_YEAR
    counts = np.zeros(NUM_YEARS)
    counts[: last_train + 1] = _LABELLED_RATIO ** np.arange(last_train, -1, -1)
    counts *= NUM_TRAIN / counts.sum()
    counts[VAL_YEAR - FIRST_YEAR], counts[TEST_YEAR - FIRST_YEAR] = NUM_VAL, NUM_TEST
    return counts


def centroids(plan: Plan, num_features: int) -> Tensor:
    """(years, topics, F) where the features of a topic's papers lie in a year: near their field, and moving."""
    field = signs(plan.branch(5), NUM_FIELDS, num_features)[plan.fields.cpu().numpy()]
    topic = signs(plan.branch(6), NUM_CLASSES, num_features)
    drift = signs(plan.branch(7), NUM_CLASSES, num_features)
    when = (np.arange(NUM_YEARS) / (NUM_YEARS - 1) * 2.0 - 1.0)[:, None, None]
    return torch.from_numpy(field + 0.7 * topic + 0.5 * when * drift).float().to(plan.device)
