"""What a training step is made of, at a graph's shape: each part as a call, its floor, and how often a step does it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from graphstrap.errors import InputError
from graphstrap.graph import Graph, View
from graphstrap.ops import project_all, propagate, propagate_all, row_cosine
from graphstrap.ops.precision import computing_in
from graphstrap.run.recipe import Recipe
from graphstrap.train.step import make_optimizer
from graphstrap_lab.bench.floors import Floor, Floors, together
from graphstrap_lab.bench.sides import build_method, num_parameters
from graphstrap_lab.bench.timing import Call

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
    for part in _parts(graph, recipe, floors):
        yield replace(part, call=_within(floors, part.call))


def _parts(graph: Graph, recipe: Recipe, floors: Floors) -> Iterator[Part]:
    if len(graph.features) != 1:
        raise InputError(f"{graph.name} has several node types: `bench ops` measures graphs with one")
    method: Any = build_method(graph, recipe, device=graph.device)
    method.train()
    online, view = method.online, draw_mean_view(graph, recipe)
    widths = [*recipe.encoder.hidden_sizes, recipe.encoder.embedding_size]
    yield from _projection(graph, view, online.input_weights[0], method.target.input_weights[0], floors)
    yield from _drawing(graph, recipe, widths[0], floors)
    for width, finish in zip(widths, online.layers, strict=True):
        yield from _propagation(graph, view, width, floors)
        yield from _finish(graph, width, finish, floors)
    for weight in online.weights:
        yield from _weight(graph, weight, floors)
    yield from _predictor(graph, method.predictor, widths[-1], recipe.method.predictor_hidden_size, floors)
    yield from _cosine(graph, widths[-1], floors)
    yield _update(method, recipe, floors)


def draw_mean_view(graph: Graph, recipe: Recipe) -> View:
    """A new one; on CUDA its seed is a tensor, as in a captured step."""
    views = recipe.views
    edge_drop_prob, feature_mask_prob = (sum(p) / len(p) for p in (views.edge_drop_probs, views.feature_mask_probs))
    spec = replace(views.specs()[0], edge_drop_prob=edge_drop_prob, feature_mask_prob=feature_mask_prob)
    return View(spec, torch.zeros((), dtype=torch.int64, device=graph.device) if graph.indptr.is_cuda else 0)


def _projection(graph: Graph, view: View, weight: Tensor, other: Tensor, floors: Floors) -> Iterator[Part]:
    size_in, width = weight.shape
    yield from _both_passes(
        f"project {size_in} x {width}, both networks",
        lambda: project_all(graph, view, [weight, other])[0],
        [weight],
        floors,
        floor=(floors.project(2 * width), floors.project(width, backward=True)),
        counts=ONCE_A_VIEW,
    )


def _drawing(graph: Graph, recipe: Recipe, width: int, floors: Floors) -> Iterator[Part]:
    h, drawn = _activations(graph, width, floors), draw_mean_view(graph, recipe)
    upstream = torch.ones_like(h)

    def there_and_back(view: View) -> object:
        return torch.autograd.grad(propagate(graph, view, h), h, upstream)

    def through_a_new_view() -> object:
        return there_and_back(draw_mean_view(graph, recipe))

    floor = together(floors.propagate(width), floors.propagate(width))
    yield Part("through a drawn view", partial(there_and_back, drawn), floor, per_step=0)
    yield Part("draw a view", through_a_new_view, floors.draw_view(), per_step=2, less="through a drawn view")


def _propagation(graph: Graph, view: View, width: int, floors: Floors) -> Iterator[Part]:
    h, t = _activations(graph, width, floors), _activations(graph, width, floors).detach()
    yield from _both_passes(
        f"propagate {width}, both networks",
        lambda: propagate_all(graph, view, [h, t])[0],
        [h],
        floors,
        floor=(floors.propagate(2 * width), floors.propagate(width)),
        counts=ONCE_A_VIEW,
    )


def _finish(graph: Graph, width: int, finish: nn.Module, floors: Floors) -> Iterator[Part]:
    h = _activations(graph, width, floors)
    passes = floors.passes(3, width=width), floors.passes(5, width=width)
    name, inputs = f"norm and PReLU {width}", [h, *finish.parameters()]
    yield from _both_passes(name, partial(finish, h, graph), inputs, floors, floor=passes, counts=IN_EACH_NETWORK)


def _weight(graph: Graph, weight: Tensor, floors: Floors) -> Iterator[Part]:
    size_in, size_out = weight.shape
    h, floor = _activations(graph, size_in, floors), floors.matmul(graph.num_nodes, size_in, size_out)
    call, both = partial(torch.matmul, h, weight), (floor, together(floor, floor))
    yield from _both_passes(
        f"weight {size_in} x {size_out}", call, [h, weight], floors, floor=both, counts=IN_EACH_NETWORK
    )


def _predictor(graph: Graph, predictor: nn.Module, width: int, hidden: int, floors: Floors) -> Iterator[Part]:
    h = _activations(graph, width, floors)
    into, out = floors.matmul(graph.num_nodes, width, hidden), floors.matmul(graph.num_nodes, hidden, width)
    products = together(into, out), together(into, into, out, out)
    name, inputs = f"predictor {width} x {hidden}", [h, *predictor.parameters()]
    yield from _both_passes(name, partial(predictor, h), inputs, floors, floor=products, counts=ONCE_A_VIEW)


def _cosine(graph: Graph, width: int, floors: Floors) -> Iterator[Part]:
    """The gradient can be made while both tables are read for the loss: it adds one pass, of writing."""
    q, t = _activations(graph, width, floors), _activations(graph, width, floors).detach()
    passes = floors.passes(2, width=width), floors.passes(1, width=width)
    yield from _both_passes(f"cosine {width}", partial(row_cosine, q, t), [q], floors, floor=passes, counts=ONCE_A_VIEW)


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


def _both_passes(
    name: str,
    call: Callable[[], Tensor],
    inputs: list[Tensor],
    floors: Floors,
    *,
    floor: tuple[Floor, Floor],
    counts: tuple[int, int],
) -> Iterator[Part]:
    upstream = torch.ones_like(_within(floors, call)())
    yield Part(name, call, floor[0], per_step=counts[0])

    def there_and_back() -> object:
        return torch.autograd.grad(call(), inputs, upstream)

    yield Part(f"{name}, backward", there_and_back, floor[1], per_step=counts[1], less=name)


def _within(floors: Floors, call: Callable[[], T]) -> Callable[[], T]:
    """The call in the precision of a step. Every call by itself, as every step is: autocast keeps what it has cast."""

    def within() -> T:
        with computing_in(floors.precision, floors.graph.device):
            return call()

    return within


def _activations(graph: Graph, width: int, floors: Floors) -> Tensor:
    """(N, width) in the type that activations have between products."""
    dtype = torch.bfloat16 if floors.element_bytes == 2 else torch.float32
    return torch.randn(graph.num_nodes, width, device=graph.device, dtype=dtype).requires_grad_()
