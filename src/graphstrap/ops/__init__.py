"""The products that training is made of, each behind one signature. The only package that knows about devices and
speed.

Backends: `torch`, the readable reference; `csr`, the fast one for a CPU; `triton`, the fast one for CUDA. The choice is
made once for each device; the environment variable GRAPHSTRAP_BACKEND forces it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor, nn

from graphstrap.errors import InputError
from graphstrap.graph import Graph, View
from graphstrap.ops import _torch
from graphstrap.ops._torch import Scores as Scores
from graphstrap.ops._torch import kept_edges
from graphstrap.ops._torch import product_dtype as product_dtype

# mypy: disable-error-code="no-any-return"
# A backend's module is found at run time, so its functions have no types.

NORMS = ("symmetric", "mean", "sum")
BACKENDS = ("torch", "csr", "triton")


class Backend(NamedTuple):
    name: str
    reason: str


@cache
def backend(device_type: str) -> Backend:
    """Which backend serves a kind of device, and why."""
    forced = os.environ.get("GRAPHSTRAP_BACKEND", "auto")
    if forced != "auto" and forced not in BACKENDS:
        raise InputError(f"GRAPHSTRAP_BACKEND must be auto, {' or '.join(BACKENDS)}, got {forced!r}")
    has_triton = device_type == "cuda" and bool(_load("triton").IS_AVAILABLE)
    if forced == "triton" and not has_triton:
        raise InputError(f"GRAPHSTRAP_BACKEND=triton needs Triton and CUDA, not {device_type}: use auto")
    if forced != "auto":
        return Backend(forced, "forced by GRAPHSTRAP_BACKEND")
    if has_triton:
        return Backend("triton", "the fastest one for cuda: masked CSR products and fused epilogues as Triton kernels")
    return Backend("csr", f"the fastest one for {device_type}: embedding_bag over CSR, no E x D intermediate")


def _backend_of(tensor: Tensor) -> ModuleType:
    """The module that serves this tensor's device. Triton's kernels add up in float32: float64 goes the other way."""
    name = backend(tensor.device.type).name
    return _load("csr" if name == "triton" and tensor.dtype == torch.float64 else name)


@cache
def _load(name: str) -> ModuleType:
    """A backend's module, imported when it is first used."""
    return import_module(f"graphstrap.ops._{name}")


def masked_features(graph: Graph, view: View, *, block: int = 0) -> Tensor:
    """(N_t, F) a node type's features, 0 where the view masks them, as a dense table: for code that has to have one."""
    return _torch.masked_features(graph, view, block, torch.float32)


def kept_edge_index(graph: Graph, view: View) -> Tensor:
    """(2, E') int64 sources and targets of the edges that the view keeps: for code that has to have them."""
    edges = torch.stack([graph.indices.long(), graph.targets])
    kept = kept_edges(graph, view)
    return edges if kept is None else edges[:, kept]


def propagate(graph: Graph, view: View, h: Tensor, *, norm: str = "symmetric") -> Tensor:
    """Sum each node's neighbours and itself over the edges that the view keeps.

    symmetric:  D^-1/2 (A + I) D^-1/2 h        mean:  D^-1 (A + I) h        sum:  (A + I) h

    D is the weighted in-degree of the masked graph plus the self-loop, at both ends. h is (N, D), and so is the result.
    """
    return propagate_all(graph, view, [h], norm=norm)[0]


def propagate_all(graph: Graph, view: View, tables: Sequence[Tensor], *, norm: str = "symmetric") -> list[Tensor]:
    """Propagate a table, or two of one shape, over one view; on CUDA that is one pass over the edges."""
    if norm not in NORMS:
        raise ValueError(f"norm must be one of {', '.join(NORMS)}, got {norm!r}")
    return _backend_of(tables[0]).propagate(graph, view, tables, norm)


def attend(graph: Graph, view: View, h: Tensor, scores: Scores, *, average: bool = False) -> Tensor:
    """Each node's attention over its neighbours and itself, along the edges that the view keeps, for H heads at once.

    out_i,k  =  sum_j  a_ij,k  h_j,k          a_i,k  =  softmax over j of leaky_relu(source_jk + target_ik + edge_ek)

    h is (N, H C), head after head, and so is the result; with `average`, (N, C), the mean over heads. Every node has
    one self-loop, besides those that the graph may hold. No E x D intermediate: memory O(N H C + E H).
    """
    _check_scores(graph, h, scores)
    return _backend_of(h).attend(graph, view, h, scores, average)


def attend_features(graph: Graph, view: View, weight: Tensor, scores: Scores) -> Tensor:
    """`attend` over the features of the only node type times a weight, (X o mask) W.

    Dense features of few columns are attended to as they are and multiplied after: the sums are then over X, not X W.
    """
    return _backend_of(weight).attend_features(graph, view, weight, scores)


def attention_weights(graph: Graph, view: View, scores: Scores) -> tuple[Tensor, Tensor]:
    """What `attend` multiplies with: (E, H) for the edges, 0 where the view drops one, and (N, H) for the self-loops.

    The weights of the edges into a node and of its self-loop add up to 1.
    """
    weights = _torch.attention_weights(graph, view, scores)
    return weights[: graph.num_edges], weights[graph.num_edges :]


def edge_means(graph: Graph, view: View, columns: Tensor) -> Tensor:
    """(N, K) the mean over each node's incoming edges that the view keeps of (E, K) columns; 0 where there are none."""
    return _torch.edge_means(graph, view, columns)


def edges_from_nodes(graph: Graph, by_source: Tensor, by_target: Tensor) -> Tensor:
    """(E, D) for the edge from j to i: by_source_j + by_target_i."""
    return _backend_of(by_source).edges_from_nodes(graph, by_source, by_target)


def nodes_from_edges(graph: Graph, view: View, messages: Tensor) -> tuple[Tensor, Tensor]:
    """The sums of the messages that each node gets and of those that it sends, (N, D) each, over the edges that the
    view keeps."""
    return _backend_of(messages).nodes_from_edges(graph, view, messages)


def project(graph: Graph, view: View, weight: Tensor, *, block: int = 0) -> Tensor:
    """Features of one node type times a weight, under the view's feature mask: (X o mask) W, of shape (N_t, D)."""
    return project_all(graph, view, [weight], block=block)[0]


def project_all(graph: Graph, view: View, weights: Sequence[Tensor], *, block: int = 0) -> list[Tensor]:
    """Project the same features by a weight, or by two of one shape."""
    return _backend_of(weights[0]).project(graph, view, weights, block)


def batch_norm_prelu(x: Tensor, norm: nn.BatchNorm1d, slope: Tensor) -> Tensor:
    """PReLU after batch norm over rows; in training the module's running statistics move."""
    module = _backend_of(x) if norm.training else _torch
    return module.batch_norm_prelu(x, norm, slope)


def layer_norm_prelu(x: Tensor, norm: nn.LayerNorm, slope: Tensor, *, shift: Tensor) -> Tensor:
    """PReLU after layer norm of x + shift."""
    return _backend_of(x).layer_norm_prelu(x, norm, slope, shift)


def graph_norm_prelu(x: Tensor, graph: Graph, norm: nn.LayerNorm, slope: Tensor, *, shift: Tensor) -> Tensor:
    """PReLU after x + shift is normalised over all nodes and columns of each graph, each column then scaled and moved.

    y = (z - mean z) / sqrt(var z + eps) * weight + bias     z: the rows of one graph, mean and var over all entries
    """
    return _backend_of(x).graph_norm_prelu(x, graph, norm, slope, shift)


def bias_prelu(x: Tensor, bias: Tensor, slope: Tensor) -> Tensor:
    """x + bias where positive, slope times it elsewhere; `slope` has shape (1,)."""
    return _backend_of(x).bias_prelu(x, bias, slope)


def linear_prelu(x: Tensor, weight: Tensor, bias: Tensor, slope: Tensor) -> Tensor:
    """PReLU of x W + bias."""
    return _backend_of(x).linear_prelu(x, weight, bias, slope)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x W + bias."""
    return _backend_of(x).linear(x, weight, bias)


def row_cosine(q: Tensor, t: Tensor) -> Tensor:
    """(N,) cosine similarity of each row of q with the same row of t. Gradient flows to q alone."""
    return _backend_of(q).row_cosine(q, t)


def log_total_others(keys: Tensor, *, bound: float | None = None, keep: bool = False) -> Tensor:
    """(M,) log of the sum over all other rows j of e^(keys_i . keys_j); at least two rows.

    Memory O(M D): the backward pass computes similarities once more. With `keep`, they are kept for it: O(M^2).

    Args:
        bound: what no |keys_i . keys_j| exceeds, where it is known; CUDA is faster by it, and needs it to be true.
    """
    keys = keys.to(product_dtype(keys))
    return (_torch if keep else _backend_of(keys)).log_total_others(keys, bound=bound)


def move_average(averages: Iterable[Tensor], news: Iterable[Tensor], *, weight: float | Tensor) -> None:
    """Move every average towards its new value, in place: averages += weight * (news - averages)."""
    moved, towards = list(averages), list(news)
    if moved:
        _backend_of(moved[0]).move_average(moved, towards, weight)


def resolve_device(name: str) -> torch.device:
    """`auto` is CUDA where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"device must be auto, cpu or cuda, got {name!r}") from error
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"device must be auto, cpu or cuda, got {name!r}")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError("device cuda was asked for, but PyTorch sees no CUDA device here: take device cpu, or auto")
    return device


def _check_scores(graph: Graph, h: Tensor, scores: Scores) -> None:
    num_nodes, heads = graph.num_nodes, scores.num_heads
    wanted = {"source": num_nodes, "target": num_nodes, "edge": graph.num_edges + num_nodes}
    for name, rows in wanted.items():
        given = getattr(scores, name)
        if given is not None and tuple(given.shape) != (rows, heads):
            raise ValueError(f"scores.{name} must be of shape {(rows, heads)}, got {tuple(given.shape)}")
    if not heads or h.shape[1] % heads:
        raise ValueError(f"{h.shape[1]} columns cannot be shared out among {heads} heads")
