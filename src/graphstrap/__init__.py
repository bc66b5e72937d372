"""Graphstrap: node embeddings of any graph without labels, by bootstrapping.

import graphstrap as gs

graph = gs.load("stdlib")
model = gs.BGRL(seed=0).fit(graph)
h = model.embed(graph)                      # (N, D) NumPy array
gs.evaluate(h, graph, protocol="paper")
"""

import os

# Threads that wait by spinning make training twenty times slower on a busy machine, and 4 % faster on an idle one
# (docs/LOG.md). OpenMP reads this when PyTorch is first imported, so it stands before the imports that do that.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# On a Hopper GPU PyTorch would give cuBLAS 32 MiB for every stream; no product here is faster with more than these 8.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:2:16:8")
# On a CPU PyTorch keeps the kernels of the last 1,024 shapes, twice over. Sampled batches bring new ones at every step,
# and these grew to some 500 MB that nothing used again. A step needs about a dozen. Both are read at the first product.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
os.environ.setdefault("LRU_CACHE_CAPACITY", "64")

from graphstrap import generate
from graphstrap.datasets import load
from graphstrap.errors import InputError
from graphstrap.estimator import BGRL
from graphstrap.evaluate import Evaluation, evaluate
from graphstrap.graph import Graph, Splits
from graphstrap.io.export import write_embeddings
from graphstrap.io.tables import TableOptions, read_tables
from graphstrap.many_graphs import join_graphs, take_graphs
from graphstrap.methods import add_encoder
from graphstrap.predict import Predictions
from graphstrap.recipe import Recipe
from graphstrap.recipe_files import load_recipe
from graphstrap.seeds import fit_seeds
from graphstrap.view import View, ViewSpec

__all__ = [
    "BGRL",
    "Evaluation",
    "Graph",
    "InputError",
    "Predictions",
    "Recipe",
    "Splits",
    "TableOptions",
    "View",
    "ViewSpec",
    "add_encoder",
    "evaluate",
    "fit_seeds",
    "generate",
    "join_graphs",
    "load",
    "load_recipe",
    "read_tables",
    "take_graphs",
    "write_embeddings",
]
