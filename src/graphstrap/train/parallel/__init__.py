"""Training by several processes, which PyTorch's launcher or Ray starts, on whole graphs and on graphs in parts.

`workers.py` says which of how many a process is, `training.py` holds all that differs from one process. A graph in
parts: `partition.py` makes them and hands them out, `exchange.py` asks other workers and gathers features,
`part_batches.py` draws batches from all parts and puts them before the training loop.
"""
