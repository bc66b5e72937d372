"""Embedding: every way gives its numbers, and a folder of files holds every row once, also when it was cut."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphstrap as gs
from graphstrap.api import shards
from graphstrap.api.embed import choose_way
from graphstrap.api.shards import write_shards
from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.io.export import write_embeddings
from graphstrap.run.recipe import Recipe

SETTINGS: dict[str, Any] = {
    "encoder.hidden_sizes": [16],
    "encoder.embedding_size": 8,
    "train.steps": 5,
    "sampling.fan_outs": [1000, 1000],
    "sampling.batch_size": 32,
}
CPU = torch.device("cpu")


@pytest.fixture
def model(communities: Graph) -> gs.BGRL:
    return gs.BGRL(settings=SETTINGS, device="cpu").fit(communities)


@pytest.mark.parametrize("how", ["layers", "sampled"])
def test_every_way_gives_the_full_numbers(model: gs.BGRL, communities: Graph, how: str) -> None:
    full = model.embed(communities, how="full")
    np.testing.assert_allclose(model.embed(communities, how=how), full, rtol=1e-4, atol=1e-5)
    assert np.array_equal(model.embed(communities), full)


def test_a_way_that_does_not_exist(model: gs.BGRL, communities: Graph) -> None:
    with pytest.raises(InputError, match="full, layers, sampled"):
        model.embed(communities, how="fast")


def test_layers_are_taken_where_a_full_pass_does_not_fit(
    model: gs.BGRL, communities: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert choose_way(model.model_, communities, device=CPU) == "full"
    monkeypatch.setattr("graphstrap.ops.memory.free_host_memory", lambda: 1000)
    assert choose_way(model.model_, communities, device=CPU) == "layers"


def test_what_an_encoder_never_saw_in_its_samples_it_does_not_see_in_embedding(communities: Graph) -> None:
    is_kept = (communities.indices.long() + communities.targets) % 3 > 0  # an edge as its reverse
    graph = replace(communities, edge_types=(~is_kept).to(torch.uint8), edge_type_names=("kept", "left out"))
    settings = {
        **SETTINGS,
        "encoder.name": "mpnn",
        "encoder.num_steps": 1,
        "encoder.own_features": 0,
        "sampling.fan_outs": [0, 0],
        "sampling.relation_fan_outs": ["kept=1000,1000"],
    }
    model = gs.BGRL(settings=settings, device="cpu").fit(graph)
    assert choose_way(model.model_, graph, device=CPU) == "sampled"
    kept = Graph.from_edges(
        communities.indices[is_kept],
        communities.targets[is_kept],
        num_nodes=communities.num_nodes,
        x=communities.x,
        directed=True,
    )
    kept = replace(
        kept, edge_types=torch.zeros(kept.num_edges, dtype=torch.uint8), edge_type_names=("kept", "left out")
    )
    np.testing.assert_allclose(model.embed(graph), model.embed(kept, how="full"), rtol=1e-4, atol=1e-5)
    summed = {**SETTINGS, "encoder.name": "mpnn", "encoder.aggregation": "sum"}
    assert choose_way(gs.BGRL(settings=summed, device="cpu").fit(graph).model_, graph, device=CPU) == "sampled"


@pytest.mark.parametrize("ending", ["npy", "parquet"])
@pytest.mark.parametrize("how", ["layers", "full"])
@pytest.mark.parametrize("own_features", [0, 4])
def test_files_hold_every_row_once(
    communities: Graph, tmp_path: Path, ending: str, how: str, own_features: int
) -> None:
    settings = {**SETTINGS, "encoder.own_features": own_features}
    model = gs.BGRL(settings=settings, device="cpu").fit(communities)
    folder = tmp_path / "out"
    width = write_shards(model.model_, communities, folder, device=CPU, rows_per_shard=50, ending=ending, how=how)
    assert width == 8 + 4 * own_features  # themselves, and over three hops
    expected = model.embed(communities)
    parts = sorted(folder.glob(f"part-?????.{ending}"))
    assert len(parts) == 3
    assert not (folder / ".layers").exists()
    if ending == "npy":
        rows = np.concatenate([np.load(part) for part in parts])
        ids = np.concatenate([np.load(part.with_suffix(".ids.npy")) for part in parts])
    else:
        duckdb = pytest.importorskip("duckdb")
        table = duckdb.sql(f"SELECT id, embedding FROM '{folder}/part-*.parquet' ORDER BY id").fetchall()
        ids, rows = np.array([row[0] for row in table]), np.array([row[1] for row in table], dtype=np.float32)
    assert np.array_equal(ids, np.arange(120))
    np.testing.assert_allclose(rows, expected, rtol=1e-4, atol=1e-5)


def test_a_cut_run_goes_on(model: gs.BGRL, communities: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Path] = []
    room = [1]

    def write_some(path: Path, ids: Any, rows: Any) -> None:
        if len(written) == room[0]:
            raise RuntimeError("power cut")
        written.append(path)
        write_embeddings(path, ids, rows)

    arguments: dict[str, Any] = {"device": CPU, "rows_per_shard": 50, "ending": "npy", "how": "layers"}
    monkeypatch.setattr(shards, "write_embeddings", write_some)
    with pytest.raises(RuntimeError, match="power cut"):
        write_shards(model.model_, communities, tmp_path / "out", **arguments)
    room[0] = 3
    write_shards(model.model_, communities, tmp_path / "out", **arguments)
    assert [path.name for path in written] == ["part-00000.npy", "part-00001.npy", "part-00002.npy"]


def test_a_cut_run_does_not_go_on_with_another_graph_or_way(model: gs.BGRL, communities: Graph, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    arguments: dict[str, Any] = {"device": CPU, "rows_per_shard": 50, "ending": "npy"}
    write_shards(model.model_, communities, folder, how="layers", **arguments)
    (folder / "part-00001.npy").unlink()
    assert isinstance(communities.x, SparseMatrix)
    other_features = communities.with_features(communities.x.select_rows(torch.arange(120).flip(0)))
    settings = {**SETTINGS, "encoder.own_features": 4}
    with_columns = gs.BGRL(settings=settings, device="cpu").fit(communities)
    for other, graph, how in (
        (model, other_features, "layers"),
        (model, communities, "sampled"),
        (with_columns, communities, "layers"),
    ):
        with pytest.raises(InputError, match="another model, graph, way"):
            write_shards(other.model_, graph, folder, how=how, **arguments)
    assert not (folder / "part-00001.npy").exists()
    write_shards(model.model_, communities, folder, how="full", **arguments)
    rows = np.concatenate([np.load(folder / f"part-{number:05}.npy") for number in range(3)])
    np.testing.assert_allclose(rows, model.embed(communities), rtol=1e-4, atol=1e-5)


def test_a_folder_of_something_else_is_left_alone(model: gs.BGRL, communities: Graph, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"device": CPU, "rows_per_shard": 50, "ending": "npy"}
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="other files"):
        write_shards(model.model_, communities, tmp_path, **arguments)
    write_shards(model.model_, communities, tmp_path / "out", **arguments)
    other = gs.BGRL(settings=SETTINGS, seed=1, device="cpu").fit(communities)
    with pytest.raises(InputError, match="another model"):
        write_shards(other.model_, communities, tmp_path / "out", **arguments)
    assert json.loads((tmp_path / "out" / "embeddings.json").read_text())["num_nodes"] == 120


def test_an_encoder_by_time_shows_no_node_what_is_newer(communities: Graph) -> None:
    graph = replace(communities, node_times=torch.arange(communities.num_nodes))
    settings = {**SETTINGS, "sampling.by_time": True, "sampling.disjoint": True}
    model = gs.BGRL(settings=settings, device="cpu").fit(graph)
    assert choose_way(model.model_, graph, device=CPU) == "sampled"
    old = graph.num_nodes // 2
    x = graph.x.to_dense() if isinstance(graph.x, SparseMatrix) else graph.x
    assert x is not None
    changed = x.clone()
    changed[old:] = 0.0
    before, after = (model.embed(replace(graph, features=(one,))) for one in (x, changed))
    np.testing.assert_array_equal(before[:old], after[:old])
    assert not np.array_equal(before[old:], after[old:])


def test_recalibrated_statistics_are_of_what_embeddings_are_made_of() -> None:
    """The encoder never sees the relation b, of which there is much more; the whole graph would show it."""
    generator = torch.Generator().manual_seed(0)
    source, target = torch.randint(300, (2, 6600), generator=generator)
    kinds = (torch.arange(6600) >= 600).long()
    x = torch.randn(300, 8, generator=generator)
    graph = Graph.from_edges(source, target, num_nodes=300, x=x, edge_types=kinds, edge_type_names=("a", "b"))
    settings = {
        "train.steps": 40,
        "encoder.hidden_sizes": [16],
        "encoder.embedding_size": 8,
        "encoder.batch_norm_decay": 0.9,
        "data.feature_scaling": "none",
        "views.edge_drop_probs": [0.0, 0.0],
        "views.feature_mask_probs": [0.0, 0.0],
        "sampling.fan_outs": [0, 0],
        "sampling.relation_fan_outs": ["a=5,5", "reverse_a=5,5"],
        "sampling.batch_size": 128,
    }
    spreads = [
        gs.BGRL(recipe=Recipe(), settings={**settings, "encoder.batch_norm_statistics": kind})
        .fit(graph)
        .embed(graph)
        .std()
        for kind in ("running", "recalibrated")
    ]
    assert spreads[1] == pytest.approx(spreads[0], rel=0.3)
