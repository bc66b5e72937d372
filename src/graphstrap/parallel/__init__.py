"""Several processes on PyTorch's own engine: `workers.py` is who they are, `training.py` all that differs from one.

A graph in parts: `partition.py` makes them and hands them out, `exchange.py` asks other workers, `part_sampler.py` and
`part_gather.py` draw batches from all parts, `part_batches.py` puts both before the training loop.
"""

from graphstrap.parallel.on_ray import launch_on_ray
from graphstrap.parallel.orphans import PARENT, end_with_parent, leave_to_launcher
from graphstrap.parallel.part_batches import check_parts
from graphstrap.parallel.partition import load_for, partition_graph
from graphstrap.parallel.training import check_shareable, train_in_parallel
from graphstrap.parallel.workers import ALONE, LostWorkerError, Workers, is_worker, joined, launch, num_restarts

__all__ = [
    "ALONE",
    "PARENT",
    "LostWorkerError",
    "Workers",
    "check_parts",
    "check_shareable",
    "end_with_parent",
    "is_worker",
    "joined",
    "launch",
    "launch_on_ray",
    "leave_to_launcher",
    "load_for",
    "num_restarts",
    "partition_graph",
    "train_in_parallel",
]
