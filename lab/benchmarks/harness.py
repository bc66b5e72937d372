"""What the scripts share: a command line made from a function, rows that are in their file at once, clocks and limits.

`run(main)` at the end of a script calls `main` with what the command line says. Every keyword argument is an option, of
the type of its annotation; arguments without a default are words. `--help` shows the script's first lines.
"""

from __future__ import annotations

import argparse
import inspect
import json
import resource
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import torch

import graphstrap as gs
from graphstrap.api.embed import embed_seeds
from graphstrap.api.estimator import random_init
from graphstrap.evaluation.protocols import evaluate_many
from graphstrap.io.datasets import describe
from graphstrap.ops import resolve_device
from graphstrap_lab.bench.measure import Call, PeakMemory, time_in_turn
from graphstrap_lab.bench.record import kept_rows, write_record
from graphstrap_lab.reproduce.deadline import Deadline, TimeUpError

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / "lab" / "benchmarks" / "results"
GRAPHSTRAP = [sys.executable, "-m", "graphstrap"]
Row = dict[str, Any]


def run(main: Callable[..., object]) -> None:
    """Call `main` as the command line says."""
    doc = sys.modules[main.__module__].__doc__
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    hints = get_type_hints(main, include_extras=True)
    for name, parameter in inspect.signature(main).parameters.items():
        if parameter.default is parameter.empty:
            parser.add_argument(name, **_parsing(hints[name]))
        else:
            flag = f"--{name.strip('_').replace('_', '-')}"
            shown = "" if parameter.default in (None, False) else "[default: %(default)s]"
            parser.add_argument(flag, dest=name, default=parameter.default, help=shown, **_parsing(hints[name]))
    main(**vars(parser.parse_args()))


def _parsing(hint: Any) -> dict[str, Any]:
    """How argparse reads a value of this type: one, several, or none at all for a switch. `Annotated` with the values
    that it may have."""
    if hint is bool:
        return {"action": "store_true"}
    origin, inner = get_origin(hint), [one for one in get_args(hint) if one is not NoneType]
    if origin is Annotated:
        return {**_parsing(inner[0]), "choices": [*inner[1]]}
    if origin is Sequence:
        return {**_parsing(inner[0]), "nargs": "*"}
    return _parsing(inner[0]) if inner else {"type": hint}


def command() -> str:
    """The command that this process was started by."""
    return shlex.join(["python", f"lab/benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])


class Record:
    """The rows of a script, each printed and, where there is a file for them, on the disk as soon as it is known.

    With `options`, the rows of an earlier run that had the same ones are kept, so that the same command goes on.
    """

    def __init__(self, to: Path | None, bench: str, *, options: Row | None = None, **rest: Any) -> None:
        self.to, self.bench, self.rest = to, bench, rest
        self.rows: list[Row] = []
        if options is not None:
            self.rest["options"] = options = json.loads(json.dumps(options))  # as it comes back from the file
            self.rows = kept_rows(to, options=options) if to is not None else []

    def has(self, **wanted: Any) -> bool:
        return any(wanted.items() <= row.items() for row in self.rows)

    def add(self, row: Row) -> None:
        self.rows.append(row)
        print(json.dumps(row), flush=True)
        self.write()

    def write(self, **rest: Any) -> None:
        """With what else there is to say of the rows now."""
        self.rest |= rest
        if self.to is not None:
            write_record(self.to, bench=self.bench, command=command(), rows=self.rows, **self.rest)


def options_of(settings: Mapping[str, Any]) -> list[str]:
    """As the options of a `graphstrap` command."""
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


@contextmanager
def within(minutes: float | None) -> Iterator[None]:
    """The block is left when so many minutes are over; None for no limit."""
    try:
        with Deadline(minutes).enforced():
            yield
    except TimeUpError:
        print("stopped: the time is up; the same command goes on from here")


def now(device: torch.device) -> float:
    """Seconds, once the device has done what it was told to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def peak_bytes(device: torch.device) -> int:
    """Of this process so far."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def compare(calls: Mapping[str, Call], *, rounds: int, device: torch.device) -> Row:
    """Ours beside others': medians over rounds that take turns, peak memory beyond what was there, and by how much the
    first is faster and smaller than the second. What does not fit has no numbers."""
    peaks: dict[str, int | None] = {}
    for name, call in calls.items():
        try:
            call()  # what is worked out once is there now
            with PeakMemory(device) as memory:
                call()
            peaks[name] = memory.peak_bytes
        except torch.cuda.OutOfMemoryError:
            peaks[name] = None
    fitting = {name: call for name, call in calls.items() if peaks[name] is not None}
    row: Row = {f"{name}_bytes": peak for name, peak in peaks.items()}
    for name, timing in time_in_turn(fitting, rounds=rounds, device=device).items():
        row |= {f"{name}_ms": timing.median_ms, f"{name}_iqr_ms": timing.iqr_ms}
    first, second = list(calls)[:2]
    if second in fitting:
        row["speedup"] = row[f"{second}_ms"] / row[f"{first}_ms"]
        row["memory_ratio"] = row[f"{first}_bytes"] / max(1, row[f"{second}_bytes"])
    return row


def homogeneous_graphs() -> list[str]:
    """The real ones on this disk."""
    names = [info.name for info in describe() if info.on_disk]
    return [name for name in names if not name.startswith("hetero") and name != "arxiv-like"]


def beside_random_init(
    estimator: gs.Embedder, graph: gs.Graph, *, seeds: Sequence[int], split_seeds: Sequence[int], protocol: str
) -> Row:
    """What trained and what untrained encoders reach, seed by seed, on the same splits; and the seconds of training."""
    recipe, device = estimator.resolve(graph), resolve_device(estimator.device)
    started = time.perf_counter()
    models = gs.fit_seeds(estimator, graph, seeds=seeds)
    seconds = round((time.perf_counter() - started) / len(seeds), 2)
    trained = embed_seeds([model.model_ for model in models], graph, device=device)
    drawn = [random_init(graph, recipe, seed=seed, device=str(device)) for seed in seeds]
    tables = [*(torch.from_numpy(h).to(device) for h in drawn), *trained]
    means = [one.mean for one in evaluate_many(tables, graph, protocol=protocol, seeds=[*split_seeds, *split_seeds])]
    return {"random_init": means[: len(seeds)], "bgrl": means[len(seeds) :], "train_seconds": seconds}
