"""Several workers train the model that one trains: gradient, loss curve, target network, resumption."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from conftest import make_communities, train
from in_processes import in_processes

from graphstrap.errors import DivergedError, InputError
from graphstrap.graph import Graph
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.nn.methods import Method, build_method
from graphstrap.ops.adamw import AdamW
from graphstrap.run.folder import Run
from graphstrap.run.recipe import Recipe
from graphstrap.train.loop import TrainingJob, make_step
from graphstrap.train.parallel.part_batches import check_shared
from graphstrap.train.parallel.training import SharedStep, train_in_parallel
from graphstrap.train.parallel.workers import ALONE, Workers
from graphstrap.train.step import EagerStep

pytestmark = pytest.mark.distributed

SETTINGS: dict[str, Any] = {
    "encoder.hidden_sizes": [16],
    "encoder.embedding_size": 8,
    "encoder.norm": "layer",
    "method.predictor_hidden_size": 16,
    "sampling.fan_outs": [4, 3],
    "sampling.batch_size": 33,  # two workers get different numbers of roots
    "sampling.disjoint": True,
    "train.steps": 50,
    "train.warmup_steps": 3,
    "train.learning_rate": 0.01,
    "train.log_every": 1,
    "train.precision": "fp32",
}


def recipe(**more: Any) -> Recipe:
    return Recipe().with_settings({**SETTINGS, **{key.replace("__", "."): value for key, value in more.items()}})


def make_graph() -> Graph:
    """In double precision."""
    graph = make_communities(num_nodes=120, num_classes=3, seed=0)
    assert isinstance(graph.x, SparseMatrix)
    return replace(graph, features=(graph.x.to_dense().double(),))


def make_method(graph: Graph, settings: Recipe) -> Method:
    more = {"num_classes": graph.num_classes} if settings.method.name == "semi-supervised" else {}
    method: Method = build_method(settings, input_sizes=graph.num_features, num_nodes=graph.num_nodes, seed=0, **more)
    return method.double()


def state_of(method: Method) -> dict[str, torch.Tensor]:
    return dict(cast(torch.nn.Module, method).state_dict())


def gradients(step: EagerStep) -> dict[str, torch.Tensor]:
    """Those of the second step, and its loss."""
    step(1)
    loss = step(2)[0]
    step.close()
    found = {name: p.grad for name, p in step.method.named_parameters() if p.grad is not None}
    return {**found, "loss": loss}


def gradients_of_a_worker(workers: Workers, settings: Recipe) -> dict[str, torch.Tensor]:
    graph = make_graph()
    return gradients(SharedStep(make_method(graph, settings), graph, recipe=settings, seed=0, workers=workers))


@pytest.mark.parametrize("norm", ["layer", "none"])
def test_halves_of_the_roots_give_the_gradient_of_the_whole_batch(tmp_path: Path, norm: str) -> None:
    settings, graph = recipe(encoder__norm=norm), make_graph()
    whole = gradients(make_step(make_method(graph, settings), graph, recipe=settings, seed=0))
    for half in in_processes(gradients_of_a_worker, settings, folder=tmp_path):
        assert half.keys() == whole.keys()
        for name, gradient in whole.items():
            assert gradient.dtype == torch.float64
            torch.testing.assert_close(half[name], gradient, rtol=1e-10, atol=1e-12, msg=name)


def test_three_workers_and_labels_too(tmp_path: Path) -> None:
    settings, graph = recipe(method__name="semi-supervised", sampling__batch_size=36), make_graph()
    whole = gradients(make_step(make_method(graph, settings), graph, recipe=settings, seed=0))
    for part in in_processes(gradients_of_a_worker, settings, folder=tmp_path, size=3):
        for name, gradient in whole.items():  # classes are scored in single precision
            torch.testing.assert_close(part[name], gradient, rtol=1e-5, atol=1e-7, msg=name)


def curve_of_a_worker(workers: Workers, settings: Recipe) -> dict[str, Any]:
    graph = make_graph()
    method = make_method(graph, settings)
    records = train_in_parallel(TrainingJob(method, 0), graph, recipe=settings, workers=workers)
    return {"losses": [record["loss"] for record in records], "state": state_of(method)}


def test_the_loss_curve_is_that_of_one_process(tmp_path: Path) -> None:
    settings, graph = recipe(), make_graph()
    method = make_method(graph, settings)
    alone = [record["loss"] for record in train(method, graph, recipe=settings, seed=0)]
    first, second = in_processes(curve_of_a_worker, settings, folder=tmp_path)
    assert len(alone) == 50
    assert first["losses"] == second["losses"] == pytest.approx(alone, rel=1e-6)
    for name, tensor in state_of(method).items():
        assert torch.equal(first["state"][name], second["state"][name]), name  # the target network's too
        torch.testing.assert_close(first["state"][name], tensor, rtol=1e-6, atol=1e-9)


def test_batch_norm_is_local_and_weights_are_not(tmp_path: Path) -> None:
    first, second = in_processes(curve_of_a_worker, recipe(encoder__norm="batch"), folder=tmp_path)
    assert first["losses"] == second["losses"]
    differ = {name for name, tensor in first["state"].items() if not torch.equal(tensor, second["state"][name])}
    assert differ
    assert all("running" in name for name in differ)


def run_of_a_worker(workers: Workers, settings: Recipe, folder: Path, cut: int) -> dict[str, Any]:
    graph = make_graph()
    run = None
    if workers.is_first:
        options: dict[str, Any] = {"recipe": settings, "source": {}, "seed": 0, "device": "cpu", "graph": graph}
        run = Run.open(folder) if folder.exists() else Run.create(folder, **options)
    steps = recipe(train__evaluate_every=cut, train__checkpoint_seconds=0.0) if cut else settings
    job = TrainingJob(make_method(graph, settings), 0, run, _cut if cut else None)
    try:
        train_in_parallel(job, graph, recipe=steps, workers=workers)
    except RuntimeError:
        assert cut
        return {}
    return state_of(job.method)


def _cut(method: Method) -> dict[str, float]:
    raise RuntimeError("power cut")


def test_workers_resume_bit_for_bit_from_the_first_ones_folder(tmp_path: Path) -> None:
    settings = recipe()
    whole = in_processes(run_of_a_worker, settings, tmp_path / "whole", 0, folder=tmp_path)
    in_processes(run_of_a_worker, settings, tmp_path / "cut", 17, folder=tmp_path)
    cut_at = [json.loads(line)["step"] for line in (tmp_path / "cut" / "metrics.jsonl").read_text().splitlines()]
    assert cut_at == list(range(1, 17))
    resumed = in_processes(run_of_a_worker, settings, tmp_path / "cut", 0, folder=tmp_path)
    for name, tensor in whole[0].items():
        assert all(torch.equal(tensor, one[name]) for one in (whole[1], *resumed)), name
    assert [record["step"] for record in Run.open(tmp_path / "cut").metrics()] == list(range(1, 51))


def poisoned_worker(workers: Workers, settings: Recipe, folder: Path) -> dict[str, Any]:
    """The second worker's loss is no number at its eighth step."""
    graph, run, count = make_graph(), None, 0
    method = make_method(graph, settings)
    if workers.is_first:
        run = Run.create(folder, recipe=settings, source={}, seed=0, device="cpu", graph=graph)
    loss_of = method.loss

    def loss(batch: Graph, views: Any) -> Any:
        nonlocal count
        count += 1
        value, stats = loss_of(batch, views)
        return value * (float("nan") if count == 8 and not workers.is_first else 1.0), stats

    cast(Any, method).loss = loss
    try:
        train_in_parallel(TrainingJob(method, 0, run), graph, recipe=settings, workers=workers)
    except DivergedError as error:
        return {"said": str(error)}
    return {"said": "nothing"}


def test_no_number_on_one_worker_stops_all_and_the_last_good_checkpoint_stays(tmp_path: Path) -> None:
    settings, folder = recipe(train__checkpoint_seconds=0.0), tmp_path / "run"
    found = in_processes(poisoned_worker, settings, folder, folder=tmp_path)
    assert all("step 8" in one["said"] and "learning_rate" in one["said"] for one in found)
    method = make_method(make_graph(), settings)
    learned = [p for p in cast(torch.nn.Module, method).parameters() if p.requires_grad]
    assert Run.open(folder).restore(cast(torch.nn.Module, method), AdamW(learned)) == 7
    assert all(bool(tensor.isfinite().all()) for tensor in state_of(method).values())


def test_one_worker_is_one_process() -> None:
    settings, graph = recipe(), make_graph()
    methods = [make_method(graph, settings) for _ in range(2)]
    train(methods[0], graph, recipe=settings, seed=0)
    train_in_parallel(TrainingJob(methods[1], 0), graph, recipe=settings, workers=ALONE)
    for name, tensor in state_of(methods[0]).items():
        torch.testing.assert_close(state_of(methods[1])[name], tensor, rtol=1e-9, atol=1e-12)


def test_what_cannot_be_shared_is_refused() -> None:
    graph = make_graph()
    job = TrainingJob(make_method(graph, recipe()), 0)
    with pytest.raises(InputError, match=r"sampling\.fan_outs"):
        check_shared(graph, recipe(sampling__fan_outs=[]), Workers(0, 2))
    with pytest.raises(InputError, match="too few roots for 2 workers"):
        train_in_parallel(job, graph, recipe=recipe(sampling__batch_size=1), workers=Workers(0, 2))
    with pytest.raises(
        InputError, match="a step has 120 of this graph's nodes for roots, too few roots for 121 workers"
    ):
        train_in_parallel(job, graph, recipe=recipe(sampling__batch_size=500), workers=Workers(0, 121))
    few_labels = recipe(method__name="semi-supervised")  # of 33 roots 3 are to have a label, and none can be without
    with pytest.raises(InputError, match="a step has 3 of this graph's nodes for roots, too few roots for 4 workers"):
        train_in_parallel(job, graph, recipe=few_labels, workers=Workers(0, 4))
