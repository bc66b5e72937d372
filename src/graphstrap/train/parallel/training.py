"""Data-parallel training: all that differs from one process.

    roots         a step's roots are those of one process; each worker takes every size-th of them
    gradient      g = sum_r n_r g_r / sum_r n_r, n_r roots on worker r: that of the whole batch, as its loss is a mean
    loss          likewise, so every worker logs the loss of the whole batch
    target        moves on each worker by the same weights and the same global step: it is the same everywhere
    run folder    the first worker's; others get its state where a run is resumed
    signals       a worker that is told to stop tells the others, and all stop after the same step

What is sampled for a root and which of its edges survive are hashes of global ids, so with disjoint batches and without
batch norm a step of several workers is the step of one, up to rounding. With merged batches (`sampling.disjoint` false)
nodes are merged within each worker's share. Batch norm is local: each worker normalises by its own share, and the
running statistics that are saved are the first worker's. Methods that compare roots with each other (grace, gca, dgi,
barlow-twins) do so within each share. Semi-supervised means are exact where labelled and unlabelled roots of a batch
both divide by the number of workers.

Of a graph in parts each worker has one, and batches come from all of them: see `part_batches.py`.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from graphstrap.graph import Graph
from graphstrap.io.parts import Part
from graphstrap.nn.methods import Method
from graphstrap.ops.adamw import AdamW
from graphstrap.run.recipe import Recipe
from graphstrap.train.batches import Prefetcher, make_batches
from graphstrap.train.console import Interrupt
from graphstrap.train.log import RunFolder
from graphstrap.train.loop import TrainingJob, train_together
from graphstrap.train.parallel.part_batches import check_roots, make_part_batches
from graphstrap.train.parallel.workers import Workers
from graphstrap.train.step import EagerStep


def train_in_parallel(
    job: TrainingJob, graph: Graph, *, recipe: Recipe, workers: Workers, progress: bool = False
) -> list[dict[str, Any]]:
    """Train one model by several workers, each of which calls this. Only the first one's run, sinks and evaluation
    count."""
    no_worker_knows_all_labels = isinstance(graph, Part) and recipe.method_class.learns_labels
    if not workers.is_alone and not no_worker_knows_all_labels:
        check_roots(graph, recipe, workers)
    if not workers.is_first:
        job = replace(job, evaluate=None, sinks=())
    job = replace(job, run=SharedRunFolder(job.run, workers))
    interrupt = SharedInterrupt(workers)
    return train_together(
        [job],
        graph,
        recipe=recipe,
        progress=progress and workers.is_first,
        make_step=partial(SharedStep, workers=workers, interrupt=interrupt),
        interrupt=interrupt,
    )[0]


class SharedStep(EagerStep):
    """A step on this worker's share of the roots, with the gradient of all of them."""

    def __init__(
        self,
        method: Method,
        graph: Graph,
        *,
        recipe: Recipe,
        seed: int,
        workers: Workers,
        interrupt: SharedInterrupt | None = None,
    ) -> None:
        device = next(method.parameters()).device
        batches: Prefetcher
        if isinstance(graph, Part):
            batches = make_part_batches(graph, recipe=recipe, seed=seed, device=device, workers=workers)
        else:
            batches = make_batches(graph, recipe=recipe, seed=seed, device=device, share=workers.share)
        super().__init__(method, graph, recipe=recipe, seed=seed, batches=batches)
        self.workers, self.interrupt = workers, interrupt

    def share_gradients(self, loss: Tensor, batch: Graph) -> Tensor:
        """Replace this worker's gradients and loss by those of the whole batch: one sum over workers."""
        gradients: list[Tensor] = []
        for parameter in self.optimizer.parameters:
            if parameter.grad is None:  # another worker may have one
                parameter.grad = torch.zeros_like(parameter)
            gradients.append(parameter.grad)
        flat = torch.cat([*(gradient.reshape(-1) for gradient in gradients), loss.reshape(1).to(gradients[0].dtype)])
        num_roots = flat.new_full((1,), float(batch.num_roots or 0))
        flat = self.workers.add(torch.cat([flat * num_roots, num_roots]))
        *means, loss = torch.split(flat[:-1] / flat[-1], [*(gradient.numel() for gradient in gradients), 1])
        for gradient, mean in zip(gradients, means, strict=True):
            gradient.copy_(mean.view_as(gradient))
        if self.interrupt is not None:
            self.interrupt.exchange()
        return loss.squeeze(0)


class SharedInterrupt(Interrupt):
    """`requested` as soon as any worker was asked to stop, after the same step on all of them."""

    def __init__(self, workers: Workers) -> None:
        super().__init__()
        self._workers, self._num_signals, self._num_terminations = workers, 0, 0

    def exchange(self) -> None:
        """Once a step, on the CPU: a GPU's work in hand is not waited for."""
        signals, terminations = self._workers.add(torch.tensor([self._num_signals, self._num_terminations])).tolist()
        self.requested, self.terminated = signals > 0, terminations > 0

    def _notice(self, number: int, frame: FrameType | None) -> None:
        self._num_signals += 1
        self._num_terminations += number == signal.SIGTERM
        if self._num_signals > 2 and number == signal.SIGINT:  # a terminal and a launcher may each send the first one
            raise KeyboardInterrupt


class SharedRunFolder:
    """The first worker's run folder, if it has one, as all workers see it."""

    def __init__(self, run: RunFolder | None, workers: Workers) -> None:
        self._run, self._workers = run if workers.is_first else None, workers

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody goes on before the first has the lock: whom it leaves waiting here is told that it has ended, whom it
        leaves in the making of a process group is not."""
        with nullcontext() if self._run is None else self._run.locked():
            self._workers.wait()
            yield

    def restore(self, module: nn.Module, optimizer: AdamW) -> int:
        """Every worker begins with the state of the first."""
        step = torch.tensor([0 if self._run is None else self._run.restore(module, optimizer)])
        self._workers.take_from_first([step])
        self._workers.take_module_from_first(module)
        if int(step):
            for parameter in optimizer.parameters:
                moments = optimizer.moments(parameter)
                self._workers.take_from_first([moments[name] for name in sorted(moments)])
        return int(step)

    def checkpoint(self, module: nn.Module, optimizer: AdamW, step: int) -> None:
        if self._run is not None:
            self._run.checkpoint(module, optimizer, step)

    def log(self, record: Mapping[str, Any]) -> None:
        if self._run is not None:
            self._run.log(record)
