"""GRACE's loss with all negatives, forward and backward: ours against all pairs kept, as the original does it, and
against what the GPU can do.

    python lab/benchmarks/grace_loss.py --device cuda        # writes results/grace_loss_cuda.json

`kept` is PyTorch's own matrix product, exponential and sum, with every similarity held for the backward pass; it runs
in the same program, on the same keys. Products are counted as one forward and two backward, 2 M^2 D operations each for
M = 2 N rows; `of_product_rate` is that over what one large product reaches on this device, measured here as well. Bytes
are what the loss adds to the memory that the keys take.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from graphstrap.ops import log_total_others, resolve_device
from graphstrap_lab.bench.measure import time_in_turn
from harness import RESULTS, Record, compare, run

TEMPERATURE = 0.4
# Photo, Computers, CS and Physics: nodes, and columns of the projection.
SIZES = ((7_650, 256), (13_752, 128), (18_333, 256), (34_493, 128))


def draw_keys(num_nodes: int, num_columns: int, device: torch.device) -> Tensor:
    rows = torch.randn(2 * num_nodes, num_columns, generator=torch.Generator().manual_seed(0))
    keys = torch.nn.functional.normalize(rows).div(TEMPERATURE**0.5).to(device)
    return keys.bfloat16() if device.type == "cuda" else keys


def loss_and_gradient(keys: Tensor, *, keep: bool) -> None:
    keys = keys.detach().requires_grad_()
    log_total_others(keys, bound=1.0 / TEMPERATURE, keep=keep).mean().backward()  # type: ignore[no-untyped-call]


def product_rate(device: torch.device, size: int) -> float:
    """Operations a second of one large product."""
    a = torch.randn(size, size, device=device)
    a = a.bfloat16() if device.type == "cuda" else a
    timing = time_in_turn({"product": lambda: a @ a}, rounds=5, device=device)["product"]
    return 2.0 * size**3 / (timing.median_ms / 1e3)


def main(*, device: str = "auto", most_nodes: int = 10**6, to: Path | None = None) -> None:
    """Sizes of more than `most_nodes` are left out."""
    place = resolve_device(device)
    rate = product_rate(place, 8192 if place.type == "cuda" else 1024)
    print(f"one large product: {rate / 1e12:.1f} TFLOP/s")
    to = to or RESULTS / f"grace_loss_{place.type}.json"
    record = Record(to, "grace-loss", product_rate=rate, temperature=TEMPERATURE)
    for num_nodes, num_columns in SIZES:
        if num_nodes > most_nodes:
            continue
        keys = draw_keys(num_nodes, num_columns, place)
        calls = {name: partial(loss_and_gradient, keys, keep=keep) for name, keep in (("ours", False), ("kept", True))}
        row = compare(calls, rounds=5, device=place)
        operations = 3 * 2.0 * len(keys) ** 2 * num_columns
        share = round(operations / (row["ours_ms"] / 1e3) / rate, 3)
        record.add({"nodes": num_nodes, "columns": num_columns, **row, "of_product_rate": share})


if __name__ == "__main__":
    run(main)
