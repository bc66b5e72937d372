"""Workers that Ray starts, on this host or on the cluster that RAY_ADDRESS names: `fit ... --workers 8 --engine ray`.

Ray Train's TorchTrainer runs in each worker what torchrun would: the same command. It places the workers, lets them
meet, and starts all of them again where one was killed; they go on from the run folder's last checkpoint.

Ray calls a worker in a thread, which gets no signals. What this process gets (Ctrl-C, a scheduler's SIGTERM) it leaves
in a mailbox, an actor of Ray's that the workers look into; they save after the step in hand, and all end.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from graphstrap.errors import InputError
from graphstrap.io.files import lock_file
from graphstrap.run.folder import LOCK_FILE
from graphstrap.train.console import Interrupt, pass_on
from graphstrap.train.parallel.workers import MAX_RESTARTS, RESTARTS, BackgroundThread, threads_of_each

_PASSED_ON = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GRAPHSTRAP_DATA", "GRAPHSTRAP_BACKEND", "PYTHONPATH")
_LOOK_EVERY = 0.5  # seconds


def launch_on_ray(work: Callable[[], int], *, run: Path, num_workers: int, on_gpus: bool) -> int:
    """Call `work` in so many workers; the exit code that the first one's gives.

    Args:
        work: what a worker does, by import: workers are other processes, maybe elsewhere.
        run: the run folder, which all hosts see; beside it Ray keeps notes of its own while it works.
    """
    try:
        os.environ |= {"RAY_TRAIN_V2_ENABLED": "1", "RAY_TRAIN_ENABLE_PRINT_PATCH": "0"}
        import ray
        from ray.train import FailureConfig, LoggingConfig, RunConfig, ScalingConfig, TrainingFailedError
        from ray.train.torch import TorchConfig, TorchTrainer
    except ImportError as error:
        raise InputError('Ray is not installed: pip install "graphstrap[ray]", or leave out --engine ray') from error

    on_cluster = "RAY_ADDRESS" in os.environ
    if not on_cluster:
        os.environ["RAY_TRAIN_ENABLE_PREEMPTION_WATCHER"] = "0"  # nobody takes this host away
    cores = 1 if on_cluster else threads_of_each(num_workers)
    given = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    options: dict[str, Any] = {} if on_cluster else {"include_dashboard": False, "num_cpus": cores * num_workers}
    run = run.absolute()
    if (run / LOCK_FILE).exists():
        with lock_file(run / LOCK_FILE, what=f"run folder {run}"):
            pass  # nobody else trains in it
    notes = run.parent / f".{run.name}.ray"
    with Interrupt() as interrupt:
        on_stop = signal.getsignal(signal.SIGTERM)
        try:
            ray.init(
                logging_config=ray.LoggingConfig(log_level="ERROR"),
                runtime_env={"env_vars": {"OMP_NUM_THREADS": str(cores), **given}},
                **options,
            )
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, on_stop)  # Ray's own one aborts the process
            mailbox = ray.remote(num_cpus=0)(_Mailbox).remote()
            trainer = TorchTrainer(
                _work,
                train_loop_config={"work": work, "run": str(run), "folder": os.getcwd(), "mailbox": mailbox},
                torch_config=TorchConfig(backend="cpu:gloo,cuda:nccl" if on_gpus else "gloo"),
                scaling_config=ScalingConfig(
                    num_workers=num_workers, use_gpu=on_gpus, resources_per_worker={"CPU": cores, "GPU": int(on_gpus)}
                ),
                run_config=RunConfig(
                    name="notes",
                    storage_path=str(notes),
                    failure_config=FailureConfig(max_failures=MAX_RESTARTS),
                    logging_config=LoggingConfig(log_level="ERROR"),
                ),
            )
            result = BackgroundThread().submit(trainer.fit)  # in the main thread Ray would take Ctrl-C for itself
            while not wait([result], timeout=_LOOK_EVERY).done:
                if interrupt.requested:
                    number = signal.SIGTERM if interrupt.terminated else signal.SIGINT
                    ray.get(mailbox.put.remote(int(number)))
            return int(result.result().return_value)
        except TrainingFailedError as error:
            why = str(error).splitlines()[0]
            print(f"graphstrap: Ray gave up ({why}): go on with `graphstrap resume {run}`", file=sys.stderr)
            return 1
        finally:
            ray.shutdown()
            shutil.rmtree(notes, ignore_errors=True)


class _Mailbox:
    """Holds the first signal for the workers; 0 while there is none."""

    def __init__(self) -> None:
        self._number = 0

    def put(self, number: int) -> None:
        self._number = self._number or number

    def get(self) -> int:
        return self._number


def _look_into(mailbox: Any) -> None:
    """Until there is a signal: then training in this process is told of it."""
    import ray

    try:
        while not (number := ray.get(mailbox.get.remote())):
            time.sleep(_LOOK_EVERY)
    except ray.exceptions.RayError:  # the process that started all of this has ended, or its host
        return
    pass_on(number)


def _work(job: dict[str, Any]) -> int:
    """What Ray calls in a worker, once all have met. A command that fails by itself is not tried again; one whose
    worker dies is."""
    os.chdir(job["folder"])
    begun = torch.tensor([Path(job["run"]).exists()])
    dist.broadcast(begun, src=0)  # before anyone makes the folder
    if begun:
        os.environ[RESTARTS] = "1"
        if dist.get_rank() == 0:
            _wait_for_lock(Path(job["run"]))
        dist.barrier()
    threading.Thread(target=_look_into, args=(job["mailbox"],), daemon=True).start()
    return int(job["work"]())


def _wait_for_lock(run: Path, seconds: float = 60.0) -> None:
    """The workers before may not have ended yet."""
    until = time.monotonic() + seconds
    while (run / LOCK_FILE).exists():
        try:
            with lock_file(run / LOCK_FILE, what=f"run folder {run}"):
                return
        except InputError:
            if time.monotonic() > until:
                return
            time.sleep(0.2)
