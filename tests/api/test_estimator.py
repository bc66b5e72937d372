"""The estimator: scikit-learn's manners, save and load, new graphs, warm starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_communities

import graphstrap as gs
from graphstrap.api import fitting
from graphstrap.api.estimator import random_init
from graphstrap.errors import InputError
from graphstrap.nn.methods import METHODS
from graphstrap.run.recipe import Recipe

SETTINGS = {
    "encoder.hidden_sizes": [16],
    "encoder.embedding_size": 8,
    "encoder.own_features": 0,
    "method.predictor_hidden_size": 16,
    "train.steps": 25,
    "train.learning_rate": 0.01,
}


def make_estimator(**more: object) -> gs.BGRL:
    return gs.BGRL(settings={**SETTINGS, **more}, seed=0, device="cpu")


def test_fit_returns_self_and_embeds(communities: gs.Graph) -> None:
    model = make_estimator()
    assert model.fit(communities) is model
    h = model.embed(communities)
    assert h.shape == (120, 8)
    assert h.dtype == np.float32
    assert np.isfinite(h).all()


def test_same_seed_same_bits_and_labels_are_not_looked_at(communities: gs.Graph) -> None:
    first = make_estimator().fit(communities).embed(communities)
    unlabelled = replace(communities, labels=None)
    assert np.array_equal(first, make_estimator().fit(unlabelled).embed(communities))


@pytest.mark.parametrize("statistics", ["running", "recalibrated"])
def test_saved_and_loaded_models_embed_the_same_bits(communities: gs.Graph, tmp_path: Path, statistics: str) -> None:
    model = make_estimator(**{"encoder.batch_norm_statistics": statistics}).fit(communities)
    model.save(tmp_path / "model")
    again = gs.BGRL.load(tmp_path / "model", device="cpu")
    assert np.array_equal(model.embed(communities), again.embed(communities))
    assert again.recipe_ == model.recipe_


def test_a_graph_never_seen_is_embedded_without_retraining(communities: gs.Graph) -> None:
    model = make_estimator().fit(communities)
    other = make_communities(num_nodes=60, num_classes=3, seed=9)
    before = [parameter.clone() for parameter in model.model_.module.parameters()]
    assert model.embed(other).shape == (60, 8)
    assert all(torch.equal(a, b) for a, b in zip(before, model.model_.module.parameters(), strict=True))


def test_warm_start_begins_from_the_earlier_weights(communities: gs.Graph) -> None:
    first = make_estimator().fit(communities)
    cold = make_estimator(**{"train.steps": 1}).fit(communities)
    warm = make_estimator(**{"train.steps": 1}).fit(communities, start_from=first)
    h = first.embed(communities)
    assert np.abs(warm.embed(communities) - h).mean() < np.abs(cold.embed(communities) - h).mean()
    other = communities.with_features(torch.rand(120, 5))
    with pytest.raises(gs.InputError, match="same"):
        make_estimator().fit(other, start_from=first)


def test_a_warm_start_that_was_cut_resumes_warm(communities: gs.Graph, tmp_path: Path) -> None:
    first = make_estimator().fit(communities)
    whole = make_estimator().fit(communities, start_from=first, run=tmp_path / "whole")
    make_estimator().fit(communities, start_from=first, run=tmp_path / "cut")
    for name in ("model.safetensors", "checkpoint.safetensors"):  # as if cut before the first checkpoint
        (tmp_path / "cut" / name).unlink()
    resumed = gs.BGRL.resume(tmp_path / "cut", communities)
    assert np.array_equal(whole.embed(communities), resumed.embed(communities))


def test_nothing_is_left_behind_when_fit_cannot_begin(communities: gs.Graph, tmp_path: Path) -> None:
    first = make_estimator().fit(communities)
    assert communities.x is not None
    dense = communities.x.to_dense()
    poisoned = communities.with_features(dense.masked_fill(dense > 0, float("nan")))
    for graph in (communities.with_features(torch.rand(120, 5)), poisoned):
        with pytest.raises(gs.InputError):
            make_estimator().fit(graph, start_from=first, run=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(gs.InputError, match="NaN"):
        make_estimator().fit(poisoned)


def test_logged_accuracy_is_the_finished_models(communities: gs.Graph) -> None:
    settings = {"train.evaluate_every": 25, "encoder.batch_norm_statistics": "recalibrated", "encoder.own_features": 4}
    model = make_estimator(**settings).fit(communities)
    final = gs.evaluate(model.embed(communities), communities, num_runs=1).mean
    assert model.metrics_[-1]["accuracy"] == final


def test_evaluation_while_training_is_recorded(communities: gs.Graph) -> None:
    model = make_estimator(**{"train.evaluate_every": 10}).fit(communities)
    assert [record["step"] for record in model.metrics_ if "accuracy" in record] == [10, 20, 25]


def test_own_features_are_appended_and_saved(communities: gs.Graph, tmp_path: Path) -> None:
    plain = make_estimator().fit(communities).embed(communities)
    model = make_estimator(**{"encoder.own_features": 5}).fit(communities)
    h = model.embed(communities)
    assert h.shape == (120, 8 + 4 * 5)  # themselves, and over three hops
    np.testing.assert_allclose(np.linalg.norm(h[:, :8], axis=1), 1, rtol=1e-5)
    unit = plain / np.linalg.norm(plain, axis=1, keepdims=True)
    np.testing.assert_allclose(h[:, :8], unit, rtol=1e-4, atol=1e-6)
    model.save(tmp_path)
    assert np.array_equal(gs.BGRL.load(tmp_path, device="cpu").embed(communities), h)
    assert model.embed(make_communities(num_nodes=60, num_classes=3, seed=9)).shape == (60, 28)


def test_a_model_that_embeds_with_its_target_is_saved_and_resumed(communities: gs.Graph, tmp_path: Path) -> None:
    """The weights are those of a model that embeds with the other network; which one embeds is in the recipe."""
    settings = {"encoder.batch_norm_statistics": "recalibrated", "method.target_hops": 1}
    model = make_estimator(**settings, **{"method.embed_with": "target"}).fit(communities, run=tmp_path / "run")
    h = model.embed(communities)
    other = make_estimator(**settings).fit(communities)
    assert not np.array_equal(h, other.embed(communities))
    for (name, mine), theirs in zip(
        model.model_.module.named_parameters(), other.model_.module.parameters(), strict=True
    ):
        assert torch.equal(mine, theirs), name
    assert np.array_equal(gs.BGRL.load(tmp_path / "run", device="cpu").embed(communities), h)
    assert np.array_equal(gs.BGRL.resume(tmp_path / "run", communities).embed(communities), h)
    np.testing.assert_allclose(model.embed(communities, how="layers"), h, atol=1e-5)


def test_a_run_is_in_use_until_its_model_is_saved(
    communities: gs.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another that goes on with it while its statistics are made would clean up what this one is about to write."""
    run, freeze = tmp_path / "run", fitting.freeze
    refused = []

    def go_on_elsewhere(*arguments: Any, **options: Any) -> None:
        freeze(*arguments, **options)
        with pytest.raises(InputError, match="in use by") as refusal:
            gs.BGRL.resume(run, communities)
        refused.append(refusal)

    monkeypatch.setattr(fitting, "freeze", go_on_elsewhere)
    make_estimator().fit(communities, run=run)
    assert len(refused) == 1
    gs.BGRL.load(run)


def test_random_init_is_the_same_encoder_untrained(communities: gs.Graph) -> None:
    recipe = make_estimator().resolve(communities)
    h = random_init(communities, recipe, seed=0, device="cpu")
    assert h.shape == (120, 8)
    assert np.array_equal(h, random_init(communities, recipe, seed=0, device="cpu"))


def test_parameters_are_kept_as_given() -> None:
    model = gs.BGRL(recipe="cora", seed=4)
    assert model.get_params() == {"recipe": "cora", "settings": None, "seed": 4, "device": "auto"}
    assert model.set_params(seed=5).seed == 5
    with pytest.raises(ValueError, match="seeed"):
        model.set_params(seeed=5)


def test_what_is_not_fitted_says_so(communities: gs.Graph) -> None:
    with pytest.raises(gs.InputError, match="not fitted"):
        make_estimator().embed(communities)


def test_graphs_without_features_and_with_node_types_train(communities: gs.Graph) -> None:
    bare = communities.with_features(None)
    assert make_estimator().fit(bare).embed(bare).shape == (120, 8)
    typed = replace(
        communities,
        features=(torch.rand(50, 4), None),
        type_offsets=(0, 50, 120),
        node_types=("a", "b"),
    )
    assert make_estimator().fit(typed).embed(typed).shape == (120, 8)


def test_damaged_or_missing_models_give_one_sentence(communities: gs.Graph, tmp_path: Path) -> None:
    with pytest.raises(gs.InputError, match="no finished model"):
        gs.BGRL.load(tmp_path)
    make_estimator().fit(communities).save(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(gs.InputError, match="damaged"):
        gs.BGRL.load(tmp_path)


OF_ANY_METHOD = {name: value for name, value in SETTINGS.items() if not name.startswith("method.")}
NAMED = {
    "bgrl": gs.BGRL,
    "bgrl-cca": gs.BGRLCCA,
    "instant": gs.Instant,
    "grace": gs.GRACE,
    "gca": gs.GCA,
    "dgi": gs.DGI,
    "gmi": gs.GMI,
    "mvgrl": gs.MVGRL,
    "barlow-twins": gs.BarlowTwins,
    "deepwalk": gs.DeepWalk,
    "node2vec": gs.Node2Vec,
    "semi-supervised": gs.SemiSupervised,
}


@pytest.mark.parametrize("method", NAMED)
def test_a_named_estimator_is_the_general_one_with_its_method(
    communities: gs.Graph, tmp_path: Path, method: str
) -> None:
    settings = {**OF_ANY_METHOD, "train.steps": 2}
    named = NAMED[method](settings=settings, device="cpu").fit(communities)
    general = gs.Embedder(method, settings=settings, device="cpu").fit(communities)
    assert named.recipe_ == general.recipe_
    assert named.recipe_.method.name == method
    assert np.array_equal(named.embed(communities), general.embed(communities))
    named.save(tmp_path)
    assert np.array_equal(NAMED[method].load(tmp_path, device="cpu").embed(communities), named.embed(communities))
    assert gs.Embedder.load(tmp_path, device="cpu").recipe_ == named.recipe_


def test_every_method_has_an_estimator() -> None:
    assert set(NAMED) == set(METHODS)
    assert {type(one(seed=3)).__name__ for one in NAMED.values()} < set(gs.__all__)


def test_a_method_replaces_the_recipes(communities: gs.Graph) -> None:
    grace = Recipe().with_settings({**OF_ANY_METHOD, "method.name": "grace"})
    assert gs.Embedder(recipe=grace).resolve(communities).method.name == "grace"
    assert gs.DGI(recipe=grace).resolve(communities) == grace.with_settings({"method.name": "dgi"})
    assert gs.Embedder("dgi", recipe=grace).resolve(communities).method.name == "dgi"


def test_an_estimator_of_one_method_refuses_another(communities: gs.Graph, tmp_path: Path) -> None:
    for estimator in (gs.GRACE(settings={"method.name": "dgi"}), gs.Embedder("grace", settings={"method.name": "dgi"})):
        with pytest.raises(gs.InputError, match="'grace', and settings have method\\.name='dgi'"):
            estimator.fit(communities)
    gs.DGI(settings={**OF_ANY_METHOD, "train.steps": 2}, device="cpu").fit(communities, run=tmp_path / "run")
    for open_run in (gs.GRACE.load, lambda run: gs.GRACE.resume(run, communities)):
        with pytest.raises(gs.InputError, match=r"of the method dgi: take gs.DGI or gs.Embedder instead of gs.GRACE"):
            open_run(tmp_path / "run")


def test_bgrl_still_trains_another_method_and_says_what_to_take(communities: gs.Graph, tmp_path: Path) -> None:
    """As code of 0.1 asks for it."""
    settings = {**OF_ANY_METHOD, "train.steps": 2, "method.name": "grace"}
    recipe = Recipe().with_settings(settings)
    for old in (gs.BGRL(settings=settings, device="cpu"), gs.BGRL(recipe=recipe, device="cpu")):
        with pytest.warns(DeprecationWarning, match=r"asked to train grace: take gs.GRACE or gs.Embedder") as caught:
            old.fit(communities)
        assert [Path(one.filename).name for one in caught] == [Path(__file__).name]
        assert old.recipe_.method.name == "grace"
    new = gs.GRACE(settings=settings, device="cpu").fit(communities, run=tmp_path / "run")
    with pytest.warns(DeprecationWarning, match=r"is of the method grace: take gs.GRACE or gs.Embedder"):
        again = gs.BGRL.load(tmp_path / "run", device="cpu")
    assert np.array_equal(again.embed(communities), new.embed(communities))


def test_what_was_chosen_is_announced_before_training(communities: gs.Graph) -> None:
    heard: list[Any] = []
    estimator = gs.BGRL(settings=SETTINGS, device="cpu")

    def announce(recipe: Recipe, reasons: list[str]) -> None:
        assert not hasattr(estimator, "model_")
        heard.append((recipe, reasons))

    estimator.fit(communities, announce=announce)
    assert heard == [(estimator.recipe_, estimator.reasons_)]
    assert estimator.reasons_
    gs.fit_seeds(estimator, communities, seeds=[1, 2], announce=lambda *chosen: heard.append(chosen))
    assert heard[1] == heard[0]


def test_estimators_are_cloned_and_shown_by_what_was_given(communities: gs.Graph) -> None:
    from sklearn.base import clone

    model = gs.GRACE(settings=OF_ANY_METHOD, seed=4).set_params(device="cpu")
    assert repr(gs.GRACE(seed=4)) == "GRACE(seed=4)"
    assert repr(gs.Embedder("dgi")) == "Embedder(method='dgi')"
    assert clone(model).get_params() == model.get_params()
    assert "method" not in model.get_params()
    assert clone(gs.Embedder("dgi", seed=2)).get_params()["method"] == "dgi"


SKLEARN_CHECKS = (
    *("check_no_attributes_set_in_init", "check_get_params_invariance", "check_set_params", "check_estimator_repr"),
    *("check_parameters_default_constructible", "check_estimator_cloneable", "check_mixin_order"),
    *("check_estimator_tags_renamed", "check_valid_tag_types"),
)


@pytest.mark.parametrize("name", SKLEARN_CHECKS)
def test_the_estimators_pass_scikit_learns_checks_that_need_no_table(name: str) -> None:
    """The others fit tables of numbers; these estimators fit graphs."""
    from sklearn.utils import estimator_checks

    for one in (gs.BGRL, gs.GRACE, gs.Embedder):
        getattr(estimator_checks, name)(one.__name__, one(settings={"train.steps": 3}))


def test_it_stands_in_a_pipeline(communities: gs.Graph) -> None:
    from sklearn.exceptions import NotFittedError
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.utils.validation import check_is_fitted

    settings = {"train.steps": 5, "encoder.hidden_sizes": [16], "encoder.embedding_size": 8}
    first = gs.BGRL(settings=settings, device="cpu")
    with pytest.raises(NotFittedError):
        check_is_fitted(first)
    pipeline = make_pipeline(first, LogisticRegression()).fit(communities, communities.labels)
    check_is_fitted(first)
    assert pipeline.predict(communities).shape == (120,)
    assert "embedding_size" in repr(first)
