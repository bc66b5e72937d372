"""Labels for the nodes that have none, by a probe; semi-supervised heads are in tests/methods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from graphstrap.api.embed import classify, embed, predict_unlabelled
from graphstrap.api.estimator import Embedder
from graphstrap.errors import InputError
from graphstrap.graph import Graph

SETTINGS = {
    "encoder.hidden_sizes": [16],
    "encoder.embedding_size": 8,
    "encoder.own_features": 0,
    "method.predictor_hidden_size": 16,
    "train.steps": 60,
    "train.learning_rate": 0.01,
}
HOW: dict[str, Any] = {"device": torch.device("cpu"), "seed": 0}


def test_the_unlabelled_are_labelled(communities: Graph) -> None:
    assert communities.labels is not None
    hidden = communities.labels.clone()
    hidden[::4] = -1
    partly = replace(communities, labels=hidden)
    estimator = Embedder(settings=SETTINGS, seed=0, device="cpu").fit(partly)
    predictions = estimator.predict(partly)
    assert predictions.nodes.tolist() == list(range(0, 120, 4))
    np.testing.assert_allclose(predictions.probabilities.sum(1), 1, rtol=1e-5)
    assert np.array_equal(predictions.labels, predictions.probabilities.argmax(1))
    assert (predictions.labels == communities.labels.numpy()[predictions.nodes]).mean() > 0.6
    h = embed(estimator.model_, partly, device=torch.device("cpu"))
    again = predict_unlabelled(estimator.model_, partly, **HOW, h=h)
    assert np.array_equal(again.probabilities, predictions.probabilities)


def test_classes_that_are_told_apart_without_doubt_are_probable(communities: Graph) -> None:
    assert communities.labels is not None
    estimator = Embedder(settings={**SETTINGS, "train.steps": 2}, seed=0, device="cpu").fit(communities)
    hidden = communities.labels.clone()
    hidden[::4] = -1
    known_apart = np.eye(3)[communities.labels.numpy()]
    partly = replace(communities, labels=hidden)
    predictions = predict_unlabelled(estimator.model_, partly, **HOW, h=known_apart)
    assert np.array_equal(predictions.labels, communities.labels.numpy()[predictions.nodes])
    assert predictions.probabilities.max(1).min() > 0.95


def test_what_cannot_be_predicted_is_said(communities: Graph) -> None:
    estimator = Embedder(settings={**SETTINGS, "train.steps": 2}, seed=0, device="cpu").fit(communities)
    one_class = torch.full((120,), -1)
    one_class[0] = 0
    for labels, words in [
        (communities.labels, "every node has a label"),
        (None, "one label column"),
        (one_class, "at least two classes, got 1 labelled node of one"),
        (torch.full((120,), -1), "at least two classes, got no labelled node"),
    ]:
        with pytest.raises(InputError, match=words):
            predict_unlabelled(estimator.model_, replace(communities, labels=labels), **HOW)
    with pytest.raises(InputError, match="bgrl-cca learns no classes"):
        classify(estimator.model_, communities, [0], device=torch.device("cpu"))
