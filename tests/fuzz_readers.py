"""Every reader of files that a user, a bad disk or a stranger can hand to Graphstrap: how to make a good input, and how
it is read. `run_case` damages a copy of the good input and reads that."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, cast

import numpy as np
import torch
from conftest import make_communities

from fuzz_mutations import change_sizes, copy_folder, mutate
from graphstrap.api.embed import embed
from graphstrap.api.ensemble import fold_folders, seed_folders
from graphstrap.api.estimator import Embedder
from graphstrap.api.shards import write_shards
from graphstrap.cli.info import describe_run
from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.io.datasets import load
from graphstrap.io.export import write_table
from graphstrap.io.npz import read_npz
from graphstrap.io.ogb import prepare_ogb
from graphstrap.io.partition import partition_graph
from graphstrap.io.parts import join_parts, open_part
from graphstrap.io.prepare import PrepareOptions
from graphstrap.io.published import read_ppi, read_wikics
from graphstrap.io.source import Source
from graphstrap.io.store import open_store, verify_store, write_store
from graphstrap.io.tables import prepare_tables, read_tables
from graphstrap.nn.methods import build_method
from graphstrap.nn.model import Model
from graphstrap.ops.adamw import AdamW
from graphstrap.report.health import check_health
from graphstrap.report.series import elapsed_seconds, training_series
from graphstrap.run.folder import Run
from graphstrap.run.recipe import Recipe, load_recipe
from graphstrap_lab.reproduce.ledger import Ledger
from raw_files import make_arrays, make_hetero_arrays, make_wikics, save_arrays, write_ppi

CPU = torch.device("cpu")
JOB = PrepareOptions(memory_bytes=600 * 10**6, threads=1)
RECIPE = Recipe().with_settings(
    {
        "encoder.hidden_sizes": [4],
        "encoder.embedding_size": 3,
        "method.predictor_hidden_size": 4,
        "data.feature_scaling": "column",
    }
)


@dataclass(frozen=True)
class Reader:
    """`make` writes a good input into an empty folder; `read` reads it, or raises an InputError."""

    make: Callable[[Path], None]
    read: Callable[[Path], object]
    share: int = 40  # of the cases; slow readers get fewer
    damage: Callable[[Path, Random], None] = mutate


def run_case(name: str, seed: int, good: Path, work: Path) -> str:
    """Damage a copy of the good input and read it: "read" or "refused"; whatever else is raised is a defect."""
    copy_folder(good, work)
    READERS[name].damage(work, Random(f"{name}:{seed}"))
    try:
        READERS[name].read(work)
    except InputError as error:
        if not 0 < len(str(error)) < 20_000:
            raise AssertionError("an error that says nothing, or as much as the file") from error
        if "tried to allocate" in str(error):
            raise AssertionError("memory was asked for before sizes were checked") from error
        return "refused"
    return "read"


def _graph() -> Graph:
    return make_communities(num_nodes=12, num_classes=2, seed=0)


# ---- graphs ----------------------------------------------------------------------------------------------------------


def _write_csv(folder: Path) -> None:
    edges = [
        "source,target,weight,time,type",
        *(f"n{i},n{(i * 3 + 1) % 8},{i}.5,2020-01-0{i + 1},t{i % 2}" for i in range(8)),
    ]
    rows = [f"n{i},{i}.25,{-i},{'ab'[i % 2]},{('train', 'val', 'test')[i % 3]},{'uv'[i // 4]}" for i in range(8)]
    (folder / "edges.csv").write_text("\n".join(edges) + "\n")
    (folder / "nodes.csv").write_text("\n".join(["id,x1,x2,label,split,type", *rows]) + "\n")


def _write_parquet(folder: Path) -> None:
    numbers = np.arange(8)
    ends = {"source": numbers, "target": (numbers * 3 + 1) % 8}
    write_table(folder / "edges.parquet", {**ends, "weight": numbers + 0.5, "type": numbers.astype(np.str_)})
    columns = {
        "id": numbers,
        "x": numbers / 4,
        "label": np.array(["a", "b"] * 4),
        "split": np.array(["train", "test"] * 4),
    }
    write_table(folder / "nodes.parquet", columns)


def _write_ogb(folder: Path) -> None:
    random = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        "paper/node_feat": random.normal(size=(9, 4)).astype(np.float16),
        "paper/node_label": np.where(np.arange(9) % 2, np.nan, np.arange(9) % 3).astype(np.float32),
        "paper/node_year": random.integers(2010, 2022, 9),
        "paper___cites___paper/edge_index": random.integers(0, 9, (2, 20)),
        "author___writes___paper/edge_index": random.integers(0, 6, (2, 15)),
        "author___affiliated_with___institution/edge_index": random.integers(0, 3, (2, 5)),
    }
    for name, array in arrays.items():
        path = folder / "processed" / f"{name}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, array)


def _write_packed(path: Path, rows: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(("\n".join(rows) + "\n").encode(), mtime=0))


def _write_ogb_splits(folder: Path) -> None:
    for part, first in (("train", 0), ("valid", 3), ("test", 6)):
        _write_packed(folder / f"{part}.csv.gz", [str(first + number) for number in range(3)])


def _write_ogb_csv(folder: Path) -> None:
    """The layout of ogbn-mag."""
    raw = folder / "raw"
    _write_packed(raw / "num-node-dict.csv.gz", ["paper,author", "9,6"])
    _write_packed(raw / "triplet-type-list.csv.gz", ["paper,cites,paper", "author,writes,paper"])
    for name, size in (("paper___cites___paper", 9), ("author___writes___paper", 6)):
        _write_packed(raw / "relations" / name / "edge.csv.gz", [f"{i % size},{(i * 5 + 1) % 9}" for i in range(20)])
    _write_packed(raw / "node-feat" / "paper" / "node-feat.csv.gz", [f"{i}.5,{-i},0.25" for i in range(9)])
    _write_packed(raw / "node-feat" / "paper" / "node_year.csv.gz", [str(2010 + i) for i in range(9)])
    _write_packed(raw / "node-label" / "paper" / "node-label.csv.gz", [str(i % 3) for i in range(9)])
    _write_ogb_splits(folder / "split" / "time" / "paper")


def _write_ogb_npz(folder: Path) -> None:
    """The layout of ogbn-papers100M."""
    random = np.random.default_rng(0)
    (folder / "raw").mkdir()
    arrays: dict[str, Any] = {
        "edge_index": random.integers(0, 9, (2, 20)),
        "node_feat": random.normal(size=(9, 4)).astype(np.float32),
        "node_year": random.integers(2010, 2022, (9, 1)),
    }
    np.savez_compressed(folder / "raw" / "data.npz", **arrays)
    np.savez_compressed(folder / "raw" / "node-label.npz", node_label=np.where(np.arange(9) % 2, np.nan, 1.0)[:, None])
    _write_ogb_splits(folder / "split" / "time")


def _read_prepared(folder: Path) -> None:
    prepare_tables(str(folder / "edges.csv"), str(folder / "nodes.csv"), str(folder / "store"), job=JOB)
    verify_store(folder / "store")
    shutil.rmtree(folder / "store")  # one that is there would be refused


def _read_ogb(folder: Path) -> None:
    prepare_ogb(str(folder), str(folder / "store"), job=JOB)
    verify_store(folder / "store")
    shutil.rmtree(folder / "store")


def _write_parts(folder: Path) -> None:
    graph = replace(_graph(), node_times=torch.arange(12) % 5)
    partition_graph(graph, folder / "p", 2, how="random")


def _read_parts(folder: Path) -> None:
    """Each part alone, as a worker opens it, and all of them together."""
    for number in range(2):
        repr(open_part(folder / "p", number))
    join_parts(folder / "p")


def _read_store(folder: Path) -> None:
    graph = open_store(folder / "s")
    repr(graph)
    verify_store(folder / "s")


# ---- what runs leave -------------------------------------------------------------------------------------------------


def _method_and_optimizer(graph: Graph) -> tuple[torch.nn.Module, AdamW]:
    method = build_method(RECIPE, input_sizes=graph.num_features, seed=0)
    learned = [p for p in method.parameters() if p.requires_grad]
    optimizer = AdamW(learned)
    for parameter in learned:
        parameter.grad = torch.ones_like(parameter)
    return method, optimizer


def _write_run(folder: Path) -> None:
    graph = _graph()
    run = Run.create(folder / "run", recipe=RECIPE, source={"dataset": "digits"}, seed=3, device="cpu", graph=graph)
    for step in (1, 2, 3):
        run.log(
            {
                "step": step,
                "loss": 1.0 / step,
                "spread": 0.5,
                "effective_rank": 2.5,
                "mean_norm": 1.0,
                "steps_per_second": 9.5,
            }
        )
    method, optimizer = _method_and_optimizer(graph)
    optimizer.step()
    run.checkpoint(method, optimizer, 3)


def _read_checkpoint(folder: Path) -> None:
    """Going on with a run: everything is restored, and a step is taken."""
    method, optimizer = _method_and_optimizer(_graph())
    step = Run.open(folder / "run").restore(method, optimizer)
    assert step >= 0
    optimizer.step()


def _read_run(folder: Path) -> None:
    """Looking at a run."""
    run = Run.open(folder / "run")
    Source.from_dict(run.info["source"])
    records = run.metrics()
    json.dumps(training_series(records, run.recipe))
    elapsed_seconds(records)
    size, steps = run.recipe.encoder.embedding_size, run.recipe.train.steps
    check_health(records, steps=steps, embedding_size=size, finished=run.is_finished)


def _write_restarts(folder: Path) -> None:
    Run.create(folder / "run", recipe=RECIPE, source={"dataset": "digits"}, seed=3, device="cpu", graph=_graph())
    rows = [{"step": step, "time": "2026-01-01T00:00:00+00:00", "pid": 7, "host": "here"} for step in (20, 50)]
    (folder / "run" / "restarts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def _read_restarts(folder: Path) -> None:
    run = Run.open(folder / "run")
    json.dumps(describe_run(run))


def _write_model(folder: Path) -> None:
    Model.build(_graph(), RECIPE, seed=0).save(folder)


def _read_model(folder: Path) -> None:
    embed(Model.load(folder), _graph(), device=CPU)


def _write_both(folder: Path) -> None:
    _write_run(folder)
    _write_model(folder)


def _read_both(folder: Path) -> None:
    """Using a model, and going on with a run: what their recipes ask for is compared with what their files hold."""
    graph, run = _graph(), Run.open(folder / "run")
    method = Embedder.of_run(run, graph)[1].module
    learned = [p for p in method.parameters() if p.requires_grad]
    run.restore(method, AdamW(learned))
    embed(Model.load(folder), graph, device=CPU)


def _write_seeds(folder: Path) -> None:
    (folder / "seeds.json").write_text(json.dumps({"seeds": [0, 1, 2]}) + "\n")
    for seed in range(3):
        (folder / f"seed-{seed}").mkdir()
        (folder / f"seed-{seed}" / "run.json").write_text("{}")


def _write_folds(folder: Path) -> None:
    (folder / "folds.json").write_text(json.dumps({"folds": 3}) + "\n")
    for number in range(3):
        (folder / f"fold-{number}").mkdir()


def _write_ledger(folder: Path) -> None:
    rows = [{"dataset": "cora", "variant": "bgrl", "settings": "a=1", "seed": seed, "mean": 80.5} for seed in range(4)]
    (folder / "ledger.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def _read_ledger(folder: Path) -> None:
    Ledger(folder / "ledger.jsonl").find(dataset="cora")


def _write_shards(folder: Path) -> None:
    _write_model(folder)
    write_shards(Model.load(folder), _graph(), folder / "out", device=CPU, rows_per_shard=5, ending="npy", how="layers")
    (folder / "out" / "part-00002.npy").unlink()


def _read_shards(folder: Path) -> None:
    """Going on with embeddings that were cut."""
    model = Model.build(_graph(), RECIPE, seed=0)
    write_shards(model, _graph(), folder / "out", device=CPU, rows_per_shard=5, ending="npy", how="layers")


def _save(name: str, make: Callable[[], dict[str, Any]]) -> Callable[[Path], None]:
    return lambda folder: cast(None, save_arrays(folder / name, make()))


READERS: dict[str, Reader] = {
    "csv": Reader(_write_csv, lambda f: read_tables(str(f / "edges.csv"), str(f / "nodes.csv")), 2),
    "parquet": Reader(_write_parquet, lambda f: read_tables(str(f / "edges.parquet"), str(f / "nodes.parquet")), 2),
    "prepare": Reader(_write_csv, _read_prepared, 1),
    "npz": Reader(_save("graph.npz", make_arrays), lambda f: read_npz(f / "graph.npz")),
    "npz-types": Reader(_save("graph.npz", make_hetero_arrays), lambda f: load(f / "graph.npz")),
    "wikics": Reader(lambda f: cast(None, (f / "data.json").write_text(json.dumps(make_wikics()))), read_wikics),
    "ppi": Reader(lambda f: cast(None, write_ppi(f)), read_ppi),
    "ogb": Reader(_write_ogb, _read_ogb, 1),
    "ogb-csv": Reader(_write_ogb_csv, _read_ogb, 1),
    "ogb-npz": Reader(_write_ogb_npz, _read_ogb, 1),
    "store": Reader(lambda f: write_store(_graph(), f / "s"), _read_store),
    "parts": Reader(_write_parts, _read_parts, 20),
    "checkpoint": Reader(_write_run, _read_checkpoint),
    "run": Reader(_write_run, _read_run),
    "model": Reader(_write_model, _read_model),
    "sizes": Reader(_write_both, _read_both, 10, change_sizes),
    "recipe": Reader(
        lambda f: cast(None, (f / "r.toml").write_text(RECIPE.to_toml())), lambda f: load_recipe(str(f / "r.toml"))
    ),
    "restarts": Reader(_write_restarts, _read_restarts, 10),
    "seeds": Reader(_write_seeds, seed_folders),
    "folds": Reader(_write_folds, fold_folders, 10),
    "ledger": Reader(_write_ledger, _read_ledger),
    "embeddings": Reader(_write_shards, _read_shards, 10),
}
