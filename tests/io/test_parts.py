"""A graph in parts: together they are the graph, each has its own rows and no others, and damage is refused."""

from __future__ import annotations

import hashlib
import json
import os
import resource
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import make_communities

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.graph.blocks import ScaledMatrix
from graphstrap.io.files import room_for_files
from graphstrap.io.generate import mag
from graphstrap.io.partition import partition_graph, time_codes
from graphstrap.io.parts import digest_of, is_parts, join_parts, open_part, read_parts_info, verify_parts
from graphstrap.io.store import open_store, write_store
from graphstrap.nn.features import FeatureTransform
from graphstrap.nn.model import Model
from graphstrap.run.defaults import choose_recipe
from same_graph import assert_same_graph, assert_same_tensor, make_full_graph, make_hetero_graph


def with_dense(dtype: str | None) -> Callable[[Path], Graph]:
    def make(folder: Path) -> Graph:
        graph = replace(make_full_graph(seed=1), features=(torch.rand(30, 5),), feature_names=None)
        write_store(graph, folder / "store", feature_dtype=dtype)
        return open_store(folder / "store")

    return make


def hetero(folder: Path) -> Graph:
    graph = make_hetero_graph(seed=0)
    return graph.with_features(*graph.features[:2], torch.rand(5, 4))


GRAPHS: dict[str, Callable[[Path], Graph]] = {
    "full": lambda folder: make_full_graph(seed=0),
    "quantised": with_dense("uint8"),
    "bf16": with_dense("bf16"),
    "hetero": hetero,
    "mag": lambda folder: mag(3e-5, num_features=4),
    "several labels": lambda folder: replace(
        make_full_graph(seed=2), labels=torch.randint(0, 2, (30, 6), dtype=torch.uint8), class_names=None
    ),
}


@pytest.mark.parametrize("how", ["random", "streaming"])
@pytest.mark.parametrize("name", GRAPHS)
def test_parts_together_are_the_graph(tmp_path: Path, name: str, how: str) -> None:
    graph = GRAPHS[name](tmp_path)
    cut = partition_graph(graph, tmp_path / "parts", 3, how=how)
    assert is_parts(tmp_path / "parts")
    joined = join_parts(tmp_path / "parts")
    wanted = graph
    if graph.edge_types is not None:  # kept in a byte each, as in a store
        wanted = replace(graph, edge_types=graph.edge_types.to(torch.uint8))
    assert_same_graph(joined, wanted)
    assert joined.fingerprint == graph.fingerprint
    assert read_parts_info(tmp_path / "parts").cut == cut.to_dict()


def test_a_part_has_the_rows_of_its_own_nodes(tmp_path: Path) -> None:
    graph = GRAPHS["full"](tmp_path)
    partition_graph(graph, tmp_path / "parts", 4, how="random")
    seen = []
    for number in range(4):
        part = open_part(tmp_path / "parts", number)
        own, nodes = part.own, part.own.node_ids
        assert nodes is not None
        assert bool((part.part_of[nodes] == number).all())
        edges = torch.cat([torch.arange(int(graph.indptr[v]), int(graph.indptr[v + 1])) for v in nodes.tolist()])
        assert torch.equal(own.indices, graph.indices[edges])
        assert_same_tensor("edge_weights", own.edge_weights, graph.edge_weights[edges])  # type: ignore[index]
        assert torch.equal(part.first_edges, graph.indptr[nodes])
        assert list(part.own_ids) == list(graph.external_ids[nodes.numpy()])
        assert (part.num_nodes, part.num_edges, part.num_classes) == (30, graph.num_edges, 3)
        seen.append(nodes)
    assert torch.equal(torch.cat(seen).sort().values, torch.arange(30))


def test_a_part_builds_the_model_of_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recipe, statistics, weights and own features, also where statistics are those of some rows."""
    for large in (False, True):
        if large:
            monkeypatch.setattr("graphstrap.graph.blocks.MANY_VALUES", 50)
            monkeypatch.setattr("graphstrap.graph.blocks.SAMPLED_ROWS", 20)
        graph = make_communities(num_nodes=60, num_classes=3, seed=0)
        assert graph.labels is not None
        graph = graph.with_features(torch.rand(60, 7) + F.one_hot(graph.labels, 7))
        partition_graph(graph, tmp_path / f"parts-{large}", 3, how="streaming")
        part = open_part(tmp_path / f"parts-{large}", 1)
        assert choose_recipe(part) == choose_recipe(graph)
        recipe = choose_recipe(graph)[0].with_settings({"encoder.own_features": 3})
        ours, theirs = (Model.build(one, recipe, seed=0).contents() for one in (part, graph))
        assert ours[1] == theirs[1]
        for key, tensor in theirs[0].items():
            assert torch.equal(ours[0][key], tensor), key
        transform = FeatureTransform.fit(graph, scaling="column", structural_size=1)
        rows, whole = transform.when_read(part.own).features[0], transform(graph).features[0]
        assert isinstance(rows, ScaledMatrix)
        wanted = whole.to_dense() if isinstance(whole, ScaledMatrix) else whole
        assert torch.equal(rows.to_dense(), wanted[part.own.node_ids])  # type: ignore[index]


def test_times_become_ranks() -> None:
    none = torch.iinfo(torch.int64).min
    assert time_codes(torch.tensor([5, none, 7, 5])).tolist() == [1, 0, 2, 1]
    assert time_codes(torch.tensor([5, 7, 5])).tolist() == [1, 2, 1]
    assert time_codes(torch.arange(200)).dtype == torch.uint8
    assert time_codes(torch.arange(300)).dtype == torch.int16
    assert time_codes(torch.arange(40_000)).dtype == torch.int32


def test_many_parts_take_two_bytes_a_node(tmp_path: Path) -> None:
    graph = make_communities(num_nodes=280, num_classes=2, seed=0)
    partition_graph(graph, tmp_path / "parts", 257, how="random")
    assert open_part(tmp_path / "parts", 256).part_of.dtype == torch.int16
    assert_same_graph(join_parts(tmp_path / "parts"), graph)


def test_more_parts_than_a_process_may_usually_open(tmp_path: Path) -> None:
    graph = make_full_graph(seed=0)
    partition_graph(graph, tmp_path / "parts", 12, how="random")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = len(os.listdir("/dev/fd")) + 100  # 12 parts map more than 200 arrays
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
        assert join_parts(tmp_path / "parts").fingerprint == graph.fingerprint
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (few, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if hard != resource.RLIM_INFINITY:
        with pytest.raises(InputError, match=f"this system allows {hard}"), room_for_files(hard, what="it"):
            pass


def test_graphs_that_cannot_be_partitioned_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a topic has no features"):
        partition_graph(make_hetero_graph(seed=0), tmp_path / "parts", 2, how="random")
    with pytest.raises(InputError, match="from 2 to 30"):
        partition_graph(make_full_graph(seed=0), tmp_path / "parts", 31, how="random")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    partition_graph(make_full_graph(seed=0), tmp_path / "parts", 2, how="random")
    return tmp_path / "parts"


def change(path: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    described = json.loads(path.read_text())
    edit(described)
    path.write_text(json.dumps(described))


BAD_JSON: dict[str, Callable[[dict[str, Any]], Any]] = {
    "format": lambda d: d.update(format="graphstrap-store"),
    "no parts": lambda d: d.update(parts=[]),
    "a path for a digest": lambda d: d.update(parts=["../../etc/passwd"] * 2),
    "digest": lambda d: d["parts"].reverse(),
    "parent": lambda d: d["arrays"].update({"../part_of": d["arrays"]["part_of"]}),
    "no map": lambda d: d["arrays"].pop("part_of"),
    "map of another size": lambda d: d["arrays"]["part_of"].update(shape=[31]),
    "map of another type": lambda d: d["arrays"]["part_of"].update(dtype="<f4"),
    "nodes": lambda d: d.update(type_offsets=[0, 31]),
    "edges": lambda d: d.update(num_edges=-1),
    "relations": lambda d: d.update(num_relations=0),
    "fingerprint": lambda d: d.update(fingerprint="../x"),
    "classes": lambda d: d.update(training_classes=[0.5]),
    "no sample": lambda d: d["arrays"].pop("sample.0.values"),
    "columns": lambda d: d["features"][0].update(columns=8),
    "no cut": lambda d: d.pop("cut"),
}


@pytest.mark.parametrize("edit", BAD_JSON.values(), ids=BAD_JSON)
def test_a_wrong_description_is_refused(parts: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    change(parts / "parts.json", edit)
    with pytest.raises(InputError, match="the store"):
        open_part(parts, 0)


def test_a_part_that_is_another_one_is_refused(parts: Path) -> None:
    os.rename(parts / "part-00000", parts / "other")
    with pytest.raises(InputError, match=r"no part\.json"):
        open_part(parts, 0)
    (parts / "part-00000").symlink_to(parts / "other")
    with pytest.raises(InputError, match="is a link"):
        open_part(parts, 0)
    (parts / "part-00000").unlink()
    os.rename(parts / "part-00001", parts / "part-00000")
    with pytest.raises(InputError, match=r"not the part that parts\.json speaks of"):
        open_part(parts, 0)


def test_damage_shows(parts: Path) -> None:
    for name in ("part_of.npy", "part-00001/nodes.npy", "part-00000/features.0.values.npy"):
        good = (parts / name).read_bytes()
        (parts / name).write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        with pytest.raises(InputError, match="does not have its checksum"):
            verify_parts(parts)
        (parts / name).write_bytes(good)
    verify_parts(parts)
    (parts / "part-00000" / "indices.npy").unlink()
    with pytest.raises(InputError, match="cannot be opened"):
        open_part(parts, 0)


def forge(parts: Path, name: str, edit: Callable[[Any], Any]) -> None:
    """Another content under checksums that are right."""
    path = parts / f"{name}.npy"
    array = np.load(path)
    edit(array)
    np.save(path, array)
    folder = path.parent
    described = folder / ("parts.json" if folder == parts else "part.json")
    digest = hashlib.sha256(array.tobytes()).hexdigest()
    change(described, lambda d: d["arrays"][path.name.removesuffix(".npy")].update(sha256=digest))
    if folder != parts:
        number = int(folder.name.removeprefix("part-"))
        change(parts / "parts.json", lambda d: d["parts"].__setitem__(number, digest_of(folder)))


FORGED: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "a part that is not there": ("part_of", lambda a: a.__setitem__(0, 9), "part_of are not all"),
    "a node elsewhere": ("part_of", lambda a: a.__setitem__(0, 1 - a[0]), "the nodes that part_of says"),
    "another node": ("part-00000/nodes", lambda a: a.__setitem__(0, 10**9), "the nodes that part_of says"),
    "a source beyond the end": ("part-00001/indices", lambda a: a.__setitem__(-1, 30), "ends of in-edges are not all"),
    "rows that fall": ("part-00000/indptr", lambda a: a.__setitem__(1, 10**6), "falls|run from"),
    "edges elsewhere": ("part-00001/first_edges", lambda a: a.__setitem__(0, 7 + a[0]), "stand in the whole"),
    "an edge type": ("part-00000/edge_types", lambda a: a.__setitem__(0, 9), "edge types are not all"),
    "another time": ("part-00000/source_time_codes", lambda a: a.__setitem__(0, 1 + a[0]), "other times"),
    "a hot node": ("hot", lambda a: a.__setitem__(0, -1), "hot nodes are not all"),
    "a feature": ("part-00000/features.0.values", lambda a: a.__setitem__(0, np.nan), "NaN or infinite"),
}


@pytest.mark.parametrize(("name", "edit", "said"), FORGED.values(), ids=FORGED)
def test_forged_numbers_are_found(parts: Path, name: str, edit: Callable[[Any], Any], said: str) -> None:
    forge(parts, name, edit)
    with pytest.raises(InputError, match=said):
        verify_parts(parts)


def test_what_memory_cannot_hold_is_not_put_together(parts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sysconf", lambda name: 10)
    with pytest.raises(InputError, match="take the whole store, or --workers 2"):
        join_parts(parts)


def test_a_place_that_is_taken_is_kept(parts: Path, tmp_path: Path) -> None:
    graph = make_full_graph(seed=3)
    with pytest.raises(InputError, match="exists"):
        partition_graph(graph, parts, 2, how="random")
    write_store(graph, tmp_path / "store")
    with pytest.raises(InputError, match=r"not a store \(no parts\.json\)"):
        partition_graph(graph, tmp_path / "store", 2, how="random", overwrite=True)
    partition_graph(graph, parts, 3, how="random", overwrite=True)
    assert join_parts(parts).fingerprint == graph.fingerprint
