"""Several processes on PyTorch's own engine: `workers.py` is who they are, `training.py` all that differs from one."""

from graphstrap.parallel.on_ray import launch_on_ray
from graphstrap.parallel.orphans import PARENT, end_with_parent
from graphstrap.parallel.training import check_shareable, train_in_parallel
from graphstrap.parallel.workers import ALONE, LostWorkerError, Workers, is_worker, joined, launch, num_restarts

__all__ = [
    "ALONE",
    "PARENT",
    "LostWorkerError",
    "Workers",
    "check_shareable",
    "end_with_parent",
    "is_worker",
    "joined",
    "launch",
    "launch_on_ray",
    "num_restarts",
    "train_in_parallel",
]
