"""Every kind of bad table raises one clear sentence that names the file, the row or column, and the fix."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from graphstrap.errors import InputError
from graphstrap.io.columns import TableOptions
from graphstrap.io.tables import read_tables

GOOD_EDGES = "s,t\na,b\nb,c\n"
GOOD_NODES = "id,x\na,1\nb,2\nc,3\n"


def check(message: str, *parts: str) -> None:
    """One line, two sentences at most, and all parts named."""
    assert "\n" not in message
    assert len(message) < 400
    assert message.count(". ") <= 1
    for part in parts:
        assert part in message, message


def fail(edges: Path | str, nodes: Path | str | None = None, *, options: TableOptions | None = None) -> str:
    with pytest.raises(InputError) as caught:
        read_tables(str(edges), None if nodes is None else str(nodes), options=options or TableOptions())
    return str(caught.value)


def write_parquet(path: Path, query: str) -> Path:
    with duckdb.connect() as connection:
        connection.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet)")
    return path


@pytest.fixture
def edges(tmp_path: Path) -> Path:
    path = tmp_path / "edges.csv"
    path.write_text(GOOD_EDGES)
    return path


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    path = tmp_path / "nodes.csv"
    path.write_text(GOOD_NODES)
    return path


BAD_EDGES = {
    "too few columns": ("s\na\nb\n", ["two columns of node ids", "(s)"]),
    "no rows": ("s,t\n", ["no edges"]),
    "no bytes": ("", ["empty"]),
    "short row": ("s,t\na,b\nc\n", ["line 3 has 1", "first line has 2 cells", "fix that line"]),
    "open quote": ('s,t\na,"b\nc,d\n', ["quote", "line"]),
    "one column twice": ("s,t,S\na,b,c\n", ["two columns called 'S'", "rename"]),
    "empty id": ("s,t\na,b\n,c\nb,\n", ["'s'", "1 row", "row 2"]),
    "unknown node": ("s,t\na,b\nq,a\na,r\nq,s\ns,t\n", ["4 edges", "'q', 'r', 's'", "--ignore-unknown-nodes"]),
    "ids written otherwise": ("s,t\na ,b\n", ["1 edge", "'a '", "spaces"]),
    "only self-loops": ("s,t\na,a\nb,b\n", ["all 2", "itself"]),
    "negative weight": ("s,t,weight\na,b,1\nb,c,-2\n", ["'weight'", "'-2'", "row 2", "0 up"]),
    "infinite weight": ("s,t,weight\na,b,inf\n", ["'weight'", "'inf'", "row 1"]),
    "empty weight": ("s,t,weight\na,b,1\na,b,\n", ["'weight'", "empty", "row 2"]),
    "text in an edge column": ("s,t,note\na,b,1\nb,c,hi\n", ["'note'", "'hi'", "row 2", "--ignore-columns note"]),
    "a date for a number": ("s,t,day\na,b,2020-01-01\n", ["'day'", "2020-01-01", "--ignore-columns day"]),
    "no time": ("s,t,time\na,b,1\nb,c,soon\n", ["'time'", "'soon'", "row 2"]),
    "empty time": ("s,t,time\na,b,1\nb,c,\n", ["'time'", "empty", "row 2"]),
    "empty type": ("s,t,type\na,b,x\nb,c,\n", ["'type'", "empty", "row 2"]),
}


@pytest.mark.parametrize("case", BAD_EDGES)
def test_bad_edges(tmp_path: Path, nodes: Path, case: str) -> None:
    text, parts = BAD_EDGES[case]
    path = tmp_path / "edges.csv"
    path.write_text(text)
    check(fail(path, nodes), "edges.csv", *parts)


LATE_TEXT = "id,x\na,1\nb,2\nc,3\n" + "".join(f"{k},1\n" for k in range(30_000)) + "late,oops\n"
BAD_NODES = {
    "no rows": ("id,x\n", ["no nodes"]),
    "empty cell": ("id,x\na,1\nb,\nc,3\n", ["'x'", "empty", "row 2", "--ignore-columns x"]),
    "nan": ("id,x\na,1\nb,2\nc,nan\n", ["'x'", "'nan'", "row 3", "finite number"]),
    "beyond float32": ("id,x\na,1\nb,1e300\nc,3\n", ["'x'", "'1e300'", "row 2"]),
    "two texts": (
        "id,x,city,kind\na,1,Paris,u\nb,2,Rome,v\nc,3,Oslo,u\n",
        ["--ignore-columns city,kind", "--label-column"],
    ),
    "text": ("id,x,city\na,1,Paris\nb,2,Rome\nc,3,Oslo\n", ["'city'", "'Paris'", "row 1", "--ignore-columns city"]),
    "text far down": (LATE_TEXT, ["'x'", "'oops'", "row 30004"]),
    "one class": ("id,label\na,1\nb,1\nc,\n", ["'label'", "only the label '1'", "--ignore-columns label"]),
    "no class": ("id,label\na,\nb,\nc,\n", ["'label'", "no labels"]),
    "twice": ("id,x\na,1\nb,2\nc,3\nb,4\nc,1\na,1\n", ["3 ids", "'a', 'b', 'c'", "keep one row"]),
    "empty id": ("id,x\na,1\n,2\nc,3\n,4\n", ["'id'", "2 rows", "row 2"]),
    "split": ("id,split\na,train\nb,dev\nc,test\n", ["'split'", "'dev'", "row 2", "validation"]),
    "empty type": ("id,type\na,x\nb,\nc,x\n", ["'type'", "empty", "row 2"]),
    "unequal lists": ('id,e\na,"[1, 2]"\nb,"[1, 2]"\nc,"[3]"\n', ["'e'", "a list of 1 in row 3", "of 2 in row 1"]),
    "text in a list": ('id,e\na,"[1, 2]"\nb,"[1, x]"\nc,"[3, 4]"\n', ["'e'", "'[1, x]'", "row 2"]),
    "no list": ('id,e\na,"[1, 2]"\nb,none\nc,"[3, 4]"\n', ["'e'", "'none'", "row 2"]),
    "missing list": ('id,e\na,"[1, 2]"\nb,\nc,"[3, 4]"\n', ["'e'", "empty", "row 2"]),
}


@pytest.mark.parametrize("case", BAD_NODES)
def test_bad_nodes(tmp_path: Path, edges: Path, case: str) -> None:
    text, parts = BAD_NODES[case]
    path = tmp_path / "nodes.csv"
    path.write_text(text)
    check(fail(edges, path), "nodes.csv", *parts)


def test_files_that_are_not_there(tmp_path: Path, edges: Path) -> None:
    check(fail(tmp_path / "gone.csv"), "gone.csv", "does not exist")
    check(fail(edges, tmp_path / "part-*.csv"), "part-*.csv", "no file matches")
    check(fail(tmp_path), str(tmp_path), "folder", "*.parquet")
    check(fail("https://example.com/edges.csv"), "does not exist")


def test_what_is_no_path(edges: Path) -> None:
    for table in ([str(edges)], {"source": [1], "target": [2]}):
        with pytest.raises(
            InputError, match=r"path of a CSV or Parquet file, got a .*: write it to a file first.*to_csv"
        ):
            read_tables(table)  # type: ignore[arg-type]
    assert read_tables(edges).fingerprint == read_tables(str(edges)).fingerprint


@pytest.mark.parametrize("role", ["feature_columns", "edge_columns", "ignore_columns", "ignore_if_there"])
def test_several_columns_are_a_tuple(role: str) -> None:
    with pytest.raises(InputError, match=rf"give {role}=\('a', 'b'\), not 'a, b'"):
        TableOptions(**{role: "a, b"})  # type: ignore[arg-type]
    assert getattr(TableOptions(**{role: ["a", "b"]}), role) == ("a", "b")  # type: ignore[arg-type]


def test_files_that_are_not_tables(tmp_path: Path, edges: Path) -> None:
    noise = np.random.default_rng(0).bytes(5000)
    for name in ("noise.csv", "noise.parquet", "noise.bin"):
        (tmp_path / name).write_bytes(noise)
        check(fail(tmp_path / name), name, "not a")
    (tmp_path / "latin.csv").write_bytes("id,x\né,1\n".encode("latin-1"))
    check(fail(edges, tmp_path / "latin.csv"), "latin.csv", "UTF-8")
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(b"s,t\n" + b"1,2\n" * 100_000)[:-9])
    check(fail(tmp_path / "cut.csv.gz"), "cut.csv.gz")
    (tmp_path / "both.csv").write_bytes(b"s,t\r\n" + b"1,2\r\n" * 50 + b"2,3\n1,3\n")
    check(fail(tmp_path / "both.csv"), "both.csv", "end in two ways")
    (tmp_path / "empty.parquet").write_bytes(b"")
    check(fail(tmp_path / "empty.parquet"), "empty.parquet", "empty")


def test_broken_parquet(tmp_path: Path, edges: Path) -> None:
    whole = write_parquet(
        tmp_path / "n.parquet", "SELECT 'n' || range AS id, random() AS x FROM range(5000)"
    ).read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    check(fail(edges, tmp_path / "cut.parquet"), "cut.parquet", "cut short")
    (tmp_path / "holed.parquet").write_bytes(whole[: len(whole) // 2] + whole[-4:])
    check(fail(edges, tmp_path / "holed.parquet"), "holed.parquet")
    damaged = bytearray(whole)
    damaged[20 : len(whole) // 2] = bytes(len(whole) // 2 - 20)
    (tmp_path / "damaged.parquet").write_bytes(damaged)
    check(fail(edges, tmp_path / "damaged.parquet"), "damaged.parquet")


def test_columns_that_are_not_there(edges: Path, nodes: Path) -> None:
    check(fail(edges, nodes, options=TableOptions(label="class")), "nodes.csv", "'class'", "label", "id, x")
    check(fail(edges, nodes, options=TableOptions(source="from")), "edges.csv", "'from'", "source", "s, t")
    check(fail(edges, nodes, options=TableOptions(feature_columns=("x", "y"))), "'y'", "feature_columns")
    check(fail(edges, nodes, options=TableOptions(source="s", target="s")), "'s'", "both source and target")
    check(fail(edges, nodes, options=TableOptions(ignore_columns=("s",))), "two columns of node ids")
    check(fail(edges, options=TableOptions(label="class")), "'class'", "--nodes")
    check(fail(edges, nodes, options=TableOptions(ignore_columns=("x", "nmae"))), "'nmae' to ignore", "s, t", "id, x")


@pytest.mark.parametrize("role", ["id", "label", "split"])
def test_a_feature_is_no_label_split_or_id(tmp_path: Path, edges: Path, role: str) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text("key,x,Other\na,1,1\nb,2,2\nc,3,3\n")
    named: dict[str, Any] = {"id": "key", role: "other"}
    options = TableOptions(**named, feature_columns=("x", "OTHER"))
    check(fail(edges, path, options=options), "'Other'", "nodes.csv", role, "--feature-columns")
    path.write_text(f"{'key,' if role != 'id' else ''}x,{role}\na,1,1\nb,2,2\nc,3,3\n")
    check(fail(edges, path, options=TableOptions(feature_columns=("x", role))), f"'{role}'", "--feature-columns")


NAMED = ["source", "target", "edge_type", "weight", "time", "id", "label", "split", "type", "node_time"]


@pytest.mark.parametrize("role", [*NAMED, "feature_columns", "edge_columns"])
def test_a_column_is_not_both_named_and_ignored(tmp_path: Path, role: str) -> None:
    of_nodes = role in ("id", "label", "split", "type", "node_time", "feature_columns")
    (tmp_path / "e.csv").write_text("s,t,u\na,b,1\nb,c,2\n" if of_nodes else "s,t,u,Both\na,b,1,a\nb,c,2,b\n")
    (tmp_path / "n.csv").write_text("i,x,Both\na,1,1\nb,2,2\nc,3,3\n" if of_nodes else "i,x\na,1\nb,2\nc,3\n")
    named: dict[str, Any] = {role: ("both",) if role.endswith("_columns") else "both"}
    options = TableOptions(**named, ignore_columns=("BOTH",))
    check(fail(tmp_path / "e.csv", tmp_path / "n.csv", options=options), "'both'", role, "ignored")
    if not of_nodes:
        check(fail(tmp_path / "e.csv", options=options), "'both'", role, "ignored")


def test_the_other_tables_column_of_the_same_name_can_be_ignored(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("id,s,t\n1,a,b\n2,b,c\n")
    (tmp_path / "n.csv").write_text(GOOD_NODES)
    options = TableOptions(id="id", ignore_columns=("id",))
    graph = read_tables(str(tmp_path / "e.csv"), str(tmp_path / "n.csv"), options=options)
    assert graph.external_ids.tolist() == ["a", "b", "c"]


GAPS = "id,a,b,c,d e,f\na,1,,x,1,1\nb,2,2,y,,0\nc,,3,z,3,\nd,4,4,z,4,1\ne,5,5,z,5,0\n"


def test_all_columns_with_empty_cells_are_named_at_once(tmp_path: Path, edges: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text(GAPS)
    message = fail(edges, path, options=TableOptions(ignore_columns=("c",)))
    check(message, "'a' is empty in row 3", "4 columns", "--ignore-columns 'c,a,b,d e,f'", "'f'", "--label-column")
    asked = ("c", "a", "b", "d e", "f")
    assert read_tables(str(edges), str(path), options=TableOptions(ignore_columns=asked)).x is None
    labelled = TableOptions(ignore_columns=("c",), label="f")
    message = fail(edges, path, options=labelled)
    check(message, "3 columns", "--ignore-columns 'c,a,b,d e'")
    assert "--label-column" not in message
    named = fail(edges, path, options=TableOptions(feature_columns=("a", "b")))
    check(named, "'a'", "leave the columns a, b out of the option")
    edges.write_text("s,t,n,m\na,b,1,\nb,c,,2\n")
    check(fail(edges), "'n' is empty in row 2", "2 columns", "--ignore-columns n,m")


def test_a_text_column_adds_to_what_is_ignored(tmp_path: Path, edges: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text("id,city,name,x\na,Rome,p,1\nb,Oslo,q,2\nc,Bonn,r,3\n")
    check(fail(edges, path, options=TableOptions(ignore_columns=("name",))), "--ignore-columns name,city")
    path.write_text("id,label,name,x\na,u,p,1\nb,u,q,2\nc,u,r,3\n")
    check(fail(edges, path, options=TableOptions(ignore_columns=("name",))), "--ignore-columns name,label")


def test_ids_of_different_types(tmp_path: Path) -> None:
    integers = write_parquet(tmp_path / "integers.parquet", "SELECT range AS id FROM range(3)")
    text = write_parquet(tmp_path / "text.parquet", "SELECT '0' AS a, '1' AS b")
    mixed = write_parquet(tmp_path / "mixed.parquet", "SELECT 0 AS a, '1' AS b")
    floats = write_parquet(tmp_path / "floats.parquet", "SELECT 0.5::DOUBLE AS a, 1::DOUBLE AS b")
    check(fail(text, integers), "'id'", "integers.parquet is BIGINT", "'a'", "text.parquet is VARCHAR", "cast")
    check(fail(mixed), "'a'", "INTEGER", "'b'", "VARCHAR", "cast")
    check(fail(floats), "'a'", "floats.parquet is DOUBLE", "cast")
    (tmp_path / "e.csv").write_text("s,t\n1.0,2.0\n")
    check(fail(tmp_path / "e.csv", integers), "1 edge", "'1.0', '2.0'", "trailing '.0'")


def test_parts_that_do_not_fit_together(tmp_path: Path, edges: Path) -> None:
    (tmp_path / "part-1.csv").write_text("id,x\na,1\nb,2\n")
    (tmp_path / "part-2.csv").write_text("id,x\nc,3\nd,bad\n")
    check(fail(edges, tmp_path / "part-*.csv"), "'x'", "'bad'", "row 2 of", "part-2.csv")
    (tmp_path / "part-2.csv").write_text("id,y\nc,3\n")
    check(fail(edges, tmp_path / "part-*.csv"), "part-1.csv", "part-2.csv", "'x'")
    (tmp_path / "part-2.csv").write_text("id;x\nc;3\n")
    check(fail(edges, tmp_path / "part-*.csv"), "part-2.csv", "delimiter")
    write_parquet(tmp_path / "part-2.parquet", "SELECT 'c' AS id, 3 AS x")
    check(fail(edges, tmp_path / "part-*"), "both CSV and Parquet")


def test_ids_in_other_columns(tmp_path: Path, nodes: Path) -> None:
    (tmp_path / "e.csv").write_text("key,when,payer,payee\n1,5,a,b\n2,6,b,c\n3,7,c,a\n")
    wanted = ["--source-column", "--target-column", "key, when, payer, payee"]
    check(fail(tmp_path / "e.csv", nodes), "3 edges", *wanted)
    check(fail(tmp_path / "e.csv", nodes, options=TableOptions(ignore_unknown_nodes=True)), "no edges", *wanted)
    named = TableOptions(source="payer", target="payee")
    assert read_tables(str(tmp_path / "e.csv"), str(nodes), options=named).num_edges == 6
    (tmp_path / "e.csv").write_text("s,t\na,b\nb,c\nc,ghost\n")
    assert "--source-column" not in fail(tmp_path / "e.csv", nodes)


def test_no_edges_left(tmp_path: Path, nodes: Path) -> None:
    (tmp_path / "e.csv").write_text("s,t\nx,y\n")
    check(
        fail(tmp_path / "e.csv", nodes, options=TableOptions(ignore_unknown_nodes=True)),
        "e.csv",
        "nodes.csv",
        "no edges",
    )


def test_a_bad_parquet_column_is_named(tmp_path: Path, edges: Path) -> None:
    text = write_parquet(tmp_path / "t.parquet", "SELECT unnest(['a','b','c']) AS id, '007' AS zip")
    check(fail(edges, text), "'zip'", "'007'", "row 1", "t.parquet", "--ignore-columns zip")
    holes = write_parquet(tmp_path / "h.parquet", "SELECT unnest(['a','b','c']) AS id, unnest([1, NULL, 3]) AS x")
    check(fail(edges, holes), "'x'", "empty", "row 2", "h.parquet")


def test_a_label_that_names_every_row_is_no_class(tmp_path: Path) -> None:
    """Gephi calls what it shows of a node its label."""
    edges, nodes = tmp_path / "edges.csv", tmp_path / "nodes.csv"
    edges.write_text("source,target\n" + "".join(f"u{i},u{i + 1}\n" for i in range(99)))
    nodes.write_text("id,label,kind\n" + "".join(f"u{i},name {i},{i % 2}\n" for i in range(100)))
    with pytest.raises(InputError, match="100 different values in 100 rows, so it is a name and no class: leave the"):
        read_tables(str(edges), str(nodes))
    options = TableOptions(label="kind", ignore_columns=("label",))
    assert read_tables(str(edges), str(nodes), options=options).num_classes == 2
