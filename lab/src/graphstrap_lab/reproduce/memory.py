"""What a method needs, before it starts: so that too much is a cell of a table and not a crash.

every method        features + 16 E + a N widths       what a step keeps of each node and layer
                    + 20 F hidden + ...                 weights, their gradients, two moments, the target's
GRACE, GCA          + 10 * 4 bytes * N^2                where similarities are kept, as in their own code: four N x N
                                                        matrices, their gradients, and two on the way
GRACE with k        + c N k                             (see methods/grace.py)
MVGRL               + 5 * 4 bytes * N^2                 the diffusion matrix and its solve
GMI                 + 10 * 4 bytes * N K D              rows of the K nodes that are drawn for each (see methods/gmi.py)

a is what was measured: 10 bytes on CUDA, 16 where negatives are drawn, 25 with a GAT, 30 on a CPU. There training keeps
freed memory for its next step (`train/memory.py`); blocks of different sizes leave holes: GRACE's loss took 48 to 77
N^2 bytes at 3,000 and 5,000 nodes, and 33 to 35 where nothing is kept. Blocks of 1 GiB, which 8 N^2 bytes are from
11,586 nodes on, are given back at once: 33 N^2 at 12,000 in float32, 48 in bfloat16, whose blocks are half as large.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from graphstrap.graph import Graph
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.run.recipe import Recipe

_SQUARES = {"grace": 10, "gca": 10, "mvgrl": 5}
_CPU_SQUARES = {"kept": 18, "given back": 10}  # of GRACE and GCA
_GIVEN_BACK_BYTES = 1 << 30
_MORE = 1.1


def estimate_bytes(graph: Graph, recipe: Recipe, kind: str = "trained", *, on_cpu: bool = False) -> int:
    """About how much memory training one model takes. Of what the tables' methods took on CUDA, alone, it is 0.7 to 1.6
    times as much from 10,000 nodes on, and within 2 % where GRACE's similarities are most of it; walks take less. Of
    rows of another kind, which train no encoder without labels, it is rough, by what they took on a CPU."""
    num_nodes, encoder = graph.num_nodes, recipe.encoder
    blocks = [block for block in graph.features if block is not None]
    features = sum(16 * len(b.values) if isinstance(b, SparseMatrix) else 4 * b.shape[0] * b.shape[1] for b in blocks)
    if kind == "raw":
        return features
    if kind == "random-init":
        return estimate_bytes(graph, recipe, on_cpu=on_cpu) // 2
    if kind == "label-propagation":
        return 16 * graph.num_edges + 12 * num_nodes * max(1, graph.num_classes)
    if kind != "trained":  # a network with a layer of 64
        return 15 * features + 16 * graph.num_edges + 40 * 4 * 64 * num_nodes
    num_negatives: int = getattr(recipe.method, "num_negatives", 0)
    predictor_size: int = getattr(recipe.method, "predictor_hidden_size", 512)
    heads = encoder.num_heads if encoder.name == "gat" else 1
    layers = [max(graph.num_features), *(heads * size for size in encoder.hidden_sizes), encoder.embedding_size]
    widths: int = sum(layers[1:]) + encoder.embedding_size + 2 * predictor_size
    linear: int = features + 16 * graph.num_edges + _bytes_a_width(recipe, on_cpu=on_cpu) * num_nodes * widths
    linear += 20 * sum(size_in * size_out for size_in, size_out in pairwise(layers))
    if recipe.method.name in ("grace", "gca") and num_negatives:
        return linear + 4 * 8 * num_nodes * num_negatives
    if recipe.method.name == "gmi":
        linear += 4 * 10 * num_nodes * (num_negatives or 5) * encoder.embedding_size
    return linear + 4 * _num_squares(recipe.method, num_nodes, on_cpu=on_cpu) * num_nodes**2


def _bytes_a_width(recipe: Recipe, *, on_cpu: bool) -> int:
    """Of activations, a node and a column. Edges and walks are counted as columns of nodes."""
    encoder = recipe.encoder
    if not recipe.method_class.has_encoder or encoder.name not in ("gcn", "mean-pooling", "gat"):
        return 40
    if on_cpu:
        return 30
    return 25 if encoder.name == "gat" else 16 if getattr(recipe.method, "num_negatives", 0) else 10


def _num_squares(method: Any, num_nodes: int, *, on_cpu: bool) -> int:
    """How many N x N matrices of float32."""
    if method.name in ("grace", "gca") and not method.keep_similarities:
        return 0
    if method.name in ("grace", "gca") and on_cpu:
        return _CPU_SQUARES["given back" if 8 * num_nodes**2 >= _GIVEN_BACK_BYTES else "kept"]
    return _SQUARES.get(method.name, 0)


def as_published(recipe: Recipe) -> Recipe:
    """A method as its authors' code computes it: the loss is the same, the memory is not."""
    keeps = hasattr(recipe.method, "keep_similarities")
    return recipe.with_settings({"method.keep_similarities": True}) if keeps else recipe


def refusal(graph: Graph, recipe: Recipe, *, limit: int | None, on_cpu: bool = False) -> str | None:
    """`OOM: needs about 37 GB of 16 GB` where the estimate exceeds the limit; None where it fits."""
    if limit is None:
        return None
    return refusal_text(estimate_bytes(graph, recipe, on_cpu=on_cpu), limit)


def refusal_text(needed: int, limit: int) -> str | None:
    return None if needed <= limit else f"OOM: needs about {part_text(needed, limit)}"


def still_stands(row: Mapping[str, Any], *, limit: int | None, free: int) -> bool:
    """Whether what did not fit would not now: under the same limit or, without one, with hardly more memory free."""
    if row.get("memory_limit") != limit:
        return False
    return limit is not None or free <= _MORE * row.get("free_bytes", 0)


def part_text(needed: int, limit: int) -> str:
    """`37 GB of 16 GB`, with more digits where both would be the same."""
    texts = [f"{number / 1e9:,.0f}" if number >= 1e10 else f"{number / 1e9:.2g}" for number in (needed, limit)]
    if texts[0] == texts[1]:
        texts = [f"{number / 1e9:,.3f}" for number in (needed, limit)]
    return f"{texts[0]} GB of {texts[1]} GB"
