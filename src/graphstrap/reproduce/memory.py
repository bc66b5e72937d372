"""What a method needs, before it starts: so that too much is a cell of a table and not a crash.

every method        c_1 N (F + widths)                 features and activations
GRACE, GCA          + 8 * 4 bytes * N^2                where similarities are kept, as in their own code: four N x N
                                                       matrices and their gradients
GRACE with k        + c_2 N k                          (see methods/grace.py)
MVGRL               + 3 * 4 bytes * N^2                the diffusion matrix and its solve
"""

from __future__ import annotations

import re

from graphstrap.blocks import Block
from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.recipe import Recipe
from graphstrap.sparse import SparseMatrix

_SQUARES = {"grace": 8, "gca": 8, "mvgrl": 3}
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def estimate_bytes(graph: Graph, recipe: Recipe) -> int:
    """About how much memory training takes; right within a factor of two."""
    num_nodes, method, encoder = graph.num_nodes, recipe.method, recipe.encoder
    features = sum(_feature_bytes(block) for block in graph.features if block is not None)
    widths = sum(encoder.hidden_sizes) + 2 * encoder.embedding_size + 2 * method.predictor_hidden_size
    linear = features + 16 * graph.num_edges + 4 * 2 * 5 * num_nodes * widths
    if method.name in ("grace", "gca") and method.num_negatives:
        return linear + 4 * 8 * num_nodes * method.num_negatives
    squares = _SQUARES.get(method.name, 0) if method.keep_similarities or method.name == "mvgrl" else 0
    return linear + 4 * squares * num_nodes**2


def as_published(recipe: Recipe) -> Recipe:
    """A method as its authors' code computes it: the loss is the same, the memory is not."""
    return recipe.with_settings({"method.keep_similarities": True})


def refusal(graph: Graph, recipe: Recipe, *, limit: int | None) -> str | None:
    """`OOM: needs about 37 GB of 16 GB` where the estimate exceeds the limit; None where it fits."""
    if limit is None:
        return None
    needed = estimate_bytes(graph, recipe)
    return None if needed <= limit else f"OOM: needs about {needed / 1e9:.0f} GB of {limit / 1e9:.0f} GB"


def parse_bytes(text: str) -> int:
    """`16GB` to a number of bytes."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)i?B?\s*", text, flags=re.IGNORECASE)
    if match is None:
        raise InputError(f"a memory limit is a size such as 16GB, got {text!r}")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def _feature_bytes(block: Block) -> int:
    if isinstance(block, SparseMatrix):
        return 16 * len(block.values)
    return 4 * block.shape[0] * block.shape[1]
