"""Batches made ahead: a thread samples and gathers while the step before runs.

On CUDA the thread works on a stream of its own; whoever takes a batch makes their stream wait for it. A batch is a
function of its step, so nothing depends on who was faster.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields

import torch
from torch import Tensor

from graphstrap.blocks import block_tensors
from graphstrap.graph import Graph

Made = tuple[Graph, "torch.cuda.Event | None"]


class Prefetcher:
    """Gives the batch of a step, and begins with those of the steps after it.

    Args:
        make: makes the batch of a step.
        last_step: no batch is made for steps beyond.
        depth: how many batches to make ahead; 0 to make them when asked.
    """

    def __init__(self, make: Callable[[int], Graph], *, last_step: int, device: torch.device, depth: int = 2) -> None:
        self.make, self._last, self._device, self._depth = make, last_step, device, depth
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        if self._stream is not None:  # what `make` works with may still be on its way
            self._stream.wait_stream(torch.cuda.current_stream(device))
        self._waiting: dict[int, Future[Made]] = {}
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="sampler") if depth else None

    def __call__(self, step: int) -> Graph:
        if self._worker is None:
            return self.make(step)
        for ahead in range(step, min(step + self._depth, self._last) + 1):
            if ahead not in self._waiting:
                self._waiting[ahead] = self._worker.submit(self._work, ahead)
        for old in [s for s in self._waiting if s < step]:
            self._waiting.pop(old).cancel()
        batch, ready = self._waiting.pop(step).result()
        if ready is not None:
            current = torch.cuda.current_stream(self._device)
            current.wait_event(ready)
            for tensor in tensors_of(batch):
                tensor.record_stream(current)
        return batch

    def close(self) -> None:
        """Forget what was made ahead."""
        for future in self._waiting.values():
            future.cancel()
        self._waiting.clear()
        if self._worker is not None:
            self._worker.shutdown(wait=True, cancel_futures=True)

    def _work(self, step: int) -> Made:
        if self._stream is None:
            return self.make(step), None
        with torch.cuda.stream(self._stream):
            batch = self.make(step)
            ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
            ready.record(self._stream)
        return batch, ready


def tensors_of(batch: Graph) -> list[Tensor]:
    """Every tensor that a batch is made of."""
    columns = [getattr(batch, field.name) for field in fields(batch)]
    found = [column for column in columns if isinstance(column, Tensor)]
    return found + [tensor for block in batch.features for tensor in block_tensors(block)]
