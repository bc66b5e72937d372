"""The reference: every product written out over the edge list, gradients by autograd. Read this one; run the others."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphstrap.graph import Graph, View
from graphstrap.graph.views import Probability, child_seed, drop_threshold, hash32, keep


class Scores(NamedTuple):
    """How much node i attends to node j over the edge e, for each of H heads, before the softmax over all j.

    score  =  leaky_relu(source_j + target_i + edge_e)
    """

    source: Tensor  # (N, H)
    target: Tensor  # (N, H)
    edge: Tensor | None = None  # (E + N, H): edges in the order of `graph.indices`, then self-loops
    slope: float = 0.2  # of the leaky ReLU below 0

    @property
    def num_heads(self) -> int:
        return int(self.source.shape[1])


def product_dtype(weight: Tensor) -> torch.dtype:
    """What dense products of this weight are computed in: autocast's choice, where it is on."""
    kind = weight.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype


def widened(x: Tensor) -> Tensor:
    return x.float() if x.dtype == torch.bfloat16 else x


def apply(function: type[torch.autograd.Function], *inputs: Any) -> Tensor:
    """A function of one result: PyTorch leaves this call untyped."""
    result: Tensor = function.apply(*inputs)  # type: ignore[no-untyped-call]
    return result


# What a view keeps, as arrays: for backends that must materialise it, and the law that the kernels are held to.

# Edges and features draw from different hashes of the view's seed, and so does each node type's feature block.
_FEATURE_STREAM = child_seed(0, 1)


def kept_edges(graph: Graph, view: View) -> Tensor | None:
    """(E,) whether each edge survives, in the order of `graph.indices`; None when all do."""
    spec = view.spec
    if not spec.drops_edges:
        return None
    edge_ids = torch.arange(graph.num_edges, device=graph.device) if graph.edge_ids is None else graph.edge_ids
    threshold = aligned_threshold(spec.edge_drop_prob, edge_ids)
    return torch.as_tensor(keep(pair_ids(graph) if spec.drop_directions_together else edge_ids, view.seed, threshold))


def missing_degrees(graph: Graph, view: View) -> Tensor | None:
    """(N,) how much of the edges that a sampled batch lacks the view would keep, on average; None where it lacks
    none."""
    if graph.missing_degrees is None or not view.spec.drops_edges:
        return graph.missing_degrees
    prob = view.spec.edge_drop_prob
    return graph.missing_degrees * (1.0 - (prob.mean() if isinstance(prob, Tensor) else prob))


def kept_columns(view: View, *, num_columns: int, block: int, device: torch.device) -> Tensor | None:
    """(F,) whether each feature column of a block survives; None when all do, or when elements are masked instead."""
    if not view.spec.masks_features or view.spec.mask_elements:
        return None
    columns = torch.arange(num_columns, device=device)
    threshold = aligned_threshold(view.spec.feature_mask_prob, columns)
    return torch.as_tensor(keep(columns, stream_seed(view.seed, feature_stream(block)), threshold))


def kept_elements(view: View, *, rows: Tensor, columns: Tensor, num_columns: int, block: int) -> Tensor | None:
    """Whether each (row, column) element survives, for global row numbers; None when elements are not masked."""
    if not view.spec.masks_features or not view.spec.mask_elements:
        return None
    threshold = aligned_threshold(view.spec.feature_mask_prob, columns)
    return torch.as_tensor(keep(rows * num_columns + columns, stream_seed(view.seed, feature_stream(block)), threshold))


def aligned_threshold(drop_prob: Probability, ids: Tensor | None) -> Tensor | int:
    """The threshold below which a hash means "dropped": one for all, or one for each of `ids` (None: 0, 1, 2, ...)."""
    if isinstance(drop_prob, Tensor) and ids is not None:
        drop_prob = drop_prob[ids.to(drop_prob.device)].to(ids.device)
    threshold = drop_threshold(drop_prob)
    return threshold if isinstance(threshold, Tensor) else int(threshold)


def pair_ids(graph: Graph) -> Tensor:
    """(E,) an id that u->v and v->u share."""
    source, target = graph.indices.long(), graph.targets
    if graph.node_ids is not None:
        source, target = graph.node_ids[source], graph.node_ids[target]
    return (torch.minimum(source, target) << 32) | torch.maximum(source, target)


def feature_stream(block: int) -> int:
    """The stream that a block's features draw from."""
    return child_seed(_FEATURE_STREAM, block)


def stream_seed(seed: int | Tensor, stream: int) -> int | Tensor:
    """The seed of one of a view's streams."""
    mixed = ((hash32(seed, stream) << 31) ^ seed) & 0x7FFF_FFFF_FFFF_FFFF
    return mixed if isinstance(mixed, Tensor) else int(mixed)


def propagate(graph: Graph, view: View, tables: Sequence[Tensor], norm: str) -> list[Tensor]:
    """A_hat h of every table over the view's edges and self-loops; see `graphstrap.ops.propagate`."""
    source, target, dtype = graph.indices.long(), graph.targets, tables[0].dtype
    weight = torch.ones(graph.num_edges, dtype=dtype, device=graph.device)  # (E,)
    if graph.edge_weights is not None:
        weight = graph.edge_weights.to(dtype)
    kept = kept_edges(graph, view)
    if kept is not None:
        weight = weight * kept

    def total(h: Tensor) -> Tensor:
        return h.index_add(0, target, weight[:, None] * h[source])

    if norm == "sum":
        return [total(h) for h in tables]
    degree = torch.ones(graph.num_nodes, dtype=dtype, device=graph.device).index_add(0, target, weight)[:, None]
    missing = missing_degrees(graph, view)
    if missing is not None:
        degree = degree + missing.to(dtype)[:, None]  # (N, 1)
    if norm == "mean":
        return [total(h) / degree for h in tables]
    scale = degree.rsqrt()
    return [scale * total(scale * h) for h in tables]


def project(graph: Graph, view: View, weights: Sequence[Tensor], block: int) -> list[Tensor]:
    """(X o mask) W of every weight for one feature block; see `graphstrap.ops.project`."""
    x = masked_features(graph, view, block, weights[0].dtype)
    return [x @ weight for weight in weights]


def masked_features(graph: Graph, view: View, block: int, dtype: torch.dtype) -> Tensor:
    """X o mask of one feature block, dense; see `graphstrap.ops.masked_features`."""
    features = graph.features[block]
    if features is None:
        raise ValueError(f"node type {graph.node_types[block]!r} has no features to project")
    x = features if isinstance(features, Tensor) else features.to_dense()  # (N_t, F)
    x = x.to(dtype)
    columns = kept_columns(view, num_columns=x.shape[1], block=block, device=x.device)
    if columns is not None:
        x = x * columns
    rows = global_rows(graph, block)[:, None].expand(x.shape)
    every_column = torch.arange(x.shape[1], device=x.device).expand(x.shape)
    elements = kept_elements(view, rows=rows, columns=every_column, num_columns=x.shape[1], block=block)
    if elements is not None:
        x = x * elements
    return x


def attend(graph: Graph, view: View, h: Tensor, scores: Scores, average: bool) -> Tensor:
    """Sums of the rows of h that each node attends to; see `graphstrap.ops.attend`."""
    weights = attention_weights(graph, view, scores)[:, :, None]  # (E + N, H, 1)
    nodes = torch.arange(graph.num_nodes, device=graph.device)
    source, target = torch.cat([graph.indices.long(), nodes]), torch.cat([graph.targets, nodes])
    table = h.reshape(len(h), scores.num_heads, -1)  # (N, H, C)
    out = torch.zeros_like(table).index_add(0, target, weights.to(h.dtype) * table[source])
    return out.mean(1) if average else out.flatten(1)


def attend_features(graph: Graph, view: View, weight: Tensor, scores: Scores) -> Tensor:
    """Attention over (X o mask) W; see `graphstrap.ops.attend_features`."""
    return attend(graph, view, project(graph, view, [weight], 0)[0], scores, False)


def attention_weights(graph: Graph, view: View, scores: Scores) -> Tensor:
    """(E + N, H) of the edges, then of the self-loops; see `graphstrap.ops.attention_weights`."""
    nodes = torch.arange(graph.num_nodes, device=graph.device)
    source, target = torch.cat([graph.indices.long(), nodes]), torch.cat([graph.targets, nodes])
    raw = scores.source[source] + scores.target[target]
    if scores.edge is not None:
        raw = raw + scores.edge
    score = F.leaky_relu(raw, scores.slope)
    kept = kept_edges(graph, view)
    if kept is not None:
        every = torch.cat([kept, kept.new_ones(len(nodes))])
        score = score.masked_fill(~every[:, None], -torch.inf)
    rows = target[:, None].expand_as(score)
    highest = torch.full_like(scores.target, -torch.inf).scatter_reduce(0, rows, score.detach(), "amax")
    weight = (score - highest[target]).exp()
    return weight / torch.zeros_like(highest).index_add(0, target, weight)[target]


def edge_means(graph: Graph, view: View, columns: Tensor) -> Tensor:
    """Means over incoming edges; see `graphstrap.ops.edge_means`."""
    kept = kept_edges(graph, view)
    stays = columns.new_ones(graph.num_edges, 1) if kept is None else kept[:, None].to(columns.dtype)
    parts = torch.cat([columns * stays, stays], dim=1)
    sums = torch.segment_reduce(parts, "sum", offsets=graph.indptr, unsafe=True)
    return sums[:, :-1] / sums[:, -1:].clamp(min=1.0)


def edges_from_nodes(graph: Graph, by_source: Tensor, by_target: Tensor) -> Tensor:
    """What both ends of an edge say; see `graphstrap.ops.edges_from_nodes`."""
    return by_source[graph.indices.long()] + by_target[graph.targets]


def nodes_from_edges(graph: Graph, view: View, messages: Tensor) -> tuple[Tensor, Tensor]:
    """Sums of messages at both ends of their edges; see `graphstrap.ops.nodes_from_edges`."""
    kept = kept_edges(graph, view)
    if kept is not None:
        messages = messages * kept[:, None]
    nothing = messages.new_zeros(graph.num_nodes, messages.shape[1])
    return nothing.index_add(0, graph.targets, messages), nothing.index_add(0, graph.indices.long(), messages)


def batch_norm_prelu(x: Tensor, norm: nn.BatchNorm1d, slope: Tensor) -> Tensor:
    """PReLU after batch norm; in training, the running statistics move."""
    assert norm.momentum is not None
    normed = F.batch_norm(
        x, norm.running_mean, norm.running_var, norm.weight, norm.bias, norm.training, norm.momentum, norm.eps
    )
    return prelu(normed, slope)


def layer_norm_prelu(x: Tensor, norm: nn.LayerNorm, slope: Tensor, shift: Tensor) -> Tensor:
    """PReLU after layer norm of x + shift."""
    normed = F.layer_norm((x + shift).to(norm.weight.dtype), norm.normalized_shape, norm.weight, norm.bias, norm.eps)
    return prelu(normed.to(x.dtype), slope)


def graph_norm_prelu(x: Tensor, graph: Graph, norm: nn.LayerNorm, slope: Tensor, shift: Tensor) -> Tensor:
    """PReLU after the norm over each graph's nodes and columns; see `graphstrap.ops.graph_norm_prelu`."""
    shifted = (x + shift).to(norm.weight.dtype)
    bounds = pairwise(graph.graph_offsets)
    normed = torch.cat([F.layer_norm(shifted[a:b], shifted[a:b].shape, eps=norm.eps) for a, b in bounds if a < b])
    return prelu((normed * norm.weight + norm.bias).to(x.dtype), slope)


def bias_prelu(x: Tensor, bias: Tensor, slope: Tensor) -> Tensor:
    """PReLU of x + bias."""
    return prelu(x + bias, slope)


def linear_prelu(x: Tensor, weight: Tensor, bias: Tensor, slope: Tensor) -> Tensor:
    """PReLU of x W + bias."""
    return prelu(x @ weight + bias, slope)


def prelu(x: Tensor, slope: Tensor) -> Tensor:
    """x where positive, slope times x elsewhere."""
    return torch.where(x > 0, x, slope.to(x.dtype) * x)


def row_cosine(q: Tensor, t: Tensor) -> Tensor:
    """cos(q_i, t_i) of every row; 0, with no gradient, where q_i is 0: there the true gradient has no bound."""
    q, t = widened(q), t.detach().to(q.dtype)
    cosine = F.cosine_similarity(q, t.to(q.dtype), dim=-1)
    return torch.where(q.detach().norm(dim=-1) > 1e-8, cosine, 0.0)


def log_total_others(keys: Tensor, *, bound: float | None = None) -> Tensor:
    """log sum over j != i of e^(k_i . k_j); all similarities are kept for the backward pass. One half of the rows after
    the other, as GRACE's two views have it: what arises in passing is then half as large."""
    halves, totals = keys.tensor_split(2), []
    for first, half in zip((0, len(halves[0])), halves, strict=True):
        similarity = widened(half @ keys.T)
        similarity.detach().diagonal(first).fill_(-torch.inf)  # e^ of which is 0, and so is its gradient
        totals.append(torch.logsumexp(similarity, dim=1))
    return torch.cat(totals)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x W + bias."""
    return torch.addmm(bias, x, weight)


def move_average(averages: list[Tensor], news: list[Tensor], weight: float | Tensor) -> None:
    """averages += weight * (news - averages)."""
    for average, new in zip(averages, news, strict=True):
        average.lerp_(new, weight)


def global_rows(graph: Graph, block: int) -> Tensor:
    """(N_t,) the global id of each row of a feature block."""
    first, last = graph.type_offsets[block], graph.type_offsets[block + 1]
    if graph.node_ids is not None:
        return graph.node_ids[first:last]
    return torch.arange(first, last, device=graph.device)
