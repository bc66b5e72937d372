"""Several processes on PyTorch's own engine: `workers.py` is who they are, `training.py` all that differs from one.

A graph in parts: `partition.py` makes them and hands them out, `exchange.py` asks other workers, `part_sampler.py` and
`part_gather.py` draw batches from all parts, `part_batches.py` puts both before the training loop.
"""
