"""What each host of `test_two_hosts.py` runs under torchrun: 50 steps in double precision, the losses to a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from test_parallel_training import curve_of_a_worker, recipe

from graphstrap.train.parallel.workers import joined

if __name__ == "__main__":
    with joined(torch.device("cpu")) as workers:
        losses = curve_of_a_worker(workers, recipe())["losses"]
        Path(sys.argv[1], f"{workers.rank}.json").write_text(json.dumps({"size": workers.size, "losses": losses}))
