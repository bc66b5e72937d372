"""Laws of attention entropy: 0 for uniform, the least for one neighbour alone, the mean over layers and heads."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import torch
from conftest import make_random_graph
from torch import Tensor

from graphstrap_lab.reproduce.attention import attention_entropy, with_self_loops

INDPTR = torch.tensor([0, 3, 4, 9, 11])


def random_weights(indptr: Tensor, *, num_heads: int, seed: int, sharpness: float = 1.0) -> Tensor:
    scores = sharpness * torch.randn(int(indptr[-1]), num_heads, generator=torch.Generator().manual_seed(seed))
    pieces = torch.split(scores, indptr.diff().tolist())
    return torch.cat([piece.softmax(0) for piece in pieces])


def test_uniform_attention_has_none_and_a_single_neighbour_the_least() -> None:
    lengths = INDPTR.diff()
    uniform = torch.repeat_interleave(1.0 / lengths, lengths)[:, None].expand(-1, 4)
    torch.testing.assert_close(attention_entropy([(uniform, INDPTR)]), torch.zeros(4).double(), atol=1e-6, rtol=0)
    sharp = torch.zeros(11, 2)
    sharp[INDPTR[:-1]] = 1.0
    torch.testing.assert_close(attention_entropy([(sharp, INDPTR)]), -lengths.double().log())


def test_equals_scipy_averaged_over_layers_and_heads() -> None:
    layers = [(random_weights(INDPTR, num_heads=heads, seed=heads), INDPTR) for heads in (4, 4, 6)]
    expected = []
    for row in range(4):
        first, last = int(INDPTR[row]), int(INDPTR[row + 1])
        by_layer = [scipy.stats.entropy(weights[first:last].double().numpy(), axis=0).mean() for weights, _ in layers]
        expected.append(np.mean(by_layer) - np.log(last - first))
    np.testing.assert_allclose(attention_entropy(layers).numpy(), expected, rtol=1e-6)


def test_sharper_attention_has_less() -> None:
    found = [
        attention_entropy([(random_weights(INDPTR, num_heads=8, seed=0, sharpness=sharpness), INDPTR)])
        for sharpness in (0.1, 1.0, 10.0)
    ]
    rows = INDPTR.diff() > 1  # a node without neighbours has no choice
    assert bool((found[0][rows] > found[1][rows]).all())
    assert bool((found[1][rows] > found[2][rows]).all())
    assert bool((found[0][~rows] == 0).all())


def test_self_loops_join_the_edges_of_their_rows() -> None:
    graph = make_random_graph(num_nodes=12, num_edges=40, seed=0)
    degrees = graph.in_degrees + 1
    edges, loops = torch.rand(graph.num_edges, 3), torch.rand(12, 3)
    weights, indptr = with_self_loops(edges, loops, graph.indptr)
    assert torch.equal(indptr.diff(), degrees)
    for node in range(12):
        row = weights[indptr[node] : indptr[node + 1]]
        expected = torch.cat([loops[node : node + 1], edges[graph.indptr[node] : graph.indptr[node + 1]]])
        assert torch.equal(row, expected)


def test_wrong_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="10 rows of weights"):
        attention_entropy([(torch.ones(10, 1), INDPTR)])
    with pytest.raises(ValueError, match="at least one layer"):
        attention_entropy([])
