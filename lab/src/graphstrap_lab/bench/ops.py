"""`graphstrap bench ops`: each part of a training step against its floor, and the whole step against their sum.

Parts run at a dataset's shape, in turn; on CUDA captured, as they are in training, so that launching does not count.
The time of a backward pass is that of both passes less that of the forward pass. Drawing a view is what a view that has
not been used before adds to the propagation forward and back. Parts that share a cache in turn can be faster here than
within a step.

A floor is the least that a part must move and multiply, and the time that this takes at measured rates:

    dense product       the larger of  FLOPs / matrix rate  and  bytes / memory rate
    sparse product      gathered rows / rate of what holds the table  +  bytes streamed / memory rate
    anything else       bytes / memory rate

The cache's rate stands in for the memory's where everything that is touched fits into the cache. A rate is the best of
several tries, so that a floor made of it is one that nothing here goes below.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph import Graph, View
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.ops import project_all, propagate, propagate_all, row_cosine
from graphstrap.ops.precision import computing_in, resolve_precision
from graphstrap.run.recipe import Recipe
from graphstrap.train.step import make_optimizer
from graphstrap_lab.bench.graphs import load_with_recipe
from graphstrap_lab.bench.measure import Call, captured, time_calls, time_in_turn
from graphstrap_lab.bench.step import build_method, num_parameters, ours

PRECISIONS = ("fp32", "tf32", "bf16")
_LARGE_COPY_BYTES = {"cpu": 256 << 20, "cuda": 2 << 30}
_MATMUL_SIZE = {"cpu": 1536, "cuda": 8192}
_ASSUMED_CACHE_BYTES = 16 << 20
_TRIES = 5


@dataclass(frozen=True)
class Rates:
    """Of one device. Copied bytes count twice: read and written."""

    memory_bytes_per_second: float
    cache_bytes_per_second: float
    cache_bytes: int
    flops_per_second: dict[str, float]  # by precision, for those that the device has

    def seconds_to_move(self, num_bytes: float, *, table_bytes: float) -> float:
        """At the rate of the cache where the table that is read fits into it, at that of the memory elsewhere."""
        in_cache = table_bytes <= self.cache_bytes
        return num_bytes / (self.cache_bytes_per_second if in_cache else self.memory_bytes_per_second)


def measure_rates(device: torch.device) -> Rates:
    cache_bytes = find_cache_bytes(device)
    memory = copy_rate(_LARGE_COPY_BYTES[device.type], device=device)
    cache = copy_rate(cache_bytes // 4, device=device, times=50)
    precisions = PRECISIONS if device.type == "cuda" else ("fp32", "bf16")
    rates = {precision: matmul_rate(precision, device=device) for precision in precisions}
    return Rates(memory, max(memory, cache), cache_bytes, rates)


def copy_rate(num_bytes: int, *, device: torch.device, times: int = 1) -> float:
    """Bytes read and written in a second while one block is copied over another, `times` times in a row."""
    source = torch.zeros(num_bytes // 4, device=device)
    target = torch.empty_like(source)
    return 2 * num_bytes * times / _best_seconds(lambda: target.copy_(source), device=device, times=times)


def matmul_rate(precision: str, *, device: torch.device) -> float:
    """Floating-point operations in a second of one large square product."""
    size = _MATMUL_SIZE[device.type]
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    with computing_in("tf32" if precision == "tf32" else "fp32", device):
        return 2 * size**3 / _best_seconds(lambda: torch.mm(a, b, out=out), device=device)


def find_cache_bytes(device: torch.device) -> int:
    """The last cache in front of the memory."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).L2_cache_size)
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    found = [int(path.read_text().strip().removesuffix("K")) << 10 for path in sizes]
    return max(found, default=_ASSUMED_CACHE_BYTES)


def _best_seconds(call: Call, *, device: torch.device, times: int = 1) -> float:
    repeated = captured(call, device=device, times=times)
    time_calls(repeated, repeats=2, device=device)
    return min(time_calls(repeated, repeats=2, device=device) for _ in range(_TRIES)) / 1e3


INDEX_BYTES = 4


class Floor(NamedTuple):
    """Of one call."""

    flops: float
    num_bytes: float
    seconds: float


@dataclass(frozen=True)
class Floors:
    """Of the parts of a step on one graph, at one precision and one device's rates."""

    graph: Graph
    recipe: Recipe
    rates: Rates
    precision: str
    element_bytes: int = 4  # of activations: on a CPU they are float32 whatever products are computed in

    def propagate(self, width: int) -> Floor:
        """Every kept edge and every self-loop gathers one row; the result is written once. Backward is the same."""
        drop_probs = self.recipe.views.edge_drop_probs
        kept = self.graph.num_edges * (1.0 - sum(drop_probs) / len(drop_probs)) + self.graph.num_nodes
        return self._sparse(kept, num_rows=self.graph.num_nodes, table_rows=self.graph.num_nodes, width=width)

    def project(self, width: int, *, backward: bool = False) -> Floor:
        """X W, or X^T G for the gradient: the most frequent columns as a dense product, the others as a sparse one, cut
        where that is least."""
        x, num_nodes = self.graph.x, self.graph.num_nodes
        assert x is not None
        num_columns = int(x.shape[1])
        if not isinstance(x, SparseMatrix):
            return self.matmul(num_nodes, num_columns, width)
        num_rows, table_rows = (num_columns, num_nodes) if backward else (num_nodes, num_columns)
        counts = torch.bincount(x.indices, minlength=num_columns).sort(descending=True).values.cumsum(0).tolist()
        cuts = [(0, 0), *((hot, counts[hot - 1]) for hot in (*range(64, num_columns, 64), num_columns))]
        floors = []
        for hot, entries in cuts:
            parts = [self.matmul(num_nodes, hot, width)] if hot else []
            if hot < num_columns:
                rest = len(x.values) - entries
                parts.append(self._sparse(rest, num_rows=num_rows, table_rows=table_rows, width=width))
            floors.append(together(*parts))
        return min(floors, key=lambda floor: floor.seconds)

    def matmul(self, rows: int, inner: int, columns: int) -> Floor:
        flops = 2.0 * rows * inner * columns
        num_bytes = float((rows * inner + inner * columns + rows * columns) * self.element_bytes)
        multiply = flops / self.rates.flops_per_second[self.precision]
        return Floor(flops, num_bytes, max(multiply, self._streamed(num_bytes).seconds))

    def passes(self, count: float, *, width: int) -> Floor:
        """So many times reading or writing (N, width)."""
        return self._streamed(count * self.graph.num_nodes * width * self.element_bytes)

    def draw_view(self) -> Floor:
        """One pass over the edges, one degree written for each node."""
        return self._streamed(float(INDEX_BYTES * (self.graph.num_edges + self.graph.num_nodes)))

    def update(self, *, num_learned: int, num_averaged: int) -> Floor:
        """AdamW reads weight, gradient and two moments and writes three of them; the average reads two, writes one."""
        return self._streamed(4.0 * (7 * num_learned + 3 * num_averaged))

    def _sparse(self, entries: float, *, num_rows: int, table_rows: int, width: int) -> Floor:
        gathered = entries * width * self.element_bytes
        table = float(table_rows * width * self.element_bytes)
        streamed = self._streamed(num_rows * width * self.element_bytes + entries * INDEX_BYTES)
        seconds = self.rates.seconds_to_move(gathered, table_bytes=table) + streamed.seconds
        return Floor(2.0 * entries * width, gathered + streamed.num_bytes, seconds)

    def _streamed(self, num_bytes: float) -> Floor:
        return Floor(0.0, num_bytes, self.rates.seconds_to_move(num_bytes, table_bytes=num_bytes))


def together(*floors: Floor) -> Floor:
    """Of calls that follow each other."""
    return Floor(*map(sum, zip(*floors, strict=True)))


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


T = TypeVar("T")

# How often a step does something forward and backward. There are two views and two networks, of which one learns.
ONCE_A_VIEW = (2, 2)
IN_EACH_NETWORK = (4, 2)


@dataclass(frozen=True)
class Part:
    """`less` names a part whose time is to be taken off; a part that no step does is there for that alone."""

    name: str
    call: Call
    floor: Floor
    per_step: int
    less: str | None = None


def parts_of_step(graph: Graph, recipe: Recipe, *, floors: Floors) -> Iterator[Part]:
    """Of a graph on its device. Both views are taken to drop and mask as much as they do on average."""
    if len(graph.features) != 1:
        raise InputError(f"{graph.name} has several node types: `bench ops` measures graphs with one")
    method: Any = build_method(graph, recipe, device=graph.device)
    method.train()
    for both in _passes_of_step(graph, recipe, method, floors):
        call = _within(floors, both.call)
        upstream = torch.ones_like(call())
        there_and_back = partial(_there_and_back, both.call, both.inputs, upstream)
        yield Part(both.name, call, both.forward, per_step=both.counts[0])
        name, back = f"{both.name}, backward", _within(floors, there_and_back)
        yield Part(name, back, both.backward, per_step=both.counts[1], less=both.name)
    for part in (*_drawing(graph, recipe, floors), _update(method, recipe, floors)):
        yield replace(part, call=_within(floors, part.call))


class _Passes(NamedTuple):
    """What a step does forward and backward, each with its floor, and how often it does either."""

    name: str
    call: Callable[[], Tensor]
    inputs: Sequence[Tensor]  # that get a gradient
    forward: Floor
    backward: Floor
    counts: tuple[int, int]


def _passes_of_step(graph: Graph, recipe: Recipe, method: Any, floors: Floors) -> Iterator[_Passes]:
    online, view, num_nodes = method.online, draw_mean_view(graph, recipe), graph.num_nodes
    widths = [*recipe.encoder.hidden_sizes, recipe.encoder.embedding_size]
    table = partial(_activations, graph, floors)

    weight, other = online.input_weights[0], method.target.input_weights[0]
    size_in, width = weight.shape
    name, project = f"project {size_in} x {width}, both networks", partial(project_all, graph, view, [weight, other])
    floor = floors.project(2 * width), floors.project(width, backward=True)
    yield _Passes(name, partial(_online, project), [weight], *floor, ONCE_A_VIEW)
    for width, finish in zip(widths, online.layers, strict=True):
        h, t = table(width), table(width).detach()
        name, both = f"propagate {width}, both networks", partial(propagate_all, graph, view, [h, t])
        floor = floors.propagate(2 * width), floors.propagate(width)
        yield _Passes(name, partial(_online, both), [h], *floor, ONCE_A_VIEW)
        h, floor = table(width), (floors.passes(3, width=width), floors.passes(5, width=width))
        name, inputs = f"norm and PReLU {width}", [h, *finish.parameters()]
        yield _Passes(name, partial(finish, h, graph), inputs, *floor, IN_EACH_NETWORK)
    for weight in online.weights:
        size_in, size_out = weight.shape
        h, product = table(size_in), floors.matmul(num_nodes, size_in, size_out)
        name, floor = f"weight {size_in} x {size_out}", (product, together(product, product))
        yield _Passes(name, partial(torch.matmul, h, weight), [h, weight], *floor, IN_EACH_NETWORK)

    width, hidden = widths[-1], recipe.method.predictor_hidden_size
    h, into, out = table(width), floors.matmul(num_nodes, width, hidden), floors.matmul(num_nodes, hidden, width)
    name, inputs = f"predictor {width} x {hidden}", [h, *method.predictor.parameters()]
    floor = together(into, out), together(into, into, out, out)
    yield _Passes(name, partial(method.predictor, h), inputs, *floor, ONCE_A_VIEW)
    # The cosine's gradient can be made while both tables are read for the loss: it adds one pass, of writing.
    q, t, floor = table(width), table(width).detach(), (floors.passes(2, width=width), floors.passes(1, width=width))
    yield _Passes(f"cosine {width}", partial(row_cosine, q, t), [q], *floor, ONCE_A_VIEW)


def _online(both: Callable[[], Sequence[Tensor]]) -> Tensor:
    """Of what is computed for both networks at once, the part that learns."""
    return both()[0]


def _there_and_back(call: Callable[[], Tensor], inputs: Sequence[Tensor], upstream: Tensor) -> object:
    return torch.autograd.grad(call(), inputs, upstream)


def draw_mean_view(graph: Graph, recipe: Recipe) -> View:
    """A new one; on CUDA its seed is a tensor, as in a captured step."""
    views = recipe.views
    edge_drop_prob, feature_mask_prob = (sum(p) / len(p) for p in (views.edge_drop_probs, views.feature_mask_probs))
    spec = replace(views.specs()[0], edge_drop_prob=edge_drop_prob, feature_mask_prob=feature_mask_prob)
    return View(spec, torch.zeros((), dtype=torch.int64, device=graph.device) if graph.indptr.is_cuda else 0)


def _drawing(graph: Graph, recipe: Recipe, floors: Floors) -> Iterator[Part]:
    width = [*recipe.encoder.hidden_sizes, recipe.encoder.embedding_size][0]
    h, drawn = _activations(graph, floors, width), draw_mean_view(graph, recipe)
    upstream = torch.ones_like(h)

    def through(view: View) -> object:
        return _there_and_back(lambda: propagate(graph, view, h), [h], upstream)

    floor = together(floors.propagate(width), floors.propagate(width))
    yield Part("through a drawn view", lambda: through(drawn), floor, per_step=0)
    yield Part(
        "draw a view",
        lambda: through(draw_mean_view(graph, recipe)),
        floors.draw_view(),
        per_step=2,
        less="through a drawn view",
    )


def _update(method: Any, recipe: Recipe, floors: Floors) -> Part:
    optimizer = make_optimizer(method, recipe)
    learned = [parameter for parameter in method.parameters() if parameter.requires_grad]
    for parameter in learned:
        parameter.grad = torch.zeros_like(parameter)
    step = torch.ones((), dtype=torch.int64, device=learned[0].device)

    def update() -> None:
        optimizer.step()
        method.after_step(step)

    num_learned, num_averaged = sum(parameter.numel() for parameter in learned), num_parameters(method.target)
    floor = floors.update(num_learned=num_learned, num_averaged=num_averaged)
    return Part("AdamW and moving average", update, floor, per_step=1)


def _within(floors: Floors, call: Callable[[], T]) -> Callable[[], T]:
    """The call in the precision of a step. Every call by itself, as every step is: autocast keeps what it has cast."""

    def within() -> T:
        with computing_in(floors.precision, floors.graph.device):
            return call()

    return within


def _activations(graph: Graph, floors: Floors, width: int) -> Tensor:
    """(N, width) in the type that activations have between products."""
    dtype = torch.bfloat16 if floors.element_bytes == 2 else torch.float32
    return torch.randn(graph.num_nodes, width, device=graph.device, dtype=dtype).requires_grad_()
