"""Own features: what they keep."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import make_communities

from graphstrap.api.estimator import Embedder
from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.nn.features import OwnFeatures
from graphstrap.run.recipe import Recipe

BRIEF = {"train.steps": 2, "encoder.hidden_sizes": [8], "encoder.embedding_size": 8, "encoder.own_features": 3}


def test_all_columns_keep_every_angle() -> None:
    """With as many columns as features the projection is a rotation: cosines between nodes stay."""
    graph = make_communities(num_nodes=100, num_classes=3, seed=0)
    assert graph.x is not None
    dense = graph.x.to_dense() + 0.01
    graph = graph.with_features(dense)
    appended = OwnFeatures.fit(graph, num_columns=30).append_to(torch.ones(100, 2), graph)[:, 2:]
    unit = torch.nn.functional.normalize(dense, dim=1)
    torch.testing.assert_close(appended @ appended.T, unit @ unit.T, rtol=1e-3, atol=1e-4)


def test_a_weight_scales_own_columns_alone(communities: Graph, tmp_path: Path) -> None:
    plain, weighted = (
        Embedder(settings={**BRIEF, "encoder.own_weight": weight}, device="cpu").fit(communities)
        for weight in (1.0, 4.0)
    )
    expected = plain.embed(communities) * np.array([1.0] * 8 + [4.0] * 3, dtype=np.float32)
    assert np.array_equal(weighted.embed(communities), expected)
    weighted.save(tmp_path / "model")
    assert np.array_equal(Embedder.load(tmp_path / "model").embed(communities), expected)
    settings = {**BRIEF, "encoder.own_weight": 4.0, "train.steps": 1}
    warm = Embedder(settings=settings, device="cpu").fit(communities, start_from=plain).embed(communities)
    assert np.array_equal(warm[:, 8:], expected[:, 8:])


def test_more_columns_than_features_are_cut_and_several_types_refused() -> None:
    graph = make_communities(num_nodes=50, num_classes=3, seed=0)
    assert OwnFeatures.fit(graph, num_columns=500).basis.shape == (30, 30)
    with pytest.raises(InputError, match="one node type"):
        OwnFeatures.fit(graph.with_features(None), num_columns=4)
    assert np.isfinite(OwnFeatures.fit(graph, num_columns=4).basis.numpy()).all()


@pytest.mark.parametrize("is_sparse", [False, True])
def test_many_rows_are_fitted_by_some_of_them(is_sparse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make_communities(num_nodes=300, num_classes=3, seed=0)
    assert isinstance(graph.x, SparseMatrix)
    graph = graph if is_sparse else graph.with_features(graph.x.to_dense())
    all_rows = OwnFeatures.fit(graph, num_columns=3).basis
    monkeypatch.setattr("graphstrap.nn.features._ROWS_FITTED", 150)
    some_rows = OwnFeatures.fit(graph, num_columns=3).basis
    cosines = torch.linalg.svdvals(all_rows.T @ some_rows)  # of the angles between the two spaces
    assert not torch.equal(all_rows, some_rows)
    assert float(cosines.max()) > 0.9  # the leading one at least


def test_a_weight_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match=r"set encoder\.own_features too"):
        Recipe().with_settings({"encoder.own_weight": 4.0})
