"""Settings chosen without the labels that they are then tested on.

    tuning half      a fixed random half of a graph's labelled nodes
    to choose        fitted on a fifth of all labelled nodes within that half, scored on the rest of it
    to report        the splits of `reference`, tested on those of their test nodes that are in the other half

The tables test on random 80 % of all nodes, whichever half they are in: what was chosen by the first half is reported
on the other one as well, whose labels had no say.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from graphstrap.evaluation.protocols import probe_runs
from graphstrap.evaluation.task import Embeddings, Index, Split, Task, fifths, run_generator
from graphstrap.graph import Graph

NUM_TUNING_SPLITS = 3
UNTOUCHED = "untouched"  # the key of the accuracy in the ledger
_HALF_SEED = 20_220_219


def tuning_half(graph: Graph) -> Index:
    """Half of the labelled nodes, always the same ones, in random order."""
    nodes = _labelled(graph)
    return np.random.default_rng(_HALF_SEED).permutation(nodes)[: len(nodes) // 2]


def tuning_scores(tables: Sequence[Tensor], graph: Graph) -> list[float]:
    """The mean accuracy of each table within the tuning half, in percent."""
    size = len(_labelled(graph)) // 5
    mixed = [np.random.default_rng((1, run)).permutation(tuning_half(graph)) for run in range(NUM_TUNING_SPLITS)]
    splits = [Split(one[:size], one[:0], one[size:]) for one in mixed]
    tasks = [Task.of(h, graph, num_runs=NUM_TUNING_SPLITS) for h in tables]
    runs = probe_runs(tasks, [splits] * len(tasks))
    return [round(100.0 * float(np.mean(one)), 4) for one in runs]


def untouched_accuracies(
    embeddings: Sequence[Embeddings], graph: Graph, *, seeds: Sequence[int], num_runs: int
) -> list[float]:
    """As the protocol `reference` for each of the seeds, but tested on nodes outside the tuning half, in percent."""
    nodes, touched = _labelled(graph), tuning_half(graph)
    pairs = zip(embeddings, seeds, strict=True)
    tasks = [Task.of(h, graph, num_runs=num_runs, seed=seed) for h, seed in pairs]
    splits = [[fifths(nodes, run_generator(seed, run)) for run in range(num_runs)] for seed in seeds]
    unseen = [[split._replace(test=np.setdiff1d(split.test, touched)) for split in own] for own in splits]
    return [round(100.0 * float(np.mean(one)), 4) for one in probe_runs(tasks, unseen)]


def _labelled(graph: Graph) -> Index:
    assert graph.labels is not None
    return np.flatnonzero(graph.labels.cpu().numpy() >= 0)
