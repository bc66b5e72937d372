"""GRACE's loss with all negatives, forward and backward: ours against all pairs kept, as the original does it, and
against what the GPU can do.

    python lab/benchmarks/grace_loss.py --device cuda        # writes results/grace_loss_cuda.json

`kept` is PyTorch's own matrix product, exponential and sum, with every similarity held for the backward pass; it runs
in the same program, on the same keys. Products are counted as one forward and two backward, 2 M^2 D operations each for
M = 2 N rows; `of_product_rate` is that over what one large product reaches on this device, measured here as well. Bytes
are what the loss adds to the memory that the keys take.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphstrap.ops import log_total_others, resolve_device
from graphstrap_lab.bench.record import write_record

RESULTS = Path(__file__).parent / "results"
TEMPERATURE = 0.4
NUM_ROUNDS = 5
# Photo, Computers, CS and Physics: nodes, and columns of the projection.
SIZES = ((7_650, 256), (13_752, 128), (18_333, 256), (34_493, 128))


def draw_keys(num_nodes: int, num_columns: int, device: torch.device) -> Tensor:
    rows = torch.randn(2 * num_nodes, num_columns, generator=torch.Generator().manual_seed(0))
    keys = torch.nn.functional.normalize(rows).div(TEMPERATURE**0.5).to(device)
    return keys.bfloat16() if device.type == "cuda" else keys


def loss_and_gradient(keys: Tensor, *, keep: bool) -> None:
    keys = keys.detach().requires_grad_()
    log_total_others(keys, bound=1.0 / TEMPERATURE, keep=keep).mean().backward()  # type: ignore[no-untyped-call]


def best_milliseconds(work: Callable[[], object], device: torch.device) -> float:
    work()
    best = float("inf")
    for _ in range(NUM_ROUNDS):
        wait_for(device)
        started = time.perf_counter()
        work()
        wait_for(device)
        best = min(best, 1e3 * (time.perf_counter() - started))
    return best


def wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def peak_bytes(work: Callable[[], object], device: torch.device) -> int | None:
    """What it takes on top of what is there; None where nobody counts."""
    if device.type != "cuda":
        return None
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    work()
    torch.cuda.synchronize()
    return int(torch.cuda.max_memory_allocated() - before)


def product_rate(device: torch.device, size: int) -> float:
    """Operations a second of one large product."""
    a = torch.randn(size, size, device=device)
    a = a.bfloat16() if device.type == "cuda" else a
    return 2.0 * size**3 / (best_milliseconds(lambda: a @ a, device) / 1e3)


def measure(num_nodes: int, num_columns: int, *, rate: float, device: torch.device) -> dict[str, Any]:
    keys = draw_keys(num_nodes, num_columns, device)
    row: dict[str, Any] = {"nodes": num_nodes, "columns": num_columns}
    for name, keep in (("ours", False), ("kept", True)):
        try:
            row[f"{name}_ms"] = round(best_milliseconds(lambda: loss_and_gradient(keys, keep=keep), device), 3)  # noqa: B023
            row[f"{name}_bytes"] = peak_bytes(lambda: loss_and_gradient(keys, keep=keep), device)  # noqa: B023
        except torch.cuda.OutOfMemoryError:
            row[f"{name}_ms"], row[f"{name}_bytes"] = None, None
    operations = 3 * 2.0 * len(keys) ** 2 * num_columns
    row["of_product_rate"] = round(operations / (row["ours_ms"] / 1e3) / rate, 3)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--most-nodes", type=int, default=10**6, help="leave larger sizes out")
    parser.add_argument("--to", type=Path, default=None)
    arguments = parser.parse_args()
    device = resolve_device(arguments.device)
    rate = product_rate(device, 8192 if device.type == "cuda" else 1024)
    print(f"one large product: {rate / 1e12:.1f} TFLOP/s")
    rows = []
    for num_nodes, num_columns in SIZES:
        if num_nodes <= arguments.most_nodes:
            rows.append(measure(num_nodes, num_columns, rate=rate, device=device))
            print(rows[-1], flush=True)
    to = arguments.to or RESULTS / f"grace_loss_{device.type}.json"
    command = shlex.join(["python", *sys.argv])
    write_record(to, bench="grace-loss", command=command, rows=rows, product_rate=rate, temperature=TEMPERATURE)


if __name__ == "__main__":
    main()
