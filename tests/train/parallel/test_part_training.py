"""Training and embedding on parts: the model of the whole store, whoever holds which rows."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_communities
from in_processes import in_processes
from safetensors.torch import load_file

from graphstrap.api.embed import choose_way, embed_part, prepare, sampled_inference
from graphstrap.api.ensemble import fit_seeds
from graphstrap.api.estimator import Embedder
from graphstrap.api.layerwise import embed_layers, recalibrate_layers
from graphstrap.errors import InputError, LostWorkerError
from graphstrap.graph import Graph
from graphstrap.io.generate import mag
from graphstrap.io.partition import partition_graph
from graphstrap.io.parts import Part, open_part
from graphstrap.io.source import Source
from graphstrap.io.store import open_store, write_store
from graphstrap.nn.model import Model
from graphstrap.run.folder import Run
from graphstrap.run.recipe import Recipe
from graphstrap.run.settings import parse_settings
from graphstrap.train.batches import Prefetcher
from graphstrap.train.loop import TrainingJob
from graphstrap.train.parallel import part_batches
from graphstrap.train.parallel.part_batches import (
    by_part,
    check_shared,
    make_part_batches,
)
from graphstrap.train.parallel.training import SharedStep, train_in_parallel
from graphstrap.train.parallel.workers import ALONE, Workers

pytestmark = pytest.mark.distributed

SMALL: dict[str, Any] = {
    "encoder.hidden_sizes": [8],
    "encoder.embedding_size": 6,
    "method.predictor_hidden_size": 8,
    "sampling.fan_outs": [4, 3],
    "sampling.batch_size": 17,
    "train.steps": 6,
    "train.warmup_steps": 1,
    "train.precision": "fp32",
}
RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    "merged": ("communities", {}),
    "by owner": ("communities", {"sampling.roots": "owner", "sampling.hot_nodes": 10, "encoder.norm": "layer"}),
    "labels and types": (
        "mag",
        {
            "method.name": "semi-supervised",
            "encoder.name": "mpnn",
            "encoder.norm": "layer",
            "encoder.num_steps": 2,
            "sampling.batch_size": 97,  # of 7,000 nodes that are embedded
            "method.unlabelled_ratio": 1.0,
            "method.label_inputs": True,
            "sampling.disjoint": True,
            "sampling.by_time": True,
            "sampling.unbiased": False,
            "sampling.prefetch": 0,
            "data.feature_scaling": "column",
        },
    ),
    "labels": (
        "communities",
        {
            "method.name": "semi-supervised",
            "encoder.norm": "layer",
            "method.unlabelled_ratio": 0.0,
            "method.label_inputs": True,
            "sampling.disjoint": True,
        },
    ),
}
EMBEDDED = ("merged", "labels and types", "labels")


def make_graph(name: str) -> Graph:
    return make_communities(num_nodes=90, num_classes=3, seed=0) if name == "communities" else mag(3e-5, num_features=5)


def recipe_of(name: str) -> Recipe:
    return Recipe().with_settings({**SMALL, **RECIPES[name][1]})


def states_of_a_worker(workers: Workers, folder: Path) -> dict[str, Any]:
    """What is learned from the parts and from the whole, and what both embed."""
    found: dict[str, Any] = {}
    for name, (graph_name, _) in RECIPES.items():
        recipe = recipe_of(name)
        sources = [Source(str(folder / f"{graph_name}.{kind}")) for kind in ("parts", "store")]
        part, whole = (source.load_for(workers.rank, workers.size) for source in sources)
        share = None
        if recipe.sampling.roots == "owner":
            share = partial(by_part, part=open_part(folder / f"{graph_name}.parts", workers.rank))
        models = [fitted(graph, recipe, workers, share) for graph in (part, whole)]
        states = [dict(model.module.state_dict()) for model in models]
        found[name] = {"equal": states[0].keys() == states[1].keys()}
        found[name]["differ"] = [key for key in states[0] if not torch.equal(states[0][key], states[1][key])]
        found[name]["moved"] = any(
            not torch.equal(states[0][key], value)
            for key, value in Model.build(whole, recipe, seed=0).module.state_dict().items()
        )
    return found


def fitted(graph: Graph, recipe: Recipe, workers: Workers, share: Any) -> Model:
    """`BGRL.fit`; where the whole graph's roots are to be shared otherwise, by its steps."""
    if share is None or graph.num_nodes != len(graph.indptr) - 1:
        return Embedder(recipe=recipe).fit(graph, workers=workers).model_
    model = Model.build(graph, recipe, seed=0)
    prepared = prepare(model, graph)
    step = SharedStep(model.method, prepared, recipe=recipe, seed=0, workers=workers)
    assert isinstance(step.batches, Prefetcher)
    step.batches.make.share = share  # type: ignore[attr-defined]
    for number in range(1, recipe.train.steps + 1):
        step(number)
    step.close()
    workers.take_module_from_first(model.module)
    return model


def write_both(folder: Path, name: str, size: int) -> None:
    write_store(make_graph(name), folder / f"{name}.store")
    partition_graph(open_store(folder / f"{name}.store"), folder / f"{name}.parts", size, how="streaming")


@pytest.mark.parametrize("size", [2, 3])
def test_parts_train_the_model_of_the_whole_store(tmp_path: Path, size: int) -> None:
    for name in ("communities", "mag"):
        write_both(tmp_path, name, size)
    for worker in in_processes(states_of_a_worker, tmp_path, folder=tmp_path, size=size):
        for name, outcome in worker.items():
            assert outcome == {"equal": True, "differ": [], "moved": True}, name


def embeddings_of_a_worker(workers: Workers, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in EMBEDDED:
        graph_name, recipe = RECIPES[name][0], recipe_of(name)
        part = open_part(folder / f"{graph_name}.parts", workers.rank)
        model = Model.build(part, recipe, seed=0)
        prepared = prepare(model, part)
        assert isinstance(prepared, Part)
        encoder = model.method.frozen
        if name == "merged":
            recalibrate_layers(encoder, prepared, workers=workers)
            found["statistics"] = dict(encoder.named_buffers())
        found[name] = torch.from_numpy(embed_part(model, prepared, workers=workers))
        found[f"{name} nodes"] = part.own.node_ids
    return found


def test_parts_are_embedded_as_the_whole_store(tmp_path: Path) -> None:
    for graph_name in ("communities", "mag"):
        write_both(tmp_path, graph_name, 2)
    workers = in_processes(embeddings_of_a_worker, tmp_path, folder=tmp_path)
    for name in EMBEDDED:
        whole = open_store(tmp_path / f"{RECIPES[name][0]}.store")
        model = Model.build(whole, recipe_of(name), seed=0)
        prepared, encoder = prepare(model, whole), model.method.frozen
        if name == "merged":
            recalibrate_layers(encoder, prepared)
            for key, buffer in encoder.named_buffers():
                torch.testing.assert_close(workers[0]["statistics"][key], buffer, rtol=1e-5, atol=1e-6)
                assert torch.equal(workers[0]["statistics"][key], workers[1]["statistics"][key])
            h = torch.from_numpy(embed_layers(encoder, prepared))
        else:  # every root has a subgraph of its own: who it is sampled with does not matter
            assert choose_way(model, prepared, device=torch.device("cpu")) == "sampled"
            h = sampled_inference(model, prepared, model.method.embed, device=torch.device("cpu"))
        nodes = torch.cat([one[f"{name} nodes"] for one in workers])
        assert torch.equal(nodes.sort().values, torch.arange(whole.num_nodes))
        got = torch.cat([one[name] for one in workers])[nodes.argsort()]
        torch.testing.assert_close(got, h, rtol=1e-4, atol=1e-5)


def test_shares_by_part_are_everything_once_and_of_equal_size(tmp_path: Path) -> None:
    write_both(tmp_path, "communities", 3)
    parts = [open_part(tmp_path / "communities.parts", number) for number in range(3)]
    for count in (1, 2, 10, 47):
        roots = torch.randperm(90, generator=torch.Generator().manual_seed(count))[:count]
        shares = [by_part(roots, part=part) for part in parts]
        assert [len(share) for share in shares] == [len(Workers(r, 3).share(roots)) for r in range(3)]
        assert torch.equal(torch.cat(shares).sort().values, roots.sort().values)
        owned = [int((part.part_of[share] == part.number).sum()) for part, share in zip(parts, shares, strict=True)]
        counts = torch.bincount(parts[0].part_of[roots].long(), minlength=3).tolist()
        assert owned == [min(have, len(share)) for have, share in zip(counts, shares, strict=True)]


def failure_of_a_worker(workers: Workers, folder: Path) -> dict[str, Any]:
    part_batches._SECONDS_TO_FINISH = 1.0
    part = open_part(folder / "communities.parts", workers.rank)
    recipe = recipe_of("merged")
    model = Model.build(part, recipe, seed=0)
    prepared = prepare(model, part)
    assert isinstance(prepared, Part)
    batches = make_part_batches(prepared, recipe=recipe, seed=0, device=torch.device("cpu"), workers=workers)
    first = torch.tensor([os.getpid()])
    workers.take_from_first([first])
    end_of_first = os.pidfd_open(int(first))
    batches(1)
    if workers.is_first:
        batches(2)
        begin = time.monotonic()
        batches.close()  # as for a full disk: the other one is not asking for batches now
        torch.save({"seconds": time.monotonic() - begin}, folder / "0.pt")
        os._exit(0)  # its thread is left behind
    assert select.select([end_of_first], [], [], 60)[0]
    with pytest.raises(LostWorkerError):
        list(map(batches, range(2, recipe.train.steps + 1)))
    batches.close()
    return {}


def test_a_worker_that_fails_ends_and_so_do_the_others(tmp_path: Path) -> None:
    write_both(tmp_path, "communities", 2)
    first, _ = in_processes(failure_of_a_worker, tmp_path, folder=tmp_path)
    assert 0.9 < first["seconds"] < 20


def refusal_of_a_worker(workers: Workers, folder: Path) -> dict[str, Any]:
    part = open_part(folder / "communities.parts", workers.rank)
    recipe = recipe_of("merged")
    method = Model.build(part, recipe, seed=0).method
    job = TrainingJob(method, 0, Run.open(folder / "run"))
    with pytest.raises(InputError if workers.is_first else LostWorkerError) as refused:
        train_in_parallel(job, part, recipe=recipe, workers=workers)
    return {"in": [entry.name for entry in refused.traceback]}


def test_a_run_in_use_is_refused_before_anybody_waits_for_a_group(tmp_path: Path) -> None:
    """Of a wait for the group's address nobody is told that the first worker has ended."""
    write_both(tmp_path, "communities", 2)
    graph = open_store(tmp_path / "communities.store")
    run = Run.create(tmp_path / "run", recipe=recipe_of("merged"), source={}, seed=0, device="cpu", graph=graph)
    with run.locked():
        for worker in in_processes(refusal_of_a_worker, tmp_path, folder=tmp_path):
            assert "locked" in worker["in"]


def test_what_parts_cannot_do_is_refused(tmp_path: Path) -> None:
    write_both(tmp_path, "communities", 2)
    source = Source(str(tmp_path / "communities.parts"))
    with pytest.raises(InputError, match="has 2 parts, one for each worker, and there are 3: give --workers 2"):
        source.load_for(0, 3)
    part = source.load_for(0, 2)
    two = Workers(0, 2)
    for settings, said in (
        ({"sampling.fan_outs": []}, "sampled batches"),
        ({"views.centrality": "degree"}, "views.centrality=degree looks at the whole graph"),
        ({"train.evaluate_every": 2}, "train.evaluate_every embeds the whole graph"),
        ({"encoder.name": "gat", "encoder.batch_norm_statistics": "recalibrated"}, "set it to running"),
    ):
        with pytest.raises(InputError, match=said):
            check_shared(part, recipe_of("merged").with_settings(settings), two)
    with pytest.raises(InputError, match="start as many as parts"):
        check_shared(part, recipe_of("merged"), ALONE)
    with pytest.raises(InputError, match="this one is whole"):
        check_shared(make_graph("communities"), recipe_of("by owner"), two)
    with pytest.raises(InputError, match="--seeds trains"):
        fit_seeds(Embedder(recipe=recipe_of("merged")), part, seeds=range(2), workers=two)


SETTINGS = ["sampling.fan_outs=[4,3]", "sampling.batch_size=64", "encoder.hidden_sizes=[16]", "train.log_every=5"]
SETTINGS += ["encoder.own_features=0"]  # which would import scikit-learn, a second a process


def model_of_a_worker(workers: Workers, store: str, settings: list[str]) -> dict[str, Any]:
    model = Embedder(settings=parse_settings(settings), device="cpu").fit(open_store(store), workers=workers).model_
    return model.contents()[0]


@pytest.mark.slow
def test_the_command_line_trains_stops_goes_on_and_embeds(tmp_path: Path) -> None:
    """SIGTERM while batches are made ahead: saved, nobody waits for anybody; the model is the uninterrupted one's."""
    write_both(tmp_path, "communities", 2)
    program = [sys.executable, "-m", "graphstrap"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    parts, store = (str(tmp_path / f"communities.{kind}") for kind in ("parts", "store"))
    settings = [*SETTINGS, "train.steps=100"]  # the signal must come before the last one
    often = [word for one in [*settings, "train.checkpoint_seconds=0.05"] for word in ("--set", one)]
    fit = ["--device", "cpu", "--quiet", *often, "--workers", "2"]
    job = subprocess.Popen([*program, "fit", parts, *fit, "--run", str(tmp_path / "cut")], env=environment)
    while not (tmp_path / "cut" / "checkpoint.safetensors").exists():
        assert job.poll() is None
        time.sleep(0.01)
    job.send_signal(signal.SIGTERM)
    assert job.wait(timeout=60) == 0
    assert not (tmp_path / "cut" / "model.safetensors").exists()
    subprocess.run([*program, "resume", str(tmp_path / "cut"), "--workers", "2", "-q"], check=True, env=environment)
    cut = load_file(tmp_path / "cut" / "model.safetensors")
    whole, _ = in_processes(model_of_a_worker, store, settings, folder=tmp_path)
    assert cut.keys() == whole.keys()
    assert [key for key in cut if not torch.equal(cut[key], whole[key]) and "running" not in key] == []
    out = ["--to", str(tmp_path / "vectors"), "--rows-per-file", "20", "--file-format", "npy"]
    subprocess.run(
        [*program, "embed", str(tmp_path / "cut"), *out, "--device", "cpu", "--workers", "2"],
        check=True,
        env=environment,
    )
    files = sorted((tmp_path / "vectors").glob("part-?????.npy"))
    ids = np.concatenate([np.load(path.with_suffix(".ids.npy")) for path in files])
    rows = np.concatenate([np.load(path) for path in files])[np.argsort(ids)]
    alone = Embedder.load(tmp_path / "cut", device="cpu").embed(Source(parts).load(), how="layers")
    np.testing.assert_allclose(rows, alone, rtol=1e-4, atol=1e-5)
