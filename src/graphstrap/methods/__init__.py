"""One page per method. A method has `num_views`, `loss(batch, views)`, `after_step(step)` and `embed(graph)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from graphstrap.encoders import ENCODERS
from graphstrap.graph import Graph
from graphstrap.keep import child_seed
from graphstrap.methods.bgrl import BGRL
from graphstrap.recipe import Recipe
from graphstrap.view import View


class Method(Protocol):
    """What the training loop asks of a method, besides being a torch module."""

    num_views: int
    online: nn.Module

    def loss(self, batch: Graph, views: Sequence[View]) -> tuple[Tensor, dict[str, Tensor]]: ...

    def after_step(self, step: int | Tensor) -> None: ...

    def embed(self, graph: Graph) -> Tensor: ...


def build_bgrl(recipe: Recipe, *, input_sizes: Sequence[int], seed: int, num_nodes: int = 0) -> BGRL:
    """BGRL with fresh weights. Online and target draw theirs from different children of the seed."""
    return BGRL(
        encoder_maker(recipe, input_sizes),
        predictor_hidden_size=recipe.method.predictor_hidden_size,
        target_decay=recipe.method.target_decay,
        total_steps=recipe.train.steps,
        projector_size=recipe.method.projector_size,
        generators=(_generator(seed, 0), _generator(seed, 1)),
    )


def encoder_maker(recipe: Recipe, input_sizes: Sequence[int]) -> Callable[[torch.Generator], nn.Module]:
    """What makes an encoder of the recipe's kind with fresh weights."""

    def make_encoder(generator: torch.Generator) -> nn.Module:
        return ENCODERS[recipe.encoder.name](
            input_sizes,
            [*recipe.encoder.hidden_sizes, recipe.encoder.embedding_size],
            norm=recipe.encoder.norm,
            weight_standardization=recipe.encoder.weight_standardization,
            batch_norm_decay=recipe.encoder.batch_norm_decay,
            generator=generator,
        )

    return make_encoder


# Each is called as build(recipe, input_sizes=..., num_nodes=..., seed=...).
METHODS: dict[str, Callable[..., Method]] = {"bgrl": build_bgrl}


def _generator(seed: int, branch: int) -> torch.Generator:
    return torch.Generator().manual_seed(child_seed(seed, branch))
