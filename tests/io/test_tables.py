"""Laws of reading tables: what goes in comes out, whatever the format, the type of ids and the order of rows."""

from __future__ import annotations

import dataclasses
import gzip
import json
import subprocess
import sys
import uuid
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.io.columns import TableOptions
from graphstrap.io.tables import read_tables

NODES = "id,label,split,time,f0,f1\na,x,train,2020-01-02,1,2.5\nb,,TEST,2020-01-01,3,-4\nc,y,valid,1970-01-01,5,1e3\n"
EDGES = "source,target,weight,time,type,dose\na,b,0.5,3,likes,1\nb,c,2,1,knows,0.25\na,c,1,2,likes,9\n"


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def write_parquet(path: Path, query: str) -> str:
    with duckdb.connect() as connection:
        connection.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet)")
    return str(path)


def write_edges(path: Path, pairs: Sequence[tuple[object, object]], *, sql_type: str) -> str:
    rows = ", ".join(f"({_literal(source)}, {_literal(target)})" for source, target in pairs)
    query = f"SELECT s::{sql_type} AS source, t::{sql_type} AS target FROM (VALUES {rows}) AS v(s, t)"
    return write_parquet(path, query)


def _literal(value: object) -> str:
    return "'" + str(value).replace("'", "''") + "'"


def edge_set(graph: Graph) -> set[tuple[Any, Any]]:
    ids = graph.external_ids.tolist()
    return {(ids[s], ids[t]) for s, t in zip(graph.indices.tolist(), graph.targets.tolist(), strict=True)}


def assert_same(one: Graph, other: Graph) -> None:
    """Every field is equal: tensors, names and ids."""
    for field in dataclasses.fields(Graph):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if field.name == "features":
            assert [x is None for x in a] == [x is None for x in b]
            assert all(x is None or torch.equal(x, y) for x, y in zip(a, b, strict=True))
        elif field.name == "splits":
            assert (a is None) == (b is None)
            assert a is None or all(torch.equal(getattr(a, k), getattr(b, k)) for k in ("train", "val", "test"))
        elif isinstance(a, torch.Tensor):
            assert torch.equal(a, b), field.name
        elif isinstance(a, np.ndarray):
            assert a.dtype == b.dtype
            assert a.tolist() == b.tolist()
        else:
            assert a == b, field.name


def test_every_column_reaches_its_place(tmp_path: Path) -> None:
    graph = read_tables(
        write(tmp_path / "e.csv", EDGES), write(tmp_path / "n.csv", NODES), options=TableOptions(directed=True)
    )
    assert graph.external_ids.tolist() == ["a", "b", "c"]
    assert isinstance(graph.x, torch.Tensor)
    assert graph.x.tolist() == [[1, 2.5], [3, -4], [5, 1000]]
    assert graph.feature_names == ("f0", "f1")
    assert graph.labels is not None
    assert (graph.class_names, graph.labels.tolist()) == (("x", "y"), [0, -1, 1])
    assert graph.splits is not None
    assert [graph.splits.train[:, 0].tolist(), graph.splits.val.shape] == [[True, False, False], (3, 1)]
    assert [graph.splits.val[:, 0].tolist(), graph.splits.test[:, 0].tolist()] == [
        [False, False, True],
        [False, True, False],
    ]
    assert graph.node_times is not None
    assert graph.node_times.tolist() == [1577923200, 1577836800, 0]
    assert edge_set(graph) == {("a", "b"), ("b", "c"), ("a", "c")}
    assert graph.edge_weights is not None
    assert graph.edge_weights.tolist() == [0.5, 1, 2]  # edges into b, then into c
    assert graph.edge_times is not None
    assert (graph.edge_times.tolist(), graph.edge_times.dtype) == ([3, 2, 1], torch.int64)
    assert graph.edge_types is not None
    assert [graph.edge_type_names[k] for k in graph.edge_types.tolist()] == ["likes", "likes", "knows"]
    assert graph.edge_columns is not None
    assert (graph.edge_column_names, graph.edge_columns.tolist()) == (("dose",), [[1], [9], [0.25]])


@pytest.mark.parametrize(
    ("part", "spelling"),
    [
        *[("train", text) for text in ("train", "Train", " TRAIN ")],
        *[("val", text) for text in ("val", "valid", "validation", "Val", "VALID", "Validation", " validation ")],
        *[("test", text) for text in ("test", "Test", " TEST ")],
    ],
)
def test_every_spelling_of_a_split_names_that_split_alone(tmp_path: Path, part: str, spelling: str) -> None:
    edges, nodes = write(tmp_path / "e.csv", EDGES), write(tmp_path / "n.csv", f'id,split\na,"{spelling}"\nb,\nc,\n')
    splits = read_tables(edges, nodes).splits
    assert splits is not None
    for name in ("train", "val", "test"):
        assert getattr(splits, name)[:, 0].tolist() == [name == part, False, False]


def test_csv_and_parquet_and_gzip_and_globs_give_the_same_graph(tmp_path: Path) -> None:
    edges, nodes = write(tmp_path / "e.csv", EDGES), write(tmp_path / "n.csv", NODES)
    expected = read_tables(edges, nodes)
    typed = [write_parquet(tmp_path / f"{k}.parquet", f"FROM read_csv('{tmp_path / k}.csv')") for k in "en"]
    assert_same(read_tables(*typed), expected)
    assert_same(read_tables(edges, typed[1]), expected)
    (tmp_path / "e.csv.gz").write_bytes(gzip.compress(EDGES.encode()))
    assert_same(read_tables(str(tmp_path / "e.csv.gz"), nodes), expected)
    write(tmp_path / "n.tsv", NODES.replace(",", "\t").replace("\n", "\r\n"))
    assert_same(read_tables(edges, str(tmp_path / "n.tsv")), expected)
    header, *rows = NODES.splitlines()
    write(tmp_path / "part-2.csv", f"{header}\n" + "\n".join(rows[1:]))
    write(tmp_path / "part-1.csv", f"{header}\n{rows[0]}\n")
    assert_same(read_tables(edges, str(tmp_path / "part-*.csv")), expected)
    for name in ("x.data", 'it\'s [odd] "name"*.unknown'):  # an unknown ending is read by content
        (tmp_path / name).write_bytes(Path(typed[0]).read_bytes())
        assert_same(read_tables(str(tmp_path / name), nodes), expected)
        write(tmp_path / name, EDGES)
        assert_same(read_tables(str(tmp_path / name), nodes), expected)


texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6).map(lambda text: "t" + text)
ID_KINDS = {
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "UTINYINT": st.integers(0, 255),
    "VARCHAR": texts,
    "UUID": st.uuids(),
}


@pytest.mark.parametrize("sql_type", ID_KINDS)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_ids_of_every_type_come_back(
    tmp_path_factory: pytest.TempPathFactory, sql_type: str, data: st.DataObject
) -> None:
    ids = data.draw(st.lists(ID_KINDS[sql_type], min_size=3, max_size=6, unique=True))
    pairs = list(pairwise(ids))
    edges = write_edges(tmp_path_factory.mktemp("ids") / "e.parquet", pairs, sql_type=sql_type)
    graph = read_tables(edges, options=TableOptions(directed=True))
    plain: list[Any] = [str(value) if sql_type in ("UUID", "VARCHAR") else value for value in ids]
    assert graph.external_ids.dtype.kind == ("U" if sql_type in ("UUID", "VARCHAR") else "i")
    assert graph.external_ids.tolist() == sorted(plain)
    assert edge_set(graph) == set(pairwise(plain))


@settings(max_examples=8, deadline=None)
@given(order=st.permutations(range(6)), edge_order=st.permutations(range(7)))
def test_permuted_rows_permute_the_graph(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], edge_order: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("permuted")
    nodes = [f"n{i},{'ab'[i % 2]},{i * 0.5}" for i in range(6)]
    edges = ["n0,n1", "n2,n1", "n3,n4", "n5,n0", "n1,n5", "n2,n2", "n0,n1"]
    plain = read_tables(
        write(folder / "e.csv", "s,t\n" + "\n".join(edges)), write(folder / "n.csv", "id,label,x\n" + "\n".join(nodes))
    )
    shuffled = read_tables(
        write(folder / "e2.csv", "s,t\n" + "\n".join(edges[k] for k in edge_order)),
        write(folder / "n2.csv", "id,label,x\n" + "\n".join(nodes[k] for k in order)),
    )
    assert shuffled.external_ids.tolist() == [f"n{k}" for k in order]
    assert edge_set(shuffled) == edge_set(plain)
    assert isinstance(plain.x, torch.Tensor)
    assert isinstance(shuffled.x, torch.Tensor)
    assert torch.equal(shuffled.x, plain.x[list(order)])
    assert plain.labels is not None
    assert shuffled.labels is not None
    assert torch.equal(shuffled.labels, plain.labels[list(order)])


def test_nodes_are_grouped_by_type_with_blocks_of_their_own(tmp_path: Path) -> None:
    nodes = (
        'id,type,year,rank,embedding,label\np1,paper,2001,,,x\na1,author,,3,"[1, 2]",\np2,paper,1999,,,y\n'
        'i1,institute,,,,\na2,author,,4,"[3, 4.5]",\n'
    )
    edges = "source,target,type\na1,p1,writes\na2,p2,writes\na1,i1,member\n"
    graph = read_tables(write(tmp_path / "e.csv", edges), write(tmp_path / "n.csv", nodes))
    assert (graph.node_types, graph.type_offsets) == (("author", "institute", "paper"), (0, 2, 3, 5))
    assert graph.external_ids.tolist() == ["a1", "a2", "i1", "p1", "p2"]
    author, institute, paper = graph.features
    assert isinstance(author, torch.Tensor)
    assert isinstance(paper, torch.Tensor)
    assert institute is None
    assert (author.tolist(), paper.tolist()) == ([[3, 1, 2], [4, 3, 4.5]], [[2001], [1999]])
    assert graph.labels is not None
    assert graph.labels.tolist() == [-1, -1, -1, 0, 1]
    assert {("a1", "p1"), ("p1", "a1"), ("a2", "p2"), ("i1", "a1")} <= edge_set(graph)
    assert graph.edge_type_names == ("member", "writes", "reverse_member", "reverse_writes")


def test_lists_arrays_and_csv_lists_are_the_same_features(tmp_path: Path) -> None:
    edges = write(tmp_path / "e.csv", "s,t\n1,2\n2,3\n")
    expected = [[1, 2.5], [3, 4], [5, 6]]
    rows = "(VALUES (1, [1, 2.5]), (2, [3, 4]), (3, [5, 6])) v(id, e)"
    paths = [write(tmp_path / "n.csv", 'id,e\n1,"[1, 2.5]"\n2,"[3,4]"\n3,"[ 5, 6 ]"\n')]
    for i, sql_type in enumerate(("FLOAT[]", "DOUBLE[]", "FLOAT[2]")):
        paths.append(write_parquet(tmp_path / f"{i}.parquet", f"SELECT id, e::{sql_type} AS e FROM {rows}"))
    for path in paths:
        graph = read_tables(edges, path)
        assert isinstance(graph.x, torch.Tensor)
        assert graph.x.tolist() == expected
        assert graph.feature_names == ("e[0]", "e[1]")


def test_leading_zeros_survive_and_canonical_integers_become_int64(tmp_path: Path) -> None:
    zeros = read_tables(write(tmp_path / "z.csv", "s,t\n007,7\n7,08\n"))
    assert zeros.external_ids.tolist() == ["007", "08", "7"]
    integers = read_tables(write(tmp_path / "i.csv", "s,t\n10,9\n9,-3\n"))
    assert (integers.external_ids.tolist(), integers.external_ids.dtype) == ([-3, 9, 10], np.int64)
    huge = read_tables(write(tmp_path / "h.csv", f"s,t\n{2**63},1\n"))
    assert huge.external_ids.tolist() == ["1", str(2**63)]
    nodes = write_parquet(tmp_path / "n.parquet", "SELECT range AS id FROM range(20)")
    mixed = read_tables(write(tmp_path / "m.csv", "s,t\n10,9\n9,3\n"), nodes, options=TableOptions(directed=True))
    assert edge_set(mixed) == {(10, 9), (9, 3)}


def test_a_file_without_header_and_with_comments(tmp_path: Path) -> None:
    text = "# Directed graph\n# FromNodeId\tToNodeId\n3\t1\n1\t2\n"
    graph = read_tables(write(tmp_path / "snap.txt", text), options=TableOptions(directed=True))
    assert edge_set(graph) == {(3, 1), (1, 2)}
    spaces = read_tables(write(tmp_path / "spaces.txt", "3 1\n1 2\n"), options=TableOptions(directed=True))
    assert edge_set(spaces) == {(3, 1), (1, 2)}


@pytest.mark.parametrize("text", ["ann,bob\nann,cid\nbob,cid\n", "ann,bob\ncid,ann\nbob,cid\nann,bob\n"])
def test_a_first_line_of_ids_that_stand_again_is_an_edge(tmp_path: Path, text: str) -> None:
    """Where it is not what is meant, an option says so; a header that stands twice stays one."""
    path = write(tmp_path / "edges.csv", text)
    assert ("ann", "bob") in edge_set(read_tables(path, directed=True))
    assert read_tables(path, directed=True, header=True).num_edges == text.count("\n") - 1
    joined = write(tmp_path / "joined.csv", "source,target\nann,bob\nsource,target\ncid,dan\n")
    assert ("ann", "bob") in edge_set(read_tables(joined, directed=True))
    assert set(read_tables(joined, directed=True, header=False).external_ids) >= {"source", "target"}
    numbers = write(tmp_path / "numbers.csv", "1,2\n3,4\n")
    assert edge_set(read_tables(numbers, directed=True, header=True)) == {(3, 4)}


def test_options_name_columns(tmp_path: Path) -> None:
    edges = write(tmp_path / "e.csv", "note,to,from,when,w\nhello,a,b,1.5,2\nworld,b,c,2.5,3\n")
    nodes = write(tmp_path / "n.csv", "x,Key,class,y,skip\n1,a,9,true,q\n2,b,10,false,q\n3,c,,true,q\n")
    options = TableOptions(
        source="from", target="TO", time="when", weight="w", id="key", label="class", feature_columns=("y", "x"),
        ignore_columns=("note", "skip"), directed=True,
    )  # fmt: skip
    graph = read_tables(edges, nodes, options=options)
    assert edge_set(graph) == {("b", "a"), ("c", "b")}
    assert isinstance(graph.x, torch.Tensor)
    assert (graph.feature_names, graph.x.tolist()) == (("y", "x"), [[1, 1], [0, 2], [1, 3]])
    assert graph.class_names == ("9", "10")
    assert graph.edge_times is not None
    assert graph.edge_times.tolist() == [1.5, 2.5]
    assert TableOptions(**json.loads(json.dumps(dataclasses.asdict(TableOptions(label="y"))))).label == "y"


def test_single_options_stand_in_place_of_others(tmp_path: Path) -> None:
    edges = write(tmp_path / "e.csv", "from,to\na,b\nb,c\n")
    nodes = write(tmp_path / "n.csv", "id,field,x\na,law,1\nb,art,2\nc,law,3\n")
    options = TableOptions(label="field", directed=True)
    expected = read_tables(edges, nodes, options=options)
    for graph in (
        read_tables(edges, nodes, label="field", directed=True),
        read_tables(edges, nodes, options=TableOptions(label="x", directed=True), label="field"),
    ):
        assert (graph.fingerprint, graph.class_names) == (expected.fingerprint, ("art", "law"))
    for wrong, nearest in {
        "lable": "did you mean label",
        "label_column": "did you mean label",
        "q": "from source",
    }.items():
        with pytest.raises(InputError, match=f"no option {wrong}: .*{nearest}"):
            read_tables(edges, nodes, **{wrong: "field"})  # type: ignore[arg-type]


def test_the_index_that_pandas_writes_is_an_id_or_nothing(tmp_path: Path) -> None:
    edges = write(tmp_path / "e.csv", ",from,to\n0,a,b\n1,b,c\n")
    nodes = write(tmp_path / "n.csv", ",id,f\n0,a,1\n1,b,2\n2,c,3\n")
    graph = read_tables(edges, nodes, options=TableOptions(directed=True))
    assert (edge_set(graph), graph.feature_names) == ({("a", "b"), ("b", "c")}, ("f",))
    by_index = write(tmp_path / "i.csv", ",f\na,1\nb,2\nc,3\n")
    assert_same(read_tables(edges, by_index, options=TableOptions(directed=True)), graph)
    rows = "(VALUES (1, 'a'), (2, 'b'), (3, 'c')) AS v(f, i)"
    last = write_parquet(tmp_path / "i.parquet", f'SELECT f, i AS "__index_level_0__" FROM {rows}')
    assert read_tables(edges, last).external_ids.tolist() == ["a", "b", "c"]
    asked = TableOptions(feature_columns=("column0", "f"))
    assert read_tables(edges, nodes, options=asked).feature_names == ("column0", "f")
    named = write(tmp_path / "w.csv", ",v,weight\na,b,1\nb,c,2\n")
    assert edge_set(read_tables(named, options=TableOptions(directed=True))) == {("a", "b"), ("b", "c")}
    headless = write(tmp_path / "h.csv", "1,2,5\n2,3,6\n")
    assert edge_set(read_tables(headless, options=TableOptions(directed=True))) == {(1, 2), (2, 3)}


def test_unknown_nodes_are_dropped_when_asked(tmp_path: Path) -> None:
    edges = write(tmp_path / "e.csv", "s,t,weight\na,b,1\nghost,b,2\nb,c,3\n")
    nodes = write(tmp_path / "n.csv", "id\nc\nb\na\n")
    graph = read_tables(edges, nodes, options=TableOptions(ignore_unknown_nodes=True, directed=True))
    assert edge_set(graph) == {("a", "b"), ("b", "c")}
    assert graph.edge_weights is not None
    assert sorted(graph.edge_weights.tolist()) == [1, 3]
    assert graph.features == (None,)
    assert (graph.cleaning.num_edges_given, graph.cleaning.num_unknown_dropped) == (3, 1)
    assert "1 that name an unknown node dropped" in str(graph.cleaning)


@pytest.mark.parametrize(
    ("names", "number"),
    [
        *((names, 3) for names in ("userId,movieId", "user_id,item_id", "userid,film", "user,movie")),
        *((names, 0) for names in ("source,target", "src,dst", "from,to", "srcId,dstId", "node_from,node_to", "s,t")),
        *((names, 0) for names in ("node1,node2", "user_a,user_b", "citing,cited", "1,3")),
    ],
)
def test_ids_of_two_kinds_that_are_alike_are_counted(tmp_path: Path, names: str, number: int) -> None:
    edges = write(tmp_path / "e.csv", f"{names}\n1,2\n2,3\n3,1\n3,7\n")
    assert read_tables(edges).cleaning.num_ids_in_both == number
    nodes = write(tmp_path / "n.csv", "id\n1\n2\n3\n7\n")
    assert read_tables(edges, nodes).cleaning.num_ids_in_both == 0
    apart = write(tmp_path / "apart.csv", f"{names}\nu1,m2\nu2,m3\n")
    assert read_tables(apart).cleaning.num_ids_in_both == 0


@pytest.mark.parametrize("names", ["source,target", "src,dst", "from,to", "From,TO"])
def test_usual_names_of_ends_are_found_wherever_they_stand(tmp_path: Path, names: str) -> None:
    source, target = names.split(",")
    edges = write(tmp_path / "e.csv", f"weight,{target},amount,{source}\n1,b,5,a\n2,c,6,b\n")
    graph = read_tables(edges, options=TableOptions(directed=True))
    assert edge_set(graph) == {("a", "b"), ("b", "c")}
    assert graph.edge_column_names == ("amount",)
    both = write(tmp_path / "both.csv", "source,target,from,to\na,b,1,2\nb,c,3,4\n")
    assert read_tables(both).edge_column_names == ("from", "to")
    half = write(tmp_path / "half.csv", "u,v,from\na,b,1\nb,c,3\n")
    assert read_tables(half).edge_column_names == ("from",)


def test_what_a_feature_column_may_hold(tmp_path: Path) -> None:
    edges = write(tmp_path / "e.csv", "s,t\n1,2\n2,3\n")
    rows = "1,True,2020,2020-05-01\n2,False,2021,2021-01-31\n3,true,1,2019-12-24"
    truths = write(tmp_path / "truths.csv", f"id,f,since,time\n{rows}\n")
    graph = read_tables(edges, truths)
    assert np.asarray(graph.x).tolist() == [[1, 2020], [0, 2021], [1, 1]]
    assert graph.node_times is not None
    for cells in (("yes", "no", "yes"), ("2020-05-01", "2021-01-31", "2019-12-24"), ("1", "", "2")):
        rows = "\n".join(f"{i + 1},{cell}" for i, cell in enumerate(cells))
        with pytest.raises(InputError, match="--ignore-columns f"):
            read_tables(edges, write(tmp_path / "n.csv", f"id,f\n{rows}\n"))


def test_a_uuid_in_csv_meets_a_uuid_in_parquet(tmp_path: Path) -> None:
    ids = [str(uuid.UUID(int=k)) for k in (1, 2)]
    edges = write(tmp_path / "e.csv", f"s,t\n{ids[0]},{ids[1]}\n")
    nodes = write_parquet(tmp_path / "n.parquet", f"SELECT unnest(['{ids[1]}', '{ids[0]}'])::UUID AS id")
    assert read_tables(edges, nodes).external_ids.tolist() == [ids[1], ids[0]]


def test_the_package_imports_without_duckdb_and_reads_without_pandas(tmp_path: Path) -> None:
    edges = write(tmp_path / "e.csv", EDGES)
    code = f"""
import sys
class Absent:
    names = {{"duckdb", "pandas", "pyarrow"}}
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
from graphstrap.io import export, tables
try:
    tables.read_tables({edges!r})
except ValueError as error:
    assert "pip install duckdb" in str(error), error
else:
    raise SystemExit("no error")
Absent.names.remove("duckdb")
assert tables.read_tables({edges!r}).num_nodes == 3
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("values", [("1.0", "2.0", "nan"), ("good", "bad", "NaN"), ("1", "2", "")])
def test_a_label_that_is_no_number_is_none(tmp_path: Path, values: Sequence[str]) -> None:
    rows = "".join(f"n{number},{value}\n" for number, value in enumerate(values))
    nodes, edges = (
        write(tmp_path / "nodes.csv", "id,label\n" + rows),
        write(tmp_path / "edges.csv", "a,b\nn0,n1\nn1,n2\n"),
    )
    graph = read_tables(edges, nodes)
    assert graph.num_classes == 2
    assert graph.labels is not None
    assert graph.labels[2] == -1
