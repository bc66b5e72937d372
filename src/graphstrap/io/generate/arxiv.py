"""A graph in the shape of ogbn-arxiv, made from nothing but a seed.

    arxiv_like    169,343 nodes, 1,166,243 undirected edges, 128 features, 40 classes, split by year

A class is a few communities. A node draws by a power law how many edges it has, and then, for each, where it leads:
into its community, into its class or anywhere, again to a node in proportion to its degree. Features are the class's
mean and the community's mean under noise that hides them from a single node, not from the average over its neighbours.
Nothing is learned here about a method's accuracy on the real graph: what can be measured is time, memory, and whether
training finds what was planted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from graphstrap.graph import Graph, Splits
from graphstrap.graph.graph import splits_from_masks

Array = np.ndarray[Any, Any]

DEGREE_POWER = 0.6  # the node of rank r has a degree in proportion to r ** -0.6: nodes of degree k fall as k ** -2.67
CLASS_POWER = 0.8  # the class of rank r has a size in proportion to r ** -0.8
COMMUNITIES_PER_CLASS = 10
WITHIN_COMMUNITY, WITHIN_CLASS = 0.45, 0.2  # of the edges; the others lead anywhere
CLASS_SIGNAL, COMMUNITY_SIGNAL = 0.6, 1.0  # lengths of the means; the noise has variance 1 in every column
FEATURE_SCALE = 0.1

ARXIV_NODES, ARXIV_EDGES = 169_343, 1_166_243
ARXIV_PARTS = (90_941 / ARXIV_NODES, 29_799 / ARXIV_NODES)  # of train (until 2017) and val (2018); test is later


def arxiv_like(*, seed: int = 0, num_nodes: int = ARXIV_NODES, num_features: int = 128, num_classes: int = 40) -> Graph:
    """A graph of ogbn-arxiv's shape; with fewer nodes, of its shape in the small."""
    random = np.random.default_rng(seed)
    sizes = (1.0 + np.arange(num_classes)) ** -CLASS_POWER
    labels = random.choice(num_classes, num_nodes, p=sizes / sizes.sum())
    communities = labels * COMMUNITIES_PER_CLASS + random.integers(0, COMMUNITIES_PER_CLASS, num_nodes)
    weights = (1.0 + random.permutation(num_nodes)) ** -DEGREE_POWER
    num_edges = round(ARXIV_EDGES * num_nodes / ARXIV_NODES)
    source, target = draw_edges(weights, labels, communities, num_edges=num_edges, random=random)
    years, splits = _years(num_nodes, random)
    return Graph.from_edges(
        source,
        target,
        num_nodes=num_nodes,
        x=_features(labels, communities, num_features, random),
        labels=labels,
        splits=splits,
        node_times=torch.from_numpy(years),
        name="arxiv-like",
    )


def draw_edges(
    weights: Array, labels: Array, communities: Array, *, num_edges: int, random: np.random.Generator
) -> tuple[Array, Array]:
    """Exactly this many different pairs of different nodes."""
    num_nodes = len(weights)
    if num_edges > num_nodes * (num_nodes - 1) // 8:
        raise ValueError(
            f"num_edges must be at most an eighth of all ordered pairs of {num_nodes} nodes, got {num_edges}"
        )
    pairs = np.empty(0, dtype=np.int64)
    everyone = np.zeros(num_nodes, dtype=np.int64)
    while len(pairs) < num_edges:
        number = int(1.3 * (num_edges - len(pairs))) + 16
        source = _draw(weights, everyone, np.zeros(number, dtype=np.int64), random)
        kind = random.random(number)
        near, middle, far = (
            _draw(weights, groups, groups[source], random) for groups in (communities, labels, everyone)
        )
        target = np.where(kind < WITHIN_COMMUNITY, near, np.where(kind < WITHIN_COMMUNITY + WITHIN_CLASS, middle, far))
        low, high = np.minimum(source, target), np.maximum(source, target)
        pairs = np.unique(np.concatenate([pairs, (low * num_nodes + high)[low < high]]))
    pairs = random.permutation(pairs)[:num_edges]
    return pairs // num_nodes, pairs % num_nodes


def _draw(weights: Array, groups: Array, wanted: Array, random: np.random.Generator) -> Array:
    """A node of each wanted group, in proportion to its weight."""
    order = np.argsort(groups, kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(weights[order])])  # of all weights before a place
    starts = np.searchsorted(groups[order], np.arange(groups.max() + 2))  # of the groups, then the end
    first, beyond = starts[wanted], starts[wanted + 1]
    height = sums[first] + random.random(len(wanted)) * (sums[beyond] - sums[first])
    chosen: Array = order[np.clip(np.searchsorted(sums, height, side="right") - 1, first, beyond - 1)]
    return chosen


def _features(labels: Array, communities: Array, num_features: int, random: np.random.Generator) -> Array:
    def means(number: int, length: float) -> Array:
        directions = random.standard_normal((number, num_features), dtype=np.float32)
        directions *= length / np.linalg.norm(directions, axis=1, keepdims=True)
        return directions

    of_classes = means(labels.max() + 1, CLASS_SIGNAL)
    of_communities = means(communities.max() + 1, COMMUNITY_SIGNAL)
    x = random.standard_normal((len(labels), num_features), dtype=np.float32)
    x += of_classes[labels]
    x += of_communities[communities]
    x *= FEATURE_SCALE
    return x


def _years(num_nodes: int, random: np.random.Generator) -> tuple[Array, Splits | None]:
    """A year for every node, more nodes in later ones, and the split by it: until 2017, 2018, later."""
    bounds = np.round(np.cumsum(ARXIV_PARTS) * num_nodes).astype(np.int64)
    age = random.permutation(num_nodes)
    early = 2007 + np.floor(11 * np.sqrt(age / max(1, bounds[0]))).astype(np.int64)
    late = 2019 + (age >= (bounds[1] + num_nodes) // 2)
    years = np.where(age < bounds[0], early, np.where(age < bounds[1], 2018, late))
    masks = (age < bounds[0], (age >= bounds[0]) & (age < bounds[1]), age >= bounds[1])
    return years, splits_from_masks(*masks, num_nodes=num_nodes)
