"""Run a function in several processes that have joined each other."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing.spawn import start_processes

import graphstrap.train.parallel.workers as module
from forked import CONTEXT
from graphstrap.train.parallel.workers import Workers, joined

Work = Callable[..., dict[str, Any]]


def in_processes(work: Work, *arguments: Any, folder: Path, size: int = 2, device: str = "cpu") -> list[dict[str, Any]]:
    """What `work(workers, *arguments)` returns in each of them: names and tensors or numbers. Of size 1 it is a group
    all the same."""
    group = (dict(os.environ), size, free_port(), folder, work, arguments, device)
    how = "spawn" if device == "cuda" else CONTEXT.get_start_method()
    start_processes(_run, group, nprocs=size, start_method=how)  # type: ignore[no-untyped-call]
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(size)]


def free_port() -> int:
    """One that nobody listens at, and that the system gives to no connection: those of other tests come in between."""
    first_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in random.SystemRandom().sample(range(10_000, max(first_given, 10_100)), 100):
        with suppress(OSError), closing(socket.socket()) as free:
            free.bind(("127.0.0.1", port))
            return port
    raise OSError("a hundred ports are in use")


def _run(
    rank: int,
    environment: dict[str, str],
    size: int,
    port: int,
    folder: Path,
    work: Work,
    arguments: tuple[Any, ...],
    device: str,
) -> None:
    os.environ |= {**environment, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    module.is_worker = lambda: True  # also where nobody else is
    with joined(torch.device(device)) as workers:
        assert workers == Workers(rank, size)
        torch.save(work(workers, *arguments), folder / f"{rank}.pt")
