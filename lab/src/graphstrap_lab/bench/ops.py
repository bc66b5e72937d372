"""`graphstrap bench ops`: each part of a training step against its floor, and the whole step against their sum.

Parts run at a dataset's shape, in turn; on CUDA captured, as they are in training, so that launching does not count.
The time of a backward pass is that of both passes less that of the forward pass. Drawing a view is what a view that has
not been used before adds to the propagation forward and back. Parts that share a cache in turn can be faster here than
within a step.
"""

from __future__ import annotations

import statistics
from typing import Any

import torch

from graphstrap.ops.precision import resolve_precision
from graphstrap_lab.bench.floors import Floor, Floors, together
from graphstrap_lab.bench.graphs import load_with_recipe
from graphstrap_lab.bench.parts import Part, parts_of_step
from graphstrap_lab.bench.rates import Rates
from graphstrap_lab.bench.sides import ours
from graphstrap_lab.bench.timing import captured, time_in_turn

_CALLS_IN_A_CAPTURE = {"cpu": 1, "cuda": 8}
_ROUND_SECONDS = 0.02


def measure_parts(
    name: str, *, device: torch.device, rates: Rates, rounds: int, precision: str | None = None
) -> list[dict[str, Any]]:
    """One row for each part, then one for the whole step."""
    graph, recipe = load_with_recipe(name, precision=precision)
    chosen = resolve_precision(recipe.train.precision, device)
    element_bytes = 2 if chosen == "bf16" and device.type == "cuda" else 4
    if chosen not in rates.flops_per_second:
        chosen = "fp32"  # TF32 on a CPU
    on_device = graph.to(device)
    floors = Floors(on_device, recipe, rates, chosen, element_bytes)
    parts = list(parts_of_step(on_device, recipe, floors=floors))
    times = _time_parts(parts, device=device, rounds=rounds)
    take_step = ours(graph, recipe)(device)
    step_ms = time_in_turn({"step": lambda: take_step(1)}, rounds=rounds, device=device)["step"].median_ms
    shown = [part for part in parts if part.per_step]
    rows = [_row(part.name, times[part.name], part.floor, per_step=part.per_step) for part in shown]
    whole = together(*(part.floor for part in shown for _ in range(part.per_step)))
    rows.append(_row("whole step", step_ms, whole, per_step=1))
    return [{"dataset": name, "device": device.type, "precision": chosen, **row} for row in rows]


def _time_parts(parts: list[Part], *, device: torch.device, rounds: int) -> dict[str, float]:
    """Milliseconds of one call of each part, by name; what is to be taken off is taken off within each round."""
    times = _CALLS_IN_A_CAPTURE[device.type]
    calls = {part.name: captured(part.call, device=device, times=times) for part in parts}
    found = time_in_turn(calls, rounds=rounds, device=device, round_seconds=_ROUND_SECONDS)
    medians = {}
    for part in parts:
        taken_off = found[part.less].rounds_ms if part.less else (0.0,) * rounds
        alone = [whole - less for whole, less in zip(found[part.name].rounds_ms, taken_off, strict=True)]
        medians[part.name] = max(0.0, statistics.median(alone)) / times
    return medians


def _row(name: str, ms: float, floor: Floor, *, per_step: int) -> dict[str, Any]:
    floor_ms = floor.seconds * 1e3
    return {
        "part": name,
        "per_step": per_step,
        "ms": ms,
        "flops": floor.flops,
        "bytes": floor.num_bytes,
        "floor_ms": floor_ms,
        "times_floor": ms / floor_ms,
    }
