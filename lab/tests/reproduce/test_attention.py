"""Laws of attention entropy: 0 for uniform, the least for one neighbour alone, the mean over layers and heads."""

from __future__ import annotations

import numpy as np
import scipy.stats
import torch
from torch import Tensor

from graphstrap_lab.reproduce.entropies import attention_entropy

ROWS = torch.tensor([3, 1, 5, 2])  # neighbours and the node itself
INDPTR = torch.tensor([0, 2, 2, 6, 7])  # of the neighbours alone


def random_weights(*, num_heads: int, seed: int, sharpness: float = 1.0) -> list[Tensor]:
    """Of each node: its own first, then those of its neighbours."""
    scores = sharpness * torch.randn(int(ROWS.sum()), num_heads, generator=torch.Generator().manual_seed(seed))
    return [piece.softmax(0) for piece in torch.split(scores, ROWS.tolist())]


def layer(rows: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The weights of edges and of self-loops, as an encoder gives them."""
    return torch.cat([row[1:] for row in rows]), torch.stack([row[0] for row in rows])


def test_uniform_attention_has_none_and_a_single_neighbour_the_least() -> None:
    uniform = [torch.full((int(length), 4), 1.0 / length) for length in ROWS]
    torch.testing.assert_close(attention_entropy([layer(uniform)], INDPTR), torch.zeros(4).double(), atol=1e-6, rtol=0)
    for place in (0, -1):  # the node itself, or its last neighbour
        sharp = [torch.zeros(int(length), 2) for length in ROWS]
        for row in sharp:
            row[place] = 1.0
        torch.testing.assert_close(attention_entropy([layer(sharp)], INDPTR), -ROWS.double().log())


def test_equals_scipy_averaged_over_layers_and_heads() -> None:
    layers = [random_weights(num_heads=heads, seed=heads) for heads in (4, 4, 6)]
    expected = []
    for node in range(4):
        by_layer = [scipy.stats.entropy(rows[node].double().numpy(), axis=0).mean() for rows in layers]
        expected.append(np.mean(by_layer) - np.log(int(ROWS[node])))
    np.testing.assert_allclose(attention_entropy([layer(rows) for rows in layers], INDPTR).numpy(), expected, rtol=1e-6)


def test_sharper_attention_has_less() -> None:
    found = [
        attention_entropy([layer(random_weights(num_heads=8, seed=0, sharpness=sharpness))], INDPTR)
        for sharpness in (0.1, 1.0, 10.0)
    ]
    rows = ROWS > 1  # a node without neighbours has no choice
    assert bool((found[0][rows] > found[1][rows]).all())
    assert bool((found[1][rows] > found[2][rows]).all())
    assert bool((found[0][~rows] == 0).all())
