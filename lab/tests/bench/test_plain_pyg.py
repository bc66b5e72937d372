"""The baseline is a fair one: it learns, it has our parameters, its target gets no gradient, its views are copies."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from torch import nn

from graphstrap.errors import InputError
from graphstrap.graph import CLEAN, Graph
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.run.recipe import Recipe
from graphstrap_lab.bench.plain_pyg import PlainStep, make_view
from graphstrap_lab.bench.step import build_method, num_parameters, ours, plain_pyg

CPU = torch.device("cpu")
SMALL = Recipe().with_settings(
    {
        "encoder.hidden_sizes": [16],
        "encoder.embedding_size": 8,
        "method.predictor_hidden_size": 12,
        "train.steps": 60,
        "train.learning_rate": 1e-2,
    }
)


def plain_step(graph: Graph) -> PlainStep:
    assert isinstance(graph.x, SparseMatrix)
    return PlainStep(graph.x.to_dense(), torch.stack([graph.indices.long(), graph.targets]), recipe=SMALL)


def test_its_loss_falls(communities: Graph) -> None:
    torch.manual_seed(0)
    step = plain_step(communities)
    losses = [float(step(number)) for number in range(1, 61)]
    assert sum(losses[-10:]) < 0.75 * sum(losses[:10])


def test_its_target_moves_without_a_gradient(communities: Graph) -> None:
    step = plain_step(communities)
    before = [parameter.clone() for parameter in step.model.target.parameters()]
    step(1)
    step(2)
    assert all(parameter.grad is None for parameter in step.model.target.parameters())
    assert all(parameter.grad is not None for parameter in step.model.online.parameters())
    after = list(step.model.target.parameters())
    assert any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))


def test_it_has_as_many_parameters_as_ours(communities: Graph) -> None:
    mine = cast(nn.Module, build_method(communities, SMALL, device=CPU))
    assert num_parameters(plain_step(communities).model) == num_parameters(mine)


def test_it_computes_our_loss(communities: Graph) -> None:
    """With the same weights, and views that drop nothing."""
    plain = plain_step(communities)
    mine: Any = build_method(communities, SMALL, device=CPU)
    with torch.no_grad():
        for theirs, encoder in ((plain.model.online, mine.online), (plain.model.target, mine.target)):
            for conv, weight in zip(theirs.convs, [*encoder.input_weights, *encoder.weights], strict=True):
                cast(Any, conv).lin.weight.copy_(weight.T)
        into, _, out = cast(Any, plain.model.predictor)
        into.weight.copy_(mine.predictor.weight_1.T)
        out.weight.copy_(mine.predictor.weight_2.T)
        into.bias.copy_(mine.predictor.bias_1)
        out.bias.copy_(mine.predictor.bias_2)
    whole = (plain.x, plain.edge_index)
    expected, _ = mine.train().loss(communities, [CLEAN, CLEAN])
    torch.testing.assert_close(plain.model.train()(whole, whole), expected)


def test_a_view_is_a_copy_without_some_columns_and_edges() -> None:
    torch.manual_seed(0)
    x, edge_index = torch.ones(50, 400), torch.randint(50, (2, 4000))
    before = x.clone(), edge_index.clone()
    masked, kept = make_view(x, edge_index, edge_drop_prob=0.5, feature_mask_prob=0.25)
    assert torch.equal(x, before[0])
    assert torch.equal(edge_index, before[1])
    assert abs(float((masked[0] == 0).float().mean()) - 0.25) < 0.1
    assert (masked == masked[0]).all()  # one mask for all nodes
    assert abs(kept.shape[1] / 4000 - 0.5) < 0.05


def test_both_sides_take_steps_on_their_own_copies(communities: Graph) -> None:
    for start in (ours(communities, SMALL), plain_pyg(communities, SMALL)):
        take_step = start(CPU)
        take_step(1)
    assert communities.x is not None
    assert communities.labels is not None


@pytest.mark.parametrize(
    "setting", [{"encoder.norm": "layer"}, {"views.mask_elements": True}, {"method.projector_size": 4}]
)
def test_what_the_baseline_does_not_know_is_an_error(communities: Graph, setting: dict[str, object]) -> None:
    with pytest.raises(InputError, match="plain PyG step"):
        plain_pyg(communities, SMALL.with_settings(setting))
