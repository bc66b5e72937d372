"""A source can be kept, loaded again, and extended with new tables."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.io.columns import TableOptions
from graphstrap.io.prepare import PrepareOptions
from graphstrap.io.source import Source
from graphstrap.io.tables import prepare_tables


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


@pytest.fixture
def tables(tmp_path: Path) -> Source:
    edges = write(tmp_path, "edges.csv", "a,b\nx,y\ny,z\nz,x\n")
    nodes = write(tmp_path, "nodes.csv", "name,f,g,kind\nx,1,2,red\ny,3,4,blue\nz,5,6,\n")
    return Source(edges=edges, nodes=nodes, options=TableOptions(label="kind"))


def test_a_source_survives_json_and_another_folder(
    tables: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    relative = Source(edges="edges.csv", nodes="nodes.csv", options=tables.options)
    saved = json.loads(json.dumps(relative.to_dict()))
    monkeypatch.chdir(os.sep)
    again = Source.from_dict(saved)
    assert again.options == tables.options
    assert again.load().fingerprint == tables.load().fingerprint


def test_a_run_says_which_of_its_files_has_moved(tables: Source, tmp_path: Path) -> None:
    saved = tables.to_dict()
    assert Source.from_dict(saved, run="runs/one") == tables
    Path(str(tables.nodes)).rename(tmp_path / "moved.csv")
    with pytest.raises(InputError, match=r"nodes\.csv does not exist any more.*new path into runs/one/run\.json"):
        Source.from_dict(saved, run="runs/one").load()
    assert Source.from_dict(saved | {"nodes": str(tmp_path / "moved.csv")}, run="runs/one").load().num_nodes == 3
    with pytest.raises(InputError, match=r"gone\.npz does not exist any more"):
        Source.from_dict({"dataset": str(tmp_path / "gone.npz")}, run="runs/one").load()


def test_one_source_must_be_named() -> None:
    with pytest.raises(InputError, match="name one source"):
        Source()
    with pytest.raises(InputError, match="name one source"):
        Source(dataset="digits", edges="e.csv")
    with pytest.raises(InputError, match="--nodes goes with --edges"):
        Source(dataset="digits", nodes="n.csv")
    with pytest.raises(InputError, match="where its graph came from"):
        Source.from_dict({"edges": "e.csv", "options": {"colour": "red"}})


def test_new_nodes_join_the_graph_they_name(tables: Source, tmp_path: Path) -> None:
    edges = write(tmp_path, "new_edges.csv", "a,b\nnew,x\n")
    nodes = write(tmp_path, "new_nodes.csv", "name,g,f\nnew,8,7\n")  # columns in another order, no label
    graph, wanted = tables.load_new(edges, nodes)
    assert wanted is not None
    assert graph.external_ids[wanted].tolist() == ["new"]
    assert graph.num_nodes == 4
    rows = dict(zip(graph.external_ids.tolist(), np.asarray(graph.x).tolist(), strict=True))
    assert rows == {"new": [7, 8], "x": [1, 2], "y": [3, 4], "z": [5, 6]}
    pairs = {
        (str(graph.external_ids[s]), str(graph.external_ids[t]))
        for s, t in zip(graph.indices, graph.targets, strict=True)
    }
    assert pairs == {(a, b) for x, y in ("xy", "yz", "zx") for a, b in ((x, y), (y, x))} | {("new", "x"), ("x", "new")}


def test_edges_that_name_no_new_node_are_refused(tmp_path: Path) -> None:
    """Nothing would be embedded."""
    edges = write(tmp_path, "edges.csv", "a,b\nx,y\ny,z\n")
    with pytest.raises(InputError, match="names no node that the run's graph lacks"):
        Source(edges=edges).load_new(edges, None)


def test_new_nodes_among_themselves_are_a_graph_of_their_own(tables: Source, tmp_path: Path) -> None:
    edges = write(tmp_path, "new_edges.csv", "a,b\np,q\n")
    nodes = write(tmp_path, "new_nodes.csv", "name,f,g,kind\np,1,1,red\nq,2,2,red\n")
    graph, wanted = tables.load_new(edges, nodes)
    assert wanted is None
    assert graph.external_ids.tolist() == ["p", "q"]


def test_a_known_node_takes_its_new_features(tables: Source, tmp_path: Path) -> None:
    edges = write(tmp_path, "new_edges.csv", "a,b\nx,z\n")
    nodes = write(tmp_path, "new_nodes.csv", "name,f,g\nx,10,20\n")
    graph, wanted = tables.load_new(edges, nodes)
    assert wanted is not None
    assert graph.external_ids[wanted].tolist() == ["x"]
    assert graph.num_nodes == 3
    rows = dict(zip(graph.external_ids.tolist(), np.asarray(graph.x).tolist(), strict=True))
    assert rows["x"] == [10, 20]


def test_nodes_that_nobody_knows_are_refused(tables: Source, tmp_path: Path) -> None:
    edges = write(tmp_path, "new_edges.csv", "a,b\nnew,ghost\n")
    nodes = write(tmp_path, "new_nodes.csv", "name,f,g\nnew,1,1\n")
    with pytest.raises(InputError, match="ghost") as caught:
        tables.load_new(edges, nodes)
    assert "--source-column" not in str(caught.value)  # which the verbs that take new nodes do not have
    other = write(tmp_path, "other.csv", "name,f,h\nnew,1,1\n")
    with pytest.raises(InputError, match="'g'"):
        tables.load_new(write(tmp_path, "e2.csv", "a,b\nnew,x\n"), other)
    narrow = write(tmp_path, "narrow.csv", "name,f\nnew,1\n")
    with pytest.raises(InputError, match=r"2 feature columns, and the new nodes lack 1 of them \('g'\)"):
        tables.load_new(write(tmp_path, "e3.csv", "a,b\nnew,x\n"), narrow)


def test_a_graph_of_several_types_asks_for_whole_tables(tmp_path: Path) -> None:
    edges = write(tmp_path, "edges.csv", "a,b\nx,y\ny,z\n")
    whole = Source(edges=edges, nodes=write(tmp_path, "nodes.csv", "id,type,f\nx,shop,1\ny,person,2\nz,person,3\n"))
    new = write(tmp_path, "new.csv", "id,type,f\nnew,shop,1\n")
    with pytest.raises(InputError, match=r"several node types \(person, shop\).* give the tables of the whole graph"):
        whole.load_new(write(tmp_path, "new_edges.csv", "a,b\nnew,x\n"), new)


def test_new_edges_have_weights_where_the_runs_have_them(tmp_path: Path) -> None:
    bare = write(tmp_path, "bare.csv", "a,b\n3,4\n")
    apart = write(tmp_path, "apart.csv", "a,b\n7,8\n")
    nodes = write(tmp_path, "nodes.csv", "id\n4\n")
    source = Source(edges=write(tmp_path, "edges.csv", "a,b,weight\n1,2,5\n2,3,7\n"))
    whole = write(tmp_path, "whole.csv", "id\n7\n8\n")
    for new, of_nodes in ((bare, None), (apart, None), (bare, nodes), (apart, whole)):
        with pytest.raises(InputError, match="has no column 'weight'"):
            source.load_new(new, of_nodes)
    named = replace(source, options=TableOptions(weight="w"), edges=write(tmp_path, "w.csv", "a,b,w\n1,2,5\n2,3,7\n"))
    with pytest.raises(InputError, match=r"bare\.csv has no column 'w' to use as weight"):
        named.load_new(bare, None)
    graph, _ = source.load_new(write(tmp_path, "more.csv", "a,b,weight\n3,4,9\n"), None)
    assert graph.edge_weights is not None
    assert sorted(graph.edge_weights.tolist()) == [5, 5, 7, 7, 9, 9]
    (tmp_path / "edges.csv").unlink()  # a graph of its own needs no table of the run
    assert source.load_new(apart, whole)[0].num_edges == 2


def test_graphs_without_node_tables_grow_by_edges_alone(tmp_path: Path) -> None:
    source = Source(edges=write(tmp_path, "edges.csv", "a,b\n1,2\n2,3\n"))
    graph, wanted = source.load_new(write(tmp_path, "more.csv", "a,b\n3,4\n"), None)
    assert wanted is not None
    assert graph.external_ids[wanted].tolist() == [4]
    assert sorted(graph.external_ids.tolist()) == [1, 2, 3, 4]
    apart, everything = source.load_new(write(tmp_path, "apart.csv", "a,b\n7,8\n"), None)
    assert everything is None
    assert apart.external_ids.tolist() == [7, 8]


def test_an_extension_leaves_the_rest_of_the_graph_as_it_was(tmp_path: Path) -> None:
    """Repeated edges, weights, and a run that ignores unknown nodes: far from the new node nothing changes."""
    edges = write(tmp_path, "edges.csv", "a,b,weight\nx,y,1\nx,y,2\ny,x,5\ny,z,1\nz,ghost,1\n")
    nodes = write(tmp_path, "nodes.csv", "id,f\nx,1\ny,2\nz,3\n")
    source = Source(edges=edges, nodes=nodes, options=TableOptions(ignore_unknown_nodes=True))
    new_edges = write(tmp_path, "new_edges.csv", "a,b,weight\nnew,z,4\n")
    graph, wanted = source.load_new(new_edges, write(tmp_path, "new_nodes.csv", "id,f,extra\nnew,9,1\n"))
    assert wanted is not None
    before, after = (weights_by_pair(g) for g in (source.load(), graph))
    assert before.items() <= after.items()
    assert set(after) - set(before) == {("new", "z"), ("z", "new")}
    assert after["new", "z"] == 4


def test_an_extension_keeps_the_types_and_columns_of_edges(tmp_path: Path) -> None:
    edges = write(tmp_path, "edges.csv", "a,b,type,euros\nx,y,pays,1\ny,z,knows,2\n")
    nodes = write(tmp_path, "nodes.csv", "id,f\nx,1\ny,2\nz,3\n")
    source, new_nodes = Source(edges=edges, nodes=nodes), write(tmp_path, "new_nodes.csv", "id,f\nnew,9\n")
    text = "a,b,type,euros,days\nnew,z,knows,5,1\nnew,x,owns,6,1\nx,y,knows,7,1\n"
    graph, _ = source.load_new(write(tmp_path, "new_edges.csv", text), new_nodes)
    before, after = (edges_by_name(g) for g in (source.load(), graph))
    assert before <= after
    added = {("new", "z", "knows", 5.0), ("new", "x", "owns", 6.0), ("x", "y", "knows", 7.0)}
    assert after - before == added | {(t, s, f"reverse_{kind}", euros) for s, t, kind, euros in added}
    plain, _ = source.load_new(write(tmp_path, "plain.csv", "a,b\nnew,z\n"), new_nodes)
    assert (plain.edge_types, plain.edge_columns) == (None, None)


def edges_by_name(graph: Graph) -> set[tuple[str, str, str, float]]:
    names = graph.external_ids.tolist()
    assert graph.edge_types is not None
    assert graph.edge_columns is not None
    assert graph.edge_column_names == ("euros",)
    kinds = [graph.edge_type_names[kind] for kind in graph.edge_types.tolist()]
    ends = ([names[node] for node in nodes.tolist()] for nodes in (graph.indices, graph.targets))
    return set(zip(*ends, kinds, graph.edge_columns[:, 0].tolist(), strict=True))


def weights_by_pair(graph: Graph) -> dict[tuple[str, str], float]:
    names = graph.external_ids.tolist()
    assert graph.edge_weights is not None
    triples = zip(graph.indices.tolist(), graph.targets.tolist(), graph.edge_weights.tolist(), strict=True)
    return {(names[s], names[t]): w for s, t, w in triples}


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_new_nodes_join_a_store_as_they_join_its_tables(tmp_path: Path, directed: bool, dtype: str) -> None:
    edges = write(tmp_path, "edges.csv", "a,b\nx,y\ny,z\nz,x\nx,w\n")
    nodes = write(tmp_path, "nodes.csv", "name,f,g\nx,1,2\ny,3,4\nz,5,6\nw,7,8\n")
    new = write(tmp_path, "new_edges.csv", "a,b\nnew,x\n"), write(tmp_path, "new_nodes.csv", "name,f,g\nnew,8,7\n")
    options = TableOptions(directed=directed)
    tables = Source(edges=edges, nodes=nodes, options=options)
    job = PrepareOptions(feature_dtype=dtype)
    prepare_tables(edges, nodes, str(tmp_path / "graph.store"), options=options, job=job)
    store = Source(dataset=str(tmp_path / "graph.store"))
    (joined, wanted), (expected, same) = store.load_new(*new), tables.load_new(*new)
    assert wanted is not None
    assert same is not None
    assert joined.external_ids[wanted].tolist() == expected.external_ids[same].tolist() == ["new"]
    assert torch.equal(joined.indptr, expected.indptr)
    assert torch.equal(joined.indices.long(), expected.indices.long())
    np.testing.assert_array_equal(np.asarray(joined.x), np.asarray(expected.x))


def test_files_that_a_glob_finds_further_down_have_not_moved(tmp_path: Path) -> None:
    (tmp_path / "x" / "y").mkdir(parents=True)
    write(tmp_path / "x" / "y", "e.csv", "a,b\n1,2\n")
    saved = Source(edges=str(tmp_path / "**" / "e.csv")).to_dict()
    assert Source.from_dict(saved, run="runs/one").load().num_nodes == 2
