"""One page per method: its equation, its class, its settings, and what it can do.

A page registers a subclass of `Method` by name and declares its settings in a dataclass beside it:

    @dataclass(frozen=True)
    class MineSettings(MethodSettings):
        name: str = "mine"
        temperature: float = setting(0.5, low=1e-3, high=100.0)

    @METHODS.register("mine")
    class Mine(Method):
        Settings = MineSettings
        num_views = 2

        def __init__(self, settings, blueprint): ...
        def loss(self, batch, views): ...

Everything else in the tree asks the class for its attributes and never for its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from graphstrap.errors import InputError
from graphstrap.graph import CLEAN, Graph, View
from graphstrap.graph.views import child_seed
from graphstrap.nn.encoders import Encoder
from graphstrap.run.recipe import ENCODERS, METHODS, MethodSettings, Recipe

Stats = dict[str, Tensor]


class Method(nn.Module):
    """What the training loop and everything after it ask of a method.

    A subclass takes its section of a recipe and a `Blueprint` (or defines another `build`), has an encoder named
    `online`, defines `loss`, and sets these attributes where they differ:

    Settings: the dataclass of its section of a recipe.
    num_views: how many views of the graph a step gets.
    takes_samples: learns from sampled batches; else it sees the whole graph at every step.
    reads_views: drops edges and masks columns as the recipe's views say.
    view_defaults: settings of views that are its own, unless a recipe says otherwise.
    learns_labels: training labels are part of the loss, so test labels must be kept from it.
    has_encoder: embeds by an encoder; else it learns a vector for each node and knows no others.
    looks_inside_encoder: uses the layers of a GCN one by one.
    is_trained: learns step by step; else it has a `fit(prepared graph)` that does all there is to do at once.
    compares_roots: its loss needs at least two roots.
    """

    Settings: ClassVar[type[MethodSettings]] = MethodSettings
    num_views: ClassVar[int] = 2
    takes_samples: ClassVar[bool] = True
    reads_views: ClassVar[bool] = True
    view_defaults: ClassVar[Mapping[str, Any]] = {}
    learns_labels: ClassVar[bool] = False
    has_encoder: ClassVar[bool] = True
    looks_inside_encoder: ClassVar[bool] = False
    is_trained: ClassVar[bool] = True
    compares_roots: ClassVar[bool] = False

    online: nn.Module
    label_inputs: bool = False  # whether neighbours' training labels are inputs

    @classmethod
    def build(cls, settings: Any, blueprint: Blueprint) -> Method:
        """The method with fresh weights, from its section of a recipe."""
        return cls(settings, blueprint)

    def loss(self, batch: Graph, views: Sequence[View]) -> tuple[Tensor, Stats]:
        """A number to be made small, and the online embeddings of the batch as stats["embedding"]."""
        raise InputError(f"{type(self).__name__} has no `loss`: see docs/adding.md")

    def after_step(self, step: int | Tensor) -> None:
        """What moves other than by gradient. The step is a number or, on a GPU, a tensor."""

    def inputs(self, batch: Graph, *, whole_graph_labels: bool = False) -> Graph:
        """The batch as the encoder takes it."""
        return batch

    @classmethod
    def scheduled(cls, settings: Any, *, step: int, total_steps: int) -> dict[str, float]:
        """What follows a schedule at a step, for charts."""
        return {}

    @property
    def frozen(self) -> nn.Module:
        """The encoder that embeds."""
        return self.online

    @torch.no_grad()
    def embed(self, graph: Graph) -> Tensor:
        """(N, D) embeddings of the clean graph."""
        h: Tensor = self.frozen.eval()(graph, CLEAN)
        return h

    def probabilities(self, graph: Graph) -> Tensor:
        """(N, C) of each class, where the method learns classes."""
        raise InputError("this method learns no classes: take method semi-supervised, or a probe")


@dataclass(frozen=True)
class Blueprint:
    """What a method is built from besides its settings: the recipe's encoder, sizes and seed.

    Args:
        input_sizes: width of each node type's features.
        num_nodes: of the graph, for methods with a vector for each node.
        edge_size: how many numbers an edge has, for encoders that read them.
        num_classes: for methods that learn labels.
    """

    recipe: Recipe
    input_sizes: Sequence[int]
    seed: int
    num_nodes: int = 0
    edge_size: int = 0
    num_classes: int = 0

    def generator(self, branch: int) -> torch.Generator:
        """The source of one of the model's sets of initial weights."""
        return torch.Generator().manual_seed(child_seed(self.seed, branch))

    def make_encoder(self, generator: torch.Generator) -> Encoder:
        """An encoder of the recipe's kind with fresh weights."""
        sizes: dict[str, Any] = {"input_sizes": self.input_sizes, "edge_size": self.edge_size}
        encoder: Encoder = self.recipe.encoder_class.build(self.recipe.encoder, generator=generator, **sizes)
        return encoder


def build_method(recipe: Recipe, *, input_sizes: Sequence[int], seed: int, **sizes: int) -> Any:
    """The recipe's method with fresh weights. For `sizes` see `Blueprint`."""
    kind = recipe.method_class
    if kind.looks_inside_encoder and not ENCODERS.is_own(recipe.encoder.name):
        raise InputError(f"{recipe.method.name} reads the weights of its encoder: take encoder gcn, or another method")
    return kind.build(recipe.method, Blueprint(recipe, input_sizes, seed, **sizes))


__all__ = ["ENCODERS", "METHODS", "Blueprint", "Method", "MethodSettings", "Stats", "build_method"]
