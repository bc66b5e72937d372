"""The named protocols: which there are, what one says of itself, and what comes out.

A protocol is a class with a name. Its attributes say what it needs; nothing else asks for its name. An installed
package adds one by an entry point of the group `graphstrap.protocols`; in a program the decorator is enough:

    @PROTOCOLS.register("mine")
    class Mine(Protocol):
        title = "Linear probe, my own splits"

        def evaluate(self, tasks):
            return [self.summary("accuracy", ..., "what was done") for task in tasks]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from graphstrap.errors import InputError
from graphstrap.io.registry import Registry

if TYPE_CHECKING:
    from numpy.random import Generator

    from graphstrap.evaluation.task import Index, Split, Task
    from graphstrap.graph import Graph

_OF_EMBEDDINGS = ("paper", "reference", "public", "adamw", "adamw-reference", "auc", "knn", "clustering")
_MODULES = {**dict.fromkeys(_OF_EMBEDDINGS, "graphstrap.evaluation.protocols"), "links": "graphstrap.api.estimator"}

PROTOCOLS: Registry[type[Protocol]] = Registry("protocol", group="graphstrap.protocols", own=_MODULES)


@dataclass(frozen=True)
class Evaluation:
    """The outcome of a protocol; its text always names the protocol and what it did.

    Args:
        protocol: its name.
        metric: what `mean` is, such as "accuracy"; all figures are in percent.
        mean: over the runs.
        std: of the runs (division by their number), as the reference code computes it.
        runs: one figure for each.
        detail: what was done.
        val_runs: on validation nodes, where the protocol has chosen something by them.

    Example:
        >>> print(evaluate(h, graph, protocol="paper"))  # doctest: +SKIP
        accuracy 92.95 ± 0.50 (paper: fit on 10 %, C chosen on 10 %, tested on 80 %, 5 random splits)
    """

    protocol: str
    metric: str
    mean: float
    std: float
    runs: tuple[float, ...]
    detail: str
    val_runs: tuple[float, ...] = ()

    @classmethod
    def of_runs(
        cls, protocol: str, metric: str, runs: Sequence[float], detail: str, val_runs: Sequence[float] = ()
    ) -> Self:
        """The mean and the deviation of `runs`, which are in percent."""
        import numpy as np  # here, because the command line reads names from this module at its start

        return cls(protocol, metric, float(np.mean(runs)), float(np.std(runs)), tuple(runs), detail, tuple(val_runs))

    def to_dict(self) -> dict[str, str | float | list[float]]:
        return {
            "protocol": self.protocol,
            "metric": self.metric,
            "mean": self.mean,
            "std": self.std,
            "runs": list(self.runs),
            **({"val_runs": list(self.val_runs)} if self.val_runs else {}),
        }

    def __str__(self) -> str:
        return f"{self.metric} {self.mean:.2f} ± {self.std:.2f} ({self.protocol}: {self.detail})"


def pool_evaluations(evaluations: Sequence[Evaluation]) -> Evaluation:
    """All runs of several seeds as one evaluation; its deviation is that of the runs."""
    first = evaluations[0]
    if len(evaluations) == 1:
        return first
    runs, on_val = ([run for one in evaluations for run in getattr(one, name)] for name in ("runs", "val_runs"))
    return Evaluation.of_runs(first.protocol, first.metric, runs, f"{first.detail}, {len(evaluations)} seeds", on_val)


class Protocol:
    """One way to say how good embeddings are.

    Attributes:
        name: by which it is registered.
        title: its heading in a report.
        needs_labels: it compares with labels.
        takes_several_labels: a node may have several of them.
        uses_published_splits: it tests on the splits that came with the graph, if there are any.
        draw: makes a random split of others, `tenths` or `fifths`; None where there are only published ones.
        trains_anew: it takes a model instead of embeddings: `score(model, graph, ...)`, not `evaluate(tasks)`.
        is_costly: one run takes as long as ten of a linear probe; a report makes one.
    """

    title = ""
    needs_labels = True
    takes_several_labels = False
    uses_published_splits = False
    draw: ClassVar[Callable[[Index, Generator], Split] | None] = None
    trains_anew = False
    is_costly = False

    def __init__(self, name: str) -> None:
        self.name = name

    def evaluate(self, tasks: Sequence[Task]) -> list[Evaluation]:
        """The evaluation of each of the tasks, which differ in their embeddings and their seed."""
        return [self.evaluate_one(task) for task in tasks]

    def evaluate_one(self, task: Task) -> Evaluation:
        """The same for one, where nothing is won by solving all together."""
        raise NotImplementedError

    def score(self, model: Any, graph: Graph, **options: Any) -> dict[str, Evaluation]:
        """For a protocol that trains anew: the evaluation of each candidate, the trained one last."""
        raise InputError(f"the protocol {self.name!r} does not train: call evaluate(h, graph, protocol={self.name!r})")

    def splits(self, task: Task) -> list[Split]:
        """What each run fits on, chooses on and tests on; an InputError where the labels do not allow it."""
        draw = type(self).draw
        if draw is None or (self.uses_published_splits and task.splits is not None):
            return task.published_splits(self.name)
        return task.random_splits(draw)

    def num_tested(self, task: Task) -> int:
        """How many nodes the first run is tested on."""
        return len(self.splits(task)[0].test)

    def summary(
        self, metric: str, shares: Sequence[float], detail: str, *, val_shares: Sequence[float] = ()
    ) -> Evaluation:
        """The outcome of runs whose figures are given from 0 to 1."""
        runs, on_val = ([100.0 * share for share in found] for found in (shares, val_shares))
        return Evaluation.of_runs(self.name, metric, runs, detail, on_val)


def find_protocol(name: str) -> Protocol:
    """The protocol of this name; an InputError lists those that there are."""
    return PROTOCOLS.get(name)(name)
