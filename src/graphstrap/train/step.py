"""One training step: views, loss, gradient, optimiser, moving average; on the whole graph, on some of many graphs, or
on a sampled batch. `captured_step.py` has it as one CUDA graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from graphstrap.graph import Graph, View, ViewSpec
from graphstrap.graph.many import GraphBatches
from graphstrap.nn.methods import Method
from graphstrap.ops.adamw import AdamW
from graphstrap.ops.precision import computing_in, resolve_precision
from graphstrap.run.recipe import Recipe
from graphstrap.train.batches import Prefetcher, make_batches
from graphstrap.train.views import adaptive_specs, draw_seeds

# The learning rate, a pure function of the step.


def learning_rate_at(step: int, *, base: float, warmup_steps: int, total_steps: int, schedule: str = "cosine") -> float:
    """Linear from 0 to `base` over the warm-up, then along a half cosine down to 0 at `total_steps` (the paper's
    appendix), or constant (most baselines)."""
    if step < warmup_steps:
        return base * step / warmup_steps
    if schedule == "constant":
        return base
    progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
    return base * (1.0 + math.cos(math.pi * min(1.0, progress))) / 2.0


Result = tuple[Tensor, dict[str, Tensor]]


class EagerStep:
    """Calls the method and the optimiser directly."""

    def __init__(self, method: Method, graph: Graph, *, recipe: Recipe, seed: int) -> None:
        self.method, self.graph, self.recipe, self.seed = method, graph, recipe, seed
        self.module = cast(nn.Module, method)
        self.specs = view_specs(recipe, graph)
        self.optimizer = make_optimizer(self.module, recipe)
        self.device = next(self.module.parameters()).device
        self.precision = resolve_precision(recipe.train.precision, self.device)

    @property
    def learning_rate(self) -> float:
        return float(self.optimizer.rate)

    def __call__(self, step: int) -> Result:
        self.optimizer.rate = self.rate(step)
        return self.run(draw_seeds(len(self.specs), seed=self.seed, step=step), step, self.batch(step))

    def batch(self, step: int) -> Graph:
        """What a step learns from: the whole graph."""
        return self.graph

    def close(self) -> None:
        """Nothing runs in the background."""

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        train = self.recipe.train
        return learning_rate_at(
            step,
            base=train.learning_rate,
            warmup_steps=train.warmup_steps,
            total_steps=train.steps,
            schedule=train.schedule,
        )

    def run(self, seeds: Any, step: int | Tensor, batch: Graph) -> Result:
        """The step itself, for views of these seeds."""
        self.module.train()
        views = [View(spec, seeds[index]) for index, spec in enumerate(self.specs)]
        with computing_in(self.precision, self.device):
            loss, stats = self.method.loss(batch, views)
            self.optimizer.forget_gradients()
            torch.autograd.backward(loss)
        loss = self.gradients_made(loss.detach(), batch)
        self.optimizer.step()
        self.method.after_step(step)
        return loss, stats

    def gradients_made(self, loss: Tensor, batch: Graph) -> Tensor:
        """What happens to gradients and loss before they are used: nothing."""
        return loss


class DrawnStep(EagerStep):
    """The same step on some whole graphs of many, other ones every time."""

    def __init__(self, method: Method, graph: Graph, *, recipe: Recipe, seed: int) -> None:
        super().__init__(method, graph, recipe=recipe, seed=seed)
        self._batches = GraphBatches(graph, num_drawn=recipe.train.graphs_per_step, seed=seed)

    def batch(self, step: int) -> Graph:
        return self._batches(step)


class SampledStep(EagerStep):
    """The same step on a batch of its own, made while the step before runs; with `share`, around some of its roots.
    `batches` gives others than those of the graph."""

    def __init__(
        self,
        method: Method,
        graph: Graph,
        *,
        recipe: Recipe,
        seed: int,
        share: Callable[[Tensor], Tensor] | None = None,
        batches: Prefetcher | None = None,
    ) -> None:
        super().__init__(method, graph, recipe=recipe, seed=seed)
        self.batches = batches or make_batches(graph, recipe=recipe, seed=seed, device=self.device, share=share)

    def batch(self, step: int) -> Graph:
        return self.batches(step)

    def close(self) -> None:
        self.batches.close()


def view_specs(recipe: Recipe, graph: Graph) -> list[ViewSpec]:
    """How strongly each view of this graph is perturbed."""
    views = recipe.views
    if views.centrality == "none":
        return views.specs()
    return adaptive_specs(graph, views.specs(), centrality=views.centrality, max_drop_prob=views.max_drop_prob)


def make_optimizer(module: nn.Module, recipe: Recipe) -> AdamW:
    """AdamW over what learns."""
    learned = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return AdamW(learned, rate=recipe.train.learning_rate, weight_decay=recipe.train.weight_decay)
