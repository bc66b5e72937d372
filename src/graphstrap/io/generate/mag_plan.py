"""The plan of a MAG-like graph: how many of what, in which year and topic. Small tables, made on the CPU.

Papers stand in the order of years, so that ids grow with time, and within a year in a scattered order. What a paper
is follows from its id: id -> place in its year -> (year, topic), by tables of where each topic of each year starts.
Authors are laid out the same way, by the year of their first paper and their topic. The labelled papers of a cell stand
side by side in its middle, where papers are neither the most nor the least cited.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphstrap.graph.views import child_seed, hash32

# Drawing without a generator: every draw is a hash of what it is for, so any part of a graph can be made alone.
#
# Uniform numbers become skewed ones by products only, which have the same bits on every device.

Table = np.ndarray[Any, Any]


def uniform(ids: Tensor, seed: int) -> Tensor:
    """float64 in (0, 1), one for each non-negative id."""
    word: Tensor = hash32(ids, seed)
    return (word.double() + 0.5) * 2.0**-32


def skewed(u: Tensor, power: int) -> Tensor:
    """u ** power, as products."""
    result = u
    for _ in range(power - 1):
        result = result * u
    return result


def below(u: Tensor, count: Tensor | int) -> Tensor:
    """u in (0, 1) to an integer from 0 up to, but without, `count`."""
    return torch.minimum((u * count).long(), torch.as_tensor(count, device=u.device) - 1)


def signs(seed: int, *shape: int) -> Table:
    """An array of +1 and -1."""
    word: Table = hash32(np.arange(math.prod(shape), dtype=np.int64), seed)
    result: Table = ((word >> 7) & 1).reshape(shape) * 2.0 - 1.0
    return result


@dataclass(frozen=True)
class Shuffle:
    """A bijection of each of several ranges onto itself that scatters neighbours: i -> (a i + b) mod n in a range."""

    starts: Tensor  # (ranges + 1,)
    counts: Tensor  # (ranges,) at least 1
    factors: Tensor
    inverses: Tensor
    shifts: Tensor

    @classmethod
    def of(cls, starts: Table, seed: int, *, device: torch.device) -> Shuffle:
        counts = np.maximum(1, np.diff(starts)).tolist()
        factors = [_coprime(count) for count in counts]
        inverses = [pow(factor, -1, count) if count > 1 else 0 for factor, count in zip(factors, counts, strict=True)]
        shifts = [child_seed(seed, number) % count for number, count in enumerate(counts)]
        return cls(
            *(torch.tensor(values, device=device) for values in (starts.tolist(), counts, factors, inverses, shifts))
        )

    def forth(self, numbers: Tensor, ranges: Tensor) -> Tensor:
        start, count = self.starts[ranges], self.counts[ranges]
        return start + ((numbers - start) * self.factors[ranges] + self.shifts[ranges]) % count

    def back(self, numbers: Tensor, ranges: Tensor) -> Tensor:
        start, count = self.starts[ranges], self.counts[ranges]
        return start + ((numbers - start - self.shifts[ranges]) % count * self.inverses[ranges]) % count


def _coprime(count: int) -> int:
    factor = max(1, int(count * 0.6180339887))
    while math.gcd(factor, count) != 1:
        factor += 1
    return factor


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

    def cell_of(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The year, from 0, and the topic of each id."""
        cell = torch.searchsorted(self.starts, self.place_of(ids), right=True) - 1
        return cell // NUM_CLASSES, cell % NUM_CLASSES

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


# Who cites, writes and belongs to whom: each relation drawn for the nodes on one of its sides, from their ids alone.
#
# cites       for a paper: about 11 older papers, mostly of its topic and of recent years; the first places of a
# (year, topic) are cited most, by a power law; a labelled paper cites a labelled one every fourth time
# writes      for a paper: one author whose first paper it is, and 2.2 others on average, some of them prolific
# affiliated  for an author: an institution for every third of them, large ones first, each topic with its own order
#
# A draw is a hash of (node, number of the draw, what is drawn): chunks and devices make no difference.


MAX_DRAWS = 256  # of one node

# Chosen so that the numbers of edges are MAG240M's (docs/generated.md).
_UNCITING = 0.30  # papers without references
_REFERENCES, _REFERENCES_SPREAD = 11.3, 0.9  # of the others: median-like size and spread of a log-normal
_COAUTHORS, _COAUTHORS_SPREAD = 1.785, 0.9
_AFFILIATIONS = (0.6992, 0.2468, 0.044, 0.010)  # chance of 0, 1, 2, 3
_CITED_POWER, _AUTHOR_POWER, _INSTITUTION_POWER = 3, 2, 2
_SAME_TOPIC, _SAME_FIELD = 0.70, 0.88  # up to the first: the same topic; up to the second: its field; else any

_AMONG_LABELLED = 0.25

Draw = Callable[[Plan, Tensor], tuple[Tensor, Tensor]]


def draw_cites(plan: Plan, papers: Tensor) -> tuple[Tensor, Tensor]:
    """(draws of each paper, the paper cited by each draw, -1 for none). Cited papers have smaller ids."""
    branch = plan.branch(10)
    counts = _pick("references", papers, branch)
    owner, keys, year, topic = _spread(plan.papers, papers, counts)
    other = _other_topic(plan, topic, keys, branch)
    lag = _pick("lags", keys, branch + 1)
    then = year - lag
    then = torch.where(then < 0, below(uniform(keys, branch + 2), year + 1), then)
    u = uniform(keys, branch + 3)
    cited = _member(plan.papers, then, other, u, _CITED_POWER)
    cell = then * NUM_CLASSES + other
    place = plan.labelled_starts[cell] + below(u, plan.labelled_counts[cell].clamp(min=1))
    among = (
        plan.has_label(papers)[owner] & (plan.labelled_counts[cell] > 0) & (uniform(keys, branch + 6) < _AMONG_LABELLED)
    )
    cited = torch.where(among, plan.papers.id_of(place), cited)
    return counts, torch.where(cited < papers[owner], cited, -1)


def draw_writers(plan: Plan, papers: Tensor) -> tuple[Tensor, Tensor]:
    """(draws of each paper, the author of each draw, -1 for none)."""
    branch = plan.branch(11)
    counts = 1 + _pick("coauthors", papers, branch)
    owner, keys, year, topic = _spread(plan.papers, papers, counts)
    is_first = keys % MAX_DRAWS == 0
    num_papers, num_authors, _ = plan.sizes
    places = plan.papers.place_of(papers)
    debut = plan.authors.id_of(places * num_authors // num_papers)
    other = _other_topic(plan, topic, keys, branch)
    began = (year - _pick("careers", keys, branch + 1)).clamp(min=0)
    author = _member(plan.authors, began, other, uniform(keys, branch + 3), _AUTHOR_POWER)
    return counts, torch.where(is_first, debut[owner], author)


def draw_institutions(plan: Plan, authors: Tensor) -> tuple[Tensor, Tensor]:
    """(draws of each author, the institution of each draw)."""
    branch, num_institutions = plan.branch(12), plan.sizes[2]
    counts = _pick("affiliations", authors, branch)
    _, keys, _, topic = _spread(plan.authors, authors, counts)
    rank = below(skewed(uniform(keys, branch + 1), _INSTITUTION_POWER), num_institutions)
    own_order = uniform(keys, branch + 2) < 0.5
    shift = torch.where(own_order, topic * num_institutions // NUM_CLASSES, 0)
    return counts, (rank + shift) % num_institutions


def _spread(layout: Layout, nodes: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """For each draw: whose it is, as a place in `nodes`; a number of its own; and the node's year and topic."""
    owner = torch.repeat_interleave(torch.arange(len(nodes), device=nodes.device), counts)
    number = torch.arange(len(owner), device=nodes.device) - (counts.cumsum(0) - counts)[owner]
    year, topic = layout.cell_of(nodes)
    return owner, nodes[owner] * MAX_DRAWS + number, year[owner], topic[owner]


def _other_topic(plan: Plan, topic: Tensor, keys: Tensor, branch: int) -> Tensor:
    """Mostly the same topic, else one of its field, else any."""
    which, u = uniform(keys, branch + 4), uniform(keys, branch + 5)
    start, end = plan.field_starts[plan.fields[topic]], plan.field_starts[plan.fields[topic] + 1]
    in_field, anywhere = start + below(u, end - start), below(u, NUM_CLASSES)
    return torch.where(which < _SAME_TOPIC, topic, torch.where(which < _SAME_FIELD, in_field, anywhere))


def _member(layout: Layout, year: Tensor, topic: Tensor, u: Tensor, power: int) -> Tensor:
    """A node of a (year, topic), the first places most often; -1 where there is none."""
    cell = year * NUM_CLASSES + topic
    start = layout.starts[cell]
    count = layout.starts[cell + 1] - start
    place = start + below(skewed(u, power), count.clamp(min=1))
    return torch.where(count > 0, layout.id_of(place.clamp(max=int(layout.starts[-1]) - 1)), -1)


def _pick(table: str, ids: Tensor, seed: int) -> Tensor:
    """For each id an entry of a table of equally likely values."""
    values = torch.from_numpy(_tables()[table]).to(ids.device)
    return values[below(uniform(ids, seed), len(values))]


@cache
def _tables() -> dict[str, Table]:
    """Equally likely values: quantiles of the distributions, 4,096 of each."""
    u = (np.arange(4096) + 0.5) / 4096
    normal = _normal_quantiles(u)
    references = np.floor(
        _REFERENCES * np.exp(_REFERENCES_SPREAD * _normal_quantiles(u.clip(_UNCITING) - _UNCITING, 1 - _UNCITING))
    )
    lags = np.floor(-np.log(1 - u) * 6.5)
    return {
        "references": np.where(u < _UNCITING, 0, references.clip(1, MAX_DRAWS - 1)).astype(np.int64),
        "coauthors": np.floor(_COAUTHORS * np.exp(_COAUTHORS_SPREAD * normal)).clip(0, MAX_DRAWS - 2).astype(np.int64),
        "affiliations": np.searchsorted(np.cumsum(_AFFILIATIONS)[:-1], u).astype(np.int64),
        "lags": lags.astype(np.int64),
        "careers": np.floor(-np.log(1 - u) * 6.0).astype(np.int64),
    }


def _normal_quantiles(u: Table, total: float = 1.0) -> Table:
    from scipy.special import ndtri

    result: Table = ndtri((u / total).clip(1 / 8192, 1 - 1 / 8192))
    return result
