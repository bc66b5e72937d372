"""The probe by AdamW is PyTorch's AdamW on a linear layer, one for each decay; its score is scikit-learn's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score
from torch import Tensor, nn

from graphstrap.errors import InputError
from graphstrap.evaluation import adamw_probe as by_adamw
from graphstrap.evaluation.adamw_probe import DECAYS, fit, micro_f1, scaled_rows
from graphstrap.evaluation.protocols import evaluate
from graphstrap.evaluation.task import Vectors
from graphstrap.graph import Graph, Splits

Array = np.ndarray[Any, Any]


def make_task(*, several: bool, seed: int = 0, num_nodes: int = 240) -> tuple[Array, Array]:
    """Embeddings with a constant column and one on another scale, and labels that depend on them."""
    random = np.random.default_rng(seed)
    h = random.standard_normal((num_nodes, 6)) * [1, 1, 1, 1, 30, 0] + [0, 0, 0, 0, 5, 2]
    scores = h[:, :4] @ random.standard_normal((4, 5)) + 0.5 * random.standard_normal((num_nodes, 5))
    return h, (scores > 0.7).astype(np.uint8) if several else scores.argmax(1)


def make_graph(labels: Array, *, num_splits: int = 1) -> Graph:
    part = (torch.arange(len(labels))[:, None] + torch.arange(num_splits)[None, :]) % 4
    splits = Splits(part < 2, part == 2, part == 3)
    return replace(Graph.from_edges([0], [1], num_nodes=len(labels), labels=labels), splits=splits)


def plainly_fitted(x: Tensor, targets: Tensor, *, num_classes: int, decay: float) -> nn.Linear:
    """The same, as PyTorch does it: a layer, a loss and an optimiser."""
    layer = nn.Linear(x.shape[1], num_classes, dtype=x.dtype)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.01, weight_decay=decay)
    criterion: nn.Module = nn.BCEWithLogitsLoss() if targets.dim() == 2 else nn.CrossEntropyLoss()
    for _ in range(100):
        optimizer.zero_grad()
        criterion(layer(x), targets).backward()
        optimizer.step()
    return layer


@pytest.mark.parametrize("several", [False, True])
def test_every_decay_is_fitted_as_pytorch_would_alone(several: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_adamw, "_BLOCK_ENTRIES", 4000)  # more than one block
    h, labels = make_task(several=several)
    x = torch.nn.functional.normalize(torch.from_numpy(h), dim=1)
    targets = torch.from_numpy(labels).double() if several else torch.from_numpy(labels)
    decays = [decay for decay in DECAYS if decay < 200]
    weights = fit(torch.cat([x, torch.ones(len(x), 1)], dim=1), targets, num_classes=5, decays=tuple(decays))
    for ours, decay in zip(weights, decays, strict=True):
        layer = plainly_fitted(x, targets, num_classes=5, decay=decay)
        torch.testing.assert_close(ours[:-1], layer.weight.T.detach(), rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(ours[-1], layer.bias.detach(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("protocol", ["adamw", "adamw-reference"])
@pytest.mark.parametrize("several", [False, True])
def test_the_protocol_is_the_best_layer_on_val(protocol: str, several: bool) -> None:
    h, labels = make_task(several=several)
    graph = make_graph(labels)
    assert graph.splits is not None
    train, val, test = (getattr(graph.splits, part)[:, 0].numpy() for part in ("train", "val", "test"))
    if protocol == "adamw":
        x = h / np.linalg.norm(h, axis=1, keepdims=True)
    else:
        deviation = h[train].std(0)
        x = (h - h[train].mean(0)) / np.where(deviation > 0, deviation, 1)
    found = []
    for decay in DECAYS[:10]:  # the last one overflows
        rows, targets = torch.from_numpy(x[train]).float(), torch.from_numpy(labels[train])
        layer = plainly_fitted(rows, targets.float() if several else targets, num_classes=5, decay=decay)
        scores = layer(torch.from_numpy(x).float()).detach().numpy()
        if several:
            found.append([f1_score(labels[part], scores[part] > 0, average="micro") for part in (val, test)])
        else:
            found.append([(scores[part].argmax(1) == labels[part]).mean() for part in (val, test)])
    best = int(np.argmax([on_val for on_val, _ in found]))
    outcome = evaluate(h, graph, protocol=protocol)
    assert outcome.val_runs == pytest.approx([100 * found[best][0]])
    assert outcome.runs == pytest.approx([100 * found[best][1]])
    assert outcome.metric == ("micro-f1" if several else "accuracy")
    assert "AdamW" in str(outcome)
    assert outcome.to_dict()["val_runs"] == list(outcome.val_runs)


def test_decays_that_overflow_are_never_chosen() -> None:
    h, labels = make_task(several=False)
    x = torch.from_numpy(h).float()
    weights = fit(x, torch.from_numpy(labels), num_classes=5)
    assert dict(zip(DECAYS, weights.isfinite().flatten(1).all(1).tolist(), strict=True)) == {
        2.0**power: power < 10 for power in (-10, -8, -6, -4, -2, 0, 2, 4, 6, 8, 10)
    }
    assert evaluate(h, make_graph(labels), protocol="adamw-reference").val_runs[0] > 50


def test_micro_f1_is_scikit_learns() -> None:
    random = np.random.default_rng(0)
    for rate in (0.0, 0.1, 0.9):
        predicted, truth = random.random((50, 7)) < rate, random.random((50, 7)) < 0.3
        ours = micro_f1(torch.from_numpy(predicted), torch.from_numpy(truth))
        assert float(ours) == pytest.approx(f1_score(truth, predicted, average="micro"))
    nothing = torch.zeros(4, 3, dtype=torch.bool)
    assert float(micro_f1(nothing, nothing)) == 0.0


def test_columns_are_scaled_by_the_training_nodes_alone() -> None:
    h, _ = make_task(several=False)
    train = np.arange(0, 100)
    x = scaled_rows(Vectors.of(h), train, scaling="column")(train)[:, :-1]
    torch.testing.assert_close(x.mean(0), torch.zeros(6), atol=1e-5, rtol=0)
    torch.testing.assert_close(x[:, :5].std(0, correction=0), torch.ones(5))
    assert not x[:, 5].any()  # a constant column says nothing


def test_every_published_split_is_a_run_and_sparse_rows_are_taken() -> None:
    import scipy.sparse

    h, labels = make_task(several=True)
    outcome = evaluate(h, make_graph(labels, num_splits=3), protocol="adamw")
    assert len(outcome.runs) == len(outcome.val_runs) == 3
    sparse = scipy.sparse.csr_matrix(h)
    assert evaluate(sparse, make_graph(labels, num_splits=3), protocol="adamw").runs == pytest.approx(outcome.runs)


def test_what_is_missing_is_named() -> None:
    h, labels = make_task(several=True)
    graph = make_graph(labels)
    assert graph.splits is not None
    with pytest.raises(InputError, match="'adamw' needs published splits"):
        evaluate(h, replace(graph, splits=None), protocol="adamw")
    without = replace(graph.splits, val=torch.zeros_like(graph.splits.val))
    with pytest.raises(InputError, match="validation nodes"):
        evaluate(h, replace(graph, splits=without), protocol="adamw-reference")
    with pytest.raises(InputError, match="protocol 'adamw'"):
        evaluate(h, graph, protocol="public")
