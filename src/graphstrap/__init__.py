"""Graphstrap: node embeddings of any graph without labels, by bootstrapping.

import graphstrap as gs

graph = gs.load("stdlib")
model = gs.Embedder(seed=0).fit(graph)
h = model.embed(graph)                      # (N, D) NumPy array
gs.evaluate(h, graph, protocol="paper")
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

# Threads that wait by spinning make training twenty times slower on a busy machine, and 4 % faster on an idle one
# (docs/LOG.md). OpenMP reads this when PyTorch is first imported, so it is set before anything that does so.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# On a Hopper GPU PyTorch would give cuBLAS 32 MiB for every stream; no product here is faster with more than these 8.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:2:16:8")
# On a CPU PyTorch keeps the kernels of the last 1,024 shapes, twice over. Sampled batches bring new ones at every step,
# and these grew to some 500 MB that nothing used again. A step needs about a dozen. Both are read at the first product.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
os.environ.setdefault("LRU_CACHE_CAPACITY", "64")

from graphstrap.api import moved

moved.install()

if TYPE_CHECKING:
    from graphstrap.api.embed import Predictions
    from graphstrap.api.ensemble import fit_seeds
    from graphstrap.api.estimator import (
        BGRL,
        BGRLCCA,
        DGI,
        GCA,
        GMI,
        GRACE,
        MVGRL,
        BarlowTwins,
        DeepWalk,
        Embedder,
        Instant,
        Node2Vec,
        SemiSupervised,
    )
    from graphstrap.errors import InputError
    from graphstrap.evaluation.protocols import evaluate
    from graphstrap.evaluation.registry import Evaluation
    from graphstrap.graph import Graph, Splits, View, ViewSpec
    from graphstrap.graph.many import join_graphs, take_graphs
    from graphstrap.io import generate
    from graphstrap.io.datasets import load
    from graphstrap.io.export import write_embeddings
    from graphstrap.io.tables import TableOptions, read_tables
    from graphstrap.nn.encoders.from_pyg import add_encoder
    from graphstrap.run.recipe import Recipe, load_recipe

__all__ = ["BGRL", "BGRLCCA", "DGI", "GCA", "GMI", "GRACE", "MVGRL", "BarlowTwins", "DeepWalk", "Embedder", "Instant"]
__all__ += ["Node2Vec", "SemiSupervised"]
__all__ += ["Evaluation", "Graph", "InputError", "Predictions", "Recipe", "Splits", "TableOptions", "View", "ViewSpec"]
__all__ += ["add_encoder", "evaluate", "fit_seeds", "generate", "join_graphs", "load", "load_recipe", "read_tables"]
__all__ += ["take_graphs", "write_embeddings"]

# The module of each, the estimators' where no other is named: none is imported before one of its names is asked for.
_PUBLIC = dict.fromkeys(__all__, "api.estimator") | {
    "Evaluation": "evaluation.registry",
    "Graph": "graph",
    "InputError": "errors",
    "Predictions": "api.embed",
    "Recipe": "run.recipe",
    "Splits": "graph",
    "TableOptions": "io.tables",
    "View": "graph",
    "ViewSpec": "graph",
    "add_encoder": "nn.encoders.from_pyg",
    "evaluate": "evaluation.protocols",
    "fit_seeds": "api.ensemble",
    "generate": "io",
    "join_graphs": "graph.many",
    "load": "io.datasets",
    "load_recipe": "run.recipe",
    "read_tables": "io.tables",
    "take_graphs": "graph.many",
    "write_embeddings": "io.export",
}


def __getattr__(name: str) -> Any:
    if name in moved.MOVED and name not in _PUBLIC:
        return moved.find_moved(name, stacklevel=2)
    if name not in _PUBLIC:
        raise AttributeError(f"module 'graphstrap' has no attribute {name!r}")
    module = importlib.import_module(f"graphstrap.{_PUBLIC[name]}")
    globals()[name] = importlib.import_module("graphstrap.io.generate") if name == "generate" else getattr(module, name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted(__all__)
