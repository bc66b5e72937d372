"""Several processes on PyTorch's own engine: `workers.py` is who they are, `training.py` all that differs from one."""

from graphstrap.parallel.training import check_shareable, train_in_parallel
from graphstrap.parallel.workers import ALONE, Workers, is_worker, joined, launch, num_restarts

__all__ = ["ALONE", "Workers", "check_shareable", "is_worker", "joined", "launch", "num_restarts", "train_in_parallel"]
