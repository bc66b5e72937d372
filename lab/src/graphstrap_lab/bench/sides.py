"""The two sides of the comparison. Each is started on a device with its own copy of the data that it needs, and is then
a function from a step's number to its loss.

Ours needs the graph's CSR and its features as they are stored, sparse or dense; plain PyG an int64 edge list and dense
float32 features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.graph.blocks import Block, SparseMatrix
from graphstrap.nn import methods
from graphstrap.nn.methods import Method
from graphstrap.ops.memory import keep_freed_memory, release_freed_memory
from graphstrap.ops.precision import computing_in
from graphstrap.run.recipe import Recipe
from graphstrap.train.loop import make_step

TakeStep = Callable[[int], object]
Start = Callable[[torch.device], TakeStep]


def ours(graph: Graph, recipe: Recipe) -> Start:
    """The step that `graphstrap fit` takes."""

    def start(device: torch.device) -> TakeStep:
        keep_freed_memory()
        step = make_step(build_method(graph, recipe, device=device), _copy_of(graph, device), recipe=recipe, seed=0)

        def take_step(number: int) -> object:
            keep_freed_memory()
            return step(number)

        return take_step

    return start


def plain_pyg(graph: Graph, recipe: Recipe, *, allow_tf32: bool = False) -> Start:
    """The baseline, in float32 as PyTorch computes unless it is told otherwise; in TF32 where that is asked for."""
    from graphstrap_lab.bench.plain_pyg import PlainStep

    check_comparable(graph, recipe)
    x = graph.x.to_dense() if isinstance(graph.x, SparseMatrix) else graph.x
    assert x is not None
    edge_index = torch.stack([graph.indices.long(), graph.targets])

    def start(device: torch.device) -> TakeStep:
        plain_step = PlainStep(x.to(device, copy=True), edge_index.to(device, copy=True), recipe=recipe)

        def take_step(step: int) -> Tensor:
            release_freed_memory()
            with computing_in("tf32" if allow_tf32 else "fp32", device):
                return plain_step(step)

        return take_step

    return start


def check_comparable(graph: Graph, recipe: Recipe) -> None:
    """The baseline is the paper's BGRL and no more."""
    encoder, views = recipe.encoder, recipe.views
    if len(graph.features) != 1 or graph.edge_weights is not None:
        raise InputError(f"{graph.name} has several node types or edge weights: the plain PyG step knows neither")
    if encoder.norm != "batch" or encoder.weight_standardization or recipe.method.projector_size:
        raise InputError(f"recipe {recipe.name}: the plain PyG step knows batch norm alone, and no projector")
    if views.mask_elements or views.drop_directions_together:
        raise InputError(f"recipe {recipe.name}: the plain PyG step masks columns and drops directions one by one")


def build_method(graph: Graph, recipe: Recipe, *, device: torch.device) -> Method:
    method: Method = methods.build_method(recipe, input_sizes=graph.num_features, seed=0)
    return method.to(device)


def num_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _copy_of(graph: Graph, device: torch.device) -> Graph:
    """What training reads of a graph, in new memory."""

    def copied(tensor: Tensor) -> Tensor:
        return tensor.to(device, copy=True)

    def copied_block(block: Block | None) -> Block | None:
        if block is None:
            return None
        return copied(block) if isinstance(block, Tensor) else block.map(copied)

    weights = None if graph.edge_weights is None else copied(graph.edge_weights)
    return replace(
        graph,
        indptr=copied(graph.indptr),
        indices=copied(graph.indices),
        outgoing=None,
        features=tuple(copied_block(block) for block in graph.features),
        edge_weights=weights,
        labels=None,
        splits=None,
    )
