"""Workers: processes that run the same command and know their number.

    graphstrap fit ... --workers 2               starts them here, with torchrun's launcher
    torchrun --nproc-per-node 2 -m graphstrap fit ...    starts them from outside, on one host or on many
    graphstrap fit ... --workers 2 --engine ray  lets Ray start them, see `ray.py`

All set RANK, WORLD_SIZE, LOCAL_RANK and an address to meet at; `joined` reads them. Tensors on a CPU travel by gloo,
those on a GPU by NCCL. A program that nobody started so is one worker, ALONE, for whom nothing is sent anywhere.
"""

from __future__ import annotations

import ctypes
import importlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous

from graphstrap.errors import InputError, LostWorkerError

PARENT = "GRAPHSTRAP_PARENT"
_PR_SET_PDEATHSIG = 1
_GRACE_SECONDS = 15.0


def end_with_parent() -> None:
    """On Linux, where the parent has left its number in the environment: be killed when it dies. Nobody else would
    start this worker again, and it would hold the run folder's lock against whoever goes on with the run."""
    parent = os.environ.pop(PARENT, None)
    if parent is None or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if str(os.getppid()) != parent:  # it died before
        os.kill(os.getpid(), signal.SIGKILL)


def leave_to_launcher() -> None:
    """Wait to be ended by the launcher. It takes the first worker that ends for the one that failed, and that one,
    which knows why, may be slower to end than those that it left."""
    with suppress(KeyboardInterrupt):
        time.sleep(_GRACE_SECONDS)


Items = TypeVar("Items", Tensor, Sequence[Any])

# The first worker evaluates, saves and finishes while the others wait; one that died is noticed at once.
PATIENCE = timedelta(hours=6)
PATIENCE_WITH_WORK = timedelta(days=20)  # in milliseconds, within 32 bits
MEETING = timedelta(minutes=5)
MAX_RESTARTS = 3
RESTARTS = "GRAPHSTRAP_RESTARTS"


@dataclass(frozen=True)
class Workers:
    """Which of how many workers this process is."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this one writes the run folder and speaks to the user."""
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        """Whether there is nobody to send anything to."""
        return self.size == 1

    def share(self, items: Items) -> Items:
        """Every size-th item or row from rank on: the shares of all workers are all items, none twice."""
        return items[self.rank :: self.size]

    def add(self, tensor: Tensor) -> Tensor:
        """The sum over workers, in place; the same bits for each of them."""
        if not self.is_alone:
            with in_touch():
                dist.all_reduce(tensor)
        return tensor

    def take_from_first(self, tensors: Sequence[Tensor]) -> None:
        """Overwrite these with the first worker's."""
        if not self.is_alone:
            with in_touch():
                for tensor in tensors:
                    dist.broadcast(tensor, src=0)

    def take_module_from_first(self, module: nn.Module) -> None:
        with torch.no_grad():
            self.take_from_first(list(module.state_dict().values()))

    def wait(self) -> None:
        """Until all have come this far."""
        if not self.is_alone:
            with in_touch():
                dist.barrier()

    def wait_for_work(self) -> None:
        """Until all are done with work that each has of its own: some of them may have days more of it than others."""
        if not self.is_alone:
            options: Any = dist.BarrierOptions()
            options.timeout, options.device = PATIENCE_WITH_WORK, torch.device("cpu")
            with in_touch():
                dist.group.WORLD.barrier(options).wait()  # type: ignore[union-attr]


ALONE = Workers()


class BackgroundThread:
    """Does one thing after another; the process does not wait for it when it ends."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        threading.Thread(target=self._run, name="graphstrap", daemon=True).start()

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._jobs.put((future, partial(work, *arguments)))
        return future

    def shutdown(self) -> None:
        """End when everything is done."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, work = job
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)


@contextmanager
def in_touch() -> Iterator[None]:
    """A LostWorkerError where the other side is gone."""
    try:
        yield
    except RuntimeError as error:
        if any(word in str(error) for word in ("onnection", "Broken pipe", "imed out", "NCCL")):
            raise LostWorkerError("another worker has ended, so this one ends too: see above why") from error
        raise


def is_worker() -> bool:
    """Whether a launcher has started this process, as one of several or, by Ray, of any number."""
    return dist.is_initialized() or (int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ)


def num_restarts() -> int:
    """How often the workers of this job have been started again, by our launcher or by torchrun."""
    return int(os.environ.get(RESTARTS, "0")) + int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


@contextmanager
def joined(device: torch.device) -> Iterator[Workers]:
    """The workers that this process is one of, met; ALONE where nobody started others."""
    if not is_worker():
        yield ALONE
        return
    if dist.is_initialized():  # by Ray, which has also chosen the GPU
        try:
            yield Workers(dist.get_rank(), dist.get_world_size())
        except BaseException:
            dist.destroy_process_group()  # the process lives on: the others are not to wait for it
            raise
        return
    if device.type == "cuda":
        local = int(os.environ.get("LOCAL_RANK", "0"))
        if local >= torch.cuda.device_count():
            raise InputError(
                f"worker {local} of this host has no GPU, there are {torch.cuda.device_count()}: start as many workers "
                "as GPUs, or give --device cpu"
            )
        torch.cuda.set_device(local)
    # Its functions take the group of all workers as a default argument: imported after the group is made, as by an
    # optimiser, they would keep it and its threads alive, and such a thread may abort the interpreter as it exits.
    importlib.import_module("torch.distributed.nn")
    try:  # where the workers leave their addresses for each other; this one's number, and how many they are
        store, rank, size = next(rendezvous("env://", timeout=MEETING))
    except (dist.DistError, ValueError) as error:
        place = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        raise InputError(
            f"worker {os.environ['RANK']} met nobody at {place} within {MEETING.total_seconds():.0f} s: is that the "
            f"address of the first host, and have all {os.environ['WORLD_SIZE']} workers been started?"
        ) from error
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=PATIENCE)
    try:
        yield Workers(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()


def threads_of_each(num_workers: int) -> int:
    """This host's cores, divided among its workers."""
    return max(1, (os.cpu_count() or 1) // num_workers)


def was_killed(exit_codes: Sequence[int]) -> bool:
    """Whether a signal ended one of the workers, other than the launcher's own SIGTERM to those that another one's
    failure left."""
    return any(code < 0 and code != -signal.SIGTERM for code in exit_codes)


def launch(arguments: Sequence[str], num_workers: int) -> int:
    """Run `graphstrap ARGUMENTS` in so many processes on this host; the exit code.

    Where a signal killed a worker, all are started again and go on from the last checkpoint. Other failures are
    final: they would come again.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # workers say what is wrong themselves
    os.environ.setdefault("OMP_NUM_THREADS", str(threads_of_each(num_workers)))
    config: Any = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=num_workers,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        run_id=str(os.getpid()),
        max_restarts=0,
        monitor_interval=0.2,
    )
    for attempt in range(MAX_RESTARTS + 1):
        os.environ |= {RESTARTS: str(attempt), PARENT: str(os.getpid())}
        try:
            elastic_launch(config, sys.executable)("-m", "graphstrap", *arguments)
            return 0
        except SignalException as stop:
            return 0 if stop.sigval == signal.SIGTERM else 130  # the workers have saved: see `train.console`
        except ChildFailedError as error:
            codes = [failure.exitcode for failure in error.failures.values()]
            if not was_killed(codes):
                return max(1, *codes)
            if attempt == MAX_RESTARTS:
                return 128 + signal.SIGKILL  # as a shell says of a killed one
            print("graphstrap: a worker was killed, all start again from the last checkpoint", file=sys.stderr)
        finally:
            del os.environ[RESTARTS], os.environ[PARENT]
    raise AssertionError("the last attempt returns")
