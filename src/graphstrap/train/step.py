"""One training step: views, loss, gradient, optimiser, moving average. Eager, or captured once as a CUDA graph and
replayed.

At ten thousand nodes a GPU step is bound by the launching of its kernels. Captured, all of them are one launch; what
changes from step to step (view seeds, learning rate, the step itself) lives in device tensors that are filled before
each replay.
"""

from __future__ import annotations

import logging
import os
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor, nn

from graphstrap.graph import Graph
from graphstrap.methods import Method
from graphstrap.recipe import Recipe
from graphstrap.train.schedule import learning_rate_at
from graphstrap.view import View
from graphstrap.views import draw_seeds

_WARMUP_STEPS = 3
logger = logging.getLogger(__name__)


class EagerStep:
    """Calls the method and the optimiser directly."""

    def __init__(self, method: Method, graph: Graph, *, recipe: Recipe, seed: int) -> None:
        self.method, self.graph, self.recipe, self.seed = method, graph, recipe, seed
        self.module = cast(nn.Module, method)
        self.specs = recipe.views.specs()
        self.optimizer = make_optimizer(self.module, recipe)

    @property
    def learning_rate(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    def __call__(self, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        rate = self._rate(step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        return self._run(draw_seeds(len(self.specs), seed=self.seed, step=step), step)

    def _rate(self, step: int) -> float:
        train = self.recipe.train
        return learning_rate_at(
            step, base=train.learning_rate, warmup_steps=train.warmup_steps, total_steps=train.steps
        )

    def _run(self, seeds: Any, step: int | Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        self.module.train()
        views = [View(spec, seeds[index]) for index, spec in enumerate(self.specs)]
        loss, stats = self.method.loss(self.graph, views)
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        self.optimizer.step()
        self.method.after_step(step)
        return loss.detach(), stats


class CapturedStep(EagerStep):
    """The same step as one CUDA graph. The first call captures, without moving any weight; every call replays."""

    def __init__(self, method: Method, graph: Graph, *, recipe: Recipe, seed: int) -> None:
        super().__init__(method, graph, recipe=recipe, seed=seed)
        self._seeds = torch.zeros(len(self.specs), dtype=torch.int64, device=graph.device)
        self._step = torch.zeros((), dtype=torch.int64, device=graph.device)
        self._captured: torch.cuda.CUDAGraph | None = None
        self._result: tuple[Tensor, dict[str, Tensor]]

    def __call__(self, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        if self._captured is None:
            self._capture()
        assert self._captured is not None
        self._fill(step)
        self._captured.replay()
        return self._result

    def _fill(self, step: int) -> None:
        seeds = torch.tensor(draw_seeds(len(self.specs), seed=self.seed, step=step))
        self._seeds.copy_(seeds, non_blocking=True)
        self._step.fill_(step)
        for group in self.optimizer.param_groups:
            group["lr"].fill_(self._rate(step))

    def _capture(self) -> None:
        before = self._snapshot()
        self._fill(1)
        side = _side_stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARMUP_STEPS):
                self._run(self._seeds, self._step)
        torch.cuda.current_stream().wait_stream(side)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            self._result = self._run(self._seeds, self._step)
        self._restore(before)
        self._captured = captured

    def _snapshot(self) -> dict[str, Tensor]:
        return {name: tensor.clone() for name, tensor in self._state().items()}

    def _restore(self, before: dict[str, Tensor]) -> None:
        """What warming up has moved goes back; optimiser state that it made starts from zero."""
        with torch.no_grad():
            for name, tensor in self._state().items():
                if name in before:
                    tensor.copy_(before[name])
                else:
                    tensor.zero_()

    def _state(self) -> dict[str, Tensor]:
        state = {f"module.{name}": tensor for name, tensor in self.module.state_dict().items()}
        for index, moments in enumerate(self.optimizer.state.values()):
            state |= {f"optimizer.{index}.{name}": tensor for name, tensor in moments.items()}
        return state


@cache
def _side_stream() -> torch.cuda.Stream:
    """One for all captures: every new stream keeps a workspace of its own."""
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


def make_step(method: Method, graph: Graph, *, recipe: Recipe, seed: int) -> EagerStep:
    """A captured step on CUDA, an eager one elsewhere or where GRAPHSTRAP_CAPTURE=0 asks for it."""
    if graph.device.type != "cuda":
        return EagerStep(method, graph, recipe=recipe, seed=seed)
    if os.environ.get("GRAPHSTRAP_CAPTURE") == "0":
        logger.warning("steps are not captured as a CUDA graph: GRAPHSTRAP_CAPTURE=0")
        return EagerStep(method, graph, recipe=recipe, seed=seed)
    return CapturedStep(method, graph, recipe=recipe, seed=seed)


def make_optimizer(module: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """AdamW over what learns. On CUDA its learning rate and step live in device tensors."""
    learned = [parameter for parameter in module.parameters() if parameter.requires_grad]
    on_cuda = learned[0].is_cuda
    rate = torch.tensor(recipe.train.learning_rate, device=learned[0].device) if on_cuda else recipe.train.learning_rate
    return torch.optim.AdamW(learned, lr=rate, weight_decay=recipe.train.weight_decay, fused=True, capturable=on_cuda)
