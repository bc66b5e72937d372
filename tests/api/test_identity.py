"""Nothing is known by its place alone: models know their classes by name and, where they have a row for each, their
nodes by id."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import make_communities

from graphstrap.api.ensemble import answer_together
from graphstrap.api.estimator import Embedder
from graphstrap.cli._app import run as run_command
from graphstrap.errors import InputError
from graphstrap.evaluation.protocols import has_seen_test_labels
from graphstrap.evaluation.task import has_published_splits
from graphstrap.graph import Graph, Splits
from graphstrap.nn.features import id_numbers
from graphstrap.report.scores import find_out
from graphstrap.run.folder import Run

SMALL = {"encoder.hidden_sizes": [8], "encoder.embedding_size": 8, "method.predictor_hidden_size": 8, "train.steps": 4}
WALKS = {"method.name": "deepwalk", "method.walk_length": 5, "encoder.embedding_size": 8, "train.steps": 4}
NAMES = ("alpha", "beta", "gamma")


def half_labelled() -> Graph:
    graph = make_communities(num_nodes=90, num_classes=3, seed=0)
    assert graph.labels is not None
    ids = np.array([f"u{number}" for number in range(90)])
    labels = torch.where(torch.arange(90) % 5 > 0, graph.labels, -1)
    return replace(graph, labels=labels, class_names=NAMES, ids=ids)


def fitted(graph: Graph, *, method: str = "semi-supervised", steps: int = 4) -> Embedder:
    settings = {**SMALL, "method.name": method, "train.steps": steps}
    return Embedder(settings=settings, device="cpu").fit(graph)


def renamed(graph: Graph) -> Graph:
    """Class alpha is now called zeta, and comes last."""
    assert graph.labels is not None
    labels = torch.where(graph.labels >= 0, (graph.labels - 1) % 3, -1)
    return replace(graph, labels=labels, class_names=("beta", "gamma", "zeta"))


def test_rows_of_a_table_belong_to_the_nodes_they_were_learned_for(tmp_path: Path) -> None:
    graph = half_labelled()
    model = Embedder(settings=WALKS, device="cpu").fit(graph)
    model.model_.save(tmp_path)
    again = Embedder.load(tmp_path, device="cpu")
    np.testing.assert_array_equal(again.embed(graph), model.embed(graph))
    assert graph.ids is not None
    for ids in (graph.ids[::-1].copy(), np.array([f"v{number}" for number in range(90)])):
        for one in (model, again):
            with pytest.raises(InputError, match="nodes it was trained on, in their order"):
                one.embed(replace(graph, ids=ids))


def test_classes_keep_the_names_they_were_learned_by(tmp_path: Path) -> None:
    graph = half_labelled()
    fitted(graph).model_.save(tmp_path)
    model = Embedder.load(tmp_path, device="cpu")
    before, after = model.predict(graph), model.predict(renamed(graph))
    assert before.class_names == after.class_names == NAMES
    np.testing.assert_array_equal(before.probabilities, after.probabilities)
    with pytest.raises(InputError, match="warm start needs the same"):
        Embedder(settings={**SMALL, "method.name": "semi-supervised"}).fit(renamed(graph), start_from=model)


@pytest.mark.parametrize("method", ["semi-supervised", "bgrl"])
def test_models_that_answer_together_mean_the_same_nodes_and_classes(method: str) -> None:
    graph = half_labelled()
    model = fitted(graph, method=method)
    assert answer_together([(model, graph), (model, graph)]).class_names == NAMES
    assert graph.ids is not None
    moved, other = replace(graph, ids=np.roll(graph.ids, 1)), renamed(graph)
    for second in ((model, moved), (fitted(other, method=method), other)):
        with pytest.raises(InputError, match="in the same order, and the same classes"):
            answer_together([(model, graph), second])


def test_labels_that_changed_are_not_learned_from_half_way(tmp_path: Path) -> None:
    graph = half_labelled()
    estimator = Embedder(settings={**SMALL, "method.name": "semi-supervised"}, device="cpu")
    run = estimator.create_run(tmp_path / "run", estimator.build(graph)[0], graph, source={})
    assert Embedder.of_run(run, graph) is not None
    with pytest.raises(InputError, match="the labels have changed"):
        Embedder.of_run(Run.open(run.folder), renamed(graph))
    without = Embedder(settings=SMALL, device="cpu")
    other = without.create_run(tmp_path / "other", without.build(graph)[0], graph, source={})
    assert Embedder.of_run(other, renamed(graph)) is not None


def test_an_id_is_the_same_number_as_text() -> None:
    numbers = np.array([0, 7, -3, 10**17])
    np.testing.assert_array_equal(id_numbers(numbers), id_numbers(numbers.astype(str)))
    texts = np.array(["07", "+7", "7.0", " 7", "٧", "seven", "9" * 30])
    assert len({*id_numbers(texts).tolist(), 7}) == len(texts) + 1


def test_only_types_that_have_classes_are_given_any() -> None:
    x = torch.eye(6)
    graph = Graph.from_edges([0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11], x=torch.cat([x, x]))
    labels = torch.tensor([0, 1, 0, 1, 0, *[-1] * 7])
    several = replace(graph, labels=labels, node_types=("person", "firm"), type_offsets=(0, 6, 12), features=(x, x))
    assert fitted(several, method="bgrl").predict(several).nodes.tolist() == [5]


def test_scores_on_labels_that_were_learned_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = half_labelled()
    assert graph.labels is not None
    model = fitted(graph)
    assert has_seen_test_labels(model.recipe_, graph, protocol="paper")
    assert not has_seen_test_labels(fitted(graph, method="bgrl").recipe_, graph, protocol="paper")
    number = torch.arange(90)[:, None]
    split = replace(graph, splits=Splits(number % 3 == 0, number % 3 == 1, number % 3 == 2))
    assert has_published_splits(split)
    assert not has_seen_test_labels(model.recipe_, split, protocol="public")
    secret = replace(split, labels=graph.labels.masked_fill(number[:, 0] % 3 == 2, -1))
    assert not has_published_splits(secret)

    lines = [f"u{node},{node % 7},{node % 3},{'xy'[node % 2] if node % 5 else ''}" for node in range(60)]
    (tmp_path / "nodes.csv").write_text("id,a,b,label\n" + "\n".join(lines) + "\n")
    pairs = [f"u{node},u{(node + step) % 60}" for node in range(60) for step in (1, 7)]
    (tmp_path / "edges.csv").write_text("source,target\n" + "\n".join(pairs) + "\n")
    tables = ["--edges", str(tmp_path / "edges.csv"), "--nodes", str(tmp_path / "nodes.csv")]
    run, card = str(tmp_path / "run"), tmp_path / "card"
    options = ["--set", "train.steps=3", "--device", "cpu", "-q"]
    assert run_command(["fit", *tables, "--method", "semi-supervised", "--run", run, *options]) == 0
    capsys.readouterr()
    assert run_command(["evaluate", run, "--json", "--runs", "1", "--device", "cpu"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["learned_from_test_labels"] is True
    assert "has learned from labels" in said.err
    assert run_command(["card", run, "--to", str(card), "--device", "cpu"]) == 0
    text = (card / "README.md").read_text()
    assert "Learned with labels" in text
    assert "Not evaluated: it has learned from the labels at hand" in text
    assert run_command(["report", run, "--device", "cpu", "-q"]) == 0
    assert "untrained encoder" not in capsys.readouterr().out
    with ThreadPoolExecutor(1) as executor:
        scores, confusion = find_out(
            [model], graph, [model.embed(graph)], executor=executor, protocols=None, num_runs=1
        )
    assert confusion is None
    assert not scores.tables
