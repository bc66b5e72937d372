"""Who cites, writes and belongs to whom: each relation drawn for the nodes on one of its sides, from their ids alone.

    cites       for a paper: about 11 older papers, mostly of its topic and of recent years; the first places of a
                (year, topic) are cited most, by a power law; a labelled paper cites a labelled one every fourth time
    writes      for a paper: one author whose first paper it is, and 2.2 others on average, some of them prolific
    affiliated  for an author: an institution for every third of them, large ones first, each topic with its own order

A draw is a hash of (node, number of the draw, what is drawn): chunks and devices make no difference.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor

from graphstrap.generate._draw import Table, below, by_quantile, skewed, uniform
from graphstrap.generate._plan import NUM_CLASSES, Layout, Plan

MAX_DRAWS = 256  # of one node

# Chosen so that the numbers of edges are MAG240M's (docs/generated.md).
_UNCITING = 0.30  # papers without references
_REFERENCES, _REFERENCES_SPREAD = 11.3, 0.9  # of the others: median-like size and spread of a log-normal
_COAUTHORS, _COAUTHORS_SPREAD = 1.785, 0.9
_AFFILIATIONS = (0.6992, 0.2468, 0.044, 0.010)  # chance of 0, 1, 2, 3
_CITED_POWER, _AUTHOR_POWER, _INSTITUTION_POWER = 3.0, 2.0, 2.0
_SAME_TOPIC, _SAME_FIELD = 0.70, 0.88  # up to the first: the same topic; up to the second: its field; else any

_AMONG_LABELLED = 0.25

Draw = Callable[[Plan, Tensor], tuple[Tensor, Tensor]]


def draw_cites(plan: Plan, papers: Tensor) -> tuple[Tensor, Tensor]:
    """(draws of each paper, the paper cited by each draw, -1 for none). Cited papers have smaller ids."""
    branch = plan.branch(10)
    counts = by_quantile(uniform(papers, branch), _table("references", plan.device))
    owner, keys = _spread(papers, counts)
    year, topic = plan.papers.cell_of(papers)
    year, topic = year[owner], topic[owner]
    other = _other_topic(plan, topic, keys, branch)
    lag = by_quantile(uniform(keys, branch + 1), _table("lags", plan.device))
    then = year - lag
    then = torch.where(then < 0, below(uniform(keys, branch + 2), year + 1), then)
    u = uniform(keys, branch + 3)
    cited = _member(plan.papers, then, other, u, _CITED_POWER)
    cell = then * plan.papers.num_topics + other
    place = plan.labelled_starts[cell] + below(u, plan.labelled_counts[cell].clamp(min=1))
    among = (
        plan.has_label(papers)[owner] & (plan.labelled_counts[cell] > 0) & (uniform(keys, branch + 6) < _AMONG_LABELLED)
    )
    cited = torch.where(among, plan.papers.id_of(place), cited)
    return counts, torch.where(cited < papers[owner], cited, -1)


def draw_writers(plan: Plan, papers: Tensor) -> tuple[Tensor, Tensor]:
    """(draws of each paper, the author of each draw, -1 for none)."""
    branch = plan.branch(11)
    counts = 1 + by_quantile(uniform(papers, branch), _table("coauthors", plan.device))
    owner, keys = _spread(papers, counts)
    is_first = keys % MAX_DRAWS == 0
    num_papers, num_authors, _ = plan.sizes
    places = plan.papers.place_of(papers)
    debut = plan.authors.id_of(places * num_authors // num_papers)
    year, topic = plan.papers.cell_of(papers)
    year, topic = year[owner], topic[owner]
    other = _other_topic(plan, topic, keys, branch)
    began = (year - by_quantile(uniform(keys, branch + 1), _table("careers", plan.device))).clamp(min=0)
    author = _member(plan.authors, began, other, uniform(keys, branch + 3), _AUTHOR_POWER)
    return counts, torch.where(is_first, debut[owner], author)


def draw_institutions(plan: Plan, authors: Tensor) -> tuple[Tensor, Tensor]:
    """(draws of each author, the institution of each draw)."""
    branch, num_institutions = plan.branch(12), plan.sizes[2]
    counts = by_quantile(uniform(authors, branch), _table("affiliations", plan.device))
    owner, keys = _spread(authors, counts)
    rank = below(skewed(uniform(keys, branch + 1), _INSTITUTION_POWER), num_institutions)
    _, topic = plan.authors.cell_of(authors)
    own_order = uniform(keys, branch + 2) < 0.5
    shift = torch.where(own_order, topic[owner] * num_institutions // NUM_CLASSES, 0)
    return counts, (rank + shift) % num_institutions


def _spread(nodes: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """For each draw: whose it is, as a place in `nodes`, and a number of its own."""
    owner = torch.repeat_interleave(torch.arange(len(nodes), device=nodes.device), counts)
    number = torch.arange(len(owner), device=nodes.device) - (counts.cumsum(0) - counts)[owner]
    return owner, nodes[owner] * MAX_DRAWS + number


def _other_topic(plan: Plan, topic: Tensor, keys: Tensor, branch: int) -> Tensor:
    """Mostly the same topic, else one of its field, else any."""
    which, u = uniform(keys, branch + 4), uniform(keys, branch + 5)
    start, end = plan.field_starts[plan.fields[topic]], plan.field_starts[plan.fields[topic] + 1]
    in_field, anywhere = start + below(u, end - start), below(u, NUM_CLASSES)
    return torch.where(which < _SAME_TOPIC, topic, torch.where(which < _SAME_FIELD, in_field, anywhere))


def _member(layout: Layout, year: Tensor, topic: Tensor, u: Tensor, power: float) -> Tensor:
    """A node of a (year, topic), the first places most often; -1 where there is none."""
    cell = year * layout.num_topics + topic
    start = layout.starts[cell]
    count = layout.starts[cell + 1] - start
    place = start + below(skewed(u, power), count.clamp(min=1))
    return torch.where(count > 0, layout.id_of(place.clamp(max=int(layout.starts[-1]) - 1)), -1)


def _table(name: str, device: torch.device) -> Tensor:
    return torch.from_numpy(_tables()[name]).to(device)


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
