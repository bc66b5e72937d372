"""Laws of writing: what is written reads back the same in every format, and a failure leaves nothing behind."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from graphstrap.api.neighbors import find_neighbors
from graphstrap.errors import InputError
from graphstrap.io.export import check_embeddings_path, ids_path, write_embeddings, write_table
from graphstrap.io.tables import read_tables

Array = np.ndarray[Any, Any]
FORMATS = (".parquet", ".csv", ".npy", ".safetensors")
texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8).map(lambda text: "t" + text)
ID_KINDS = {"integers": st.integers(-(2**63), 2**63 - 1), "texts": texts, "uuids": st.uuids().map(str)}


@pytest.mark.extras("pyarrow")
def test_parquet_says_that_lists_are_of_fixed_size(tmp_path: Path) -> None:
    from pyarrow import parquet

    vectors = np.arange(12, dtype=np.float32).reshape(3, 4)
    write_embeddings(tmp_path / "v.parquet", np.array(["a", "b", "c"]), vectors)
    table = parquet.read_table(tmp_path / "v.parquet")
    assert str(table.schema.field("embedding").type) == "fixed_size_list<element: float>[4]"
    assert np.array_equal(table["embedding"].combine_chunks().flatten().to_numpy().reshape(3, 4), vectors)


@pytest.mark.extras("faiss")
def test_a_faiss_index_finds_the_nearest_by_cosine(tmp_path: Path) -> None:
    import faiss

    vectors = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
    write_embeddings(tmp_path / "v.faiss", np.arange(50) + 100, vectors)
    index = faiss.read_index(str(tmp_path / "v.faiss"))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    _, found = index.search(unit[7:8], 5)
    ids = np.load(ids_path(tmp_path / "v.faiss"))
    assert ids[found[0]].tolist() == [107, *(100 + other for other, _ in find_neighbors(vectors, 7, k=4))]


def test_without_faiss_the_package_to_install_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(InputError, match=r"graphstrap\[search\]"):
        check_embeddings_path(tmp_path / "v.faiss")


def read_embeddings(path: Path) -> tuple[list[Any], Array]:
    """An independent reader of each format."""
    if path.suffix == ".npy":
        return np.load(ids_path(path), allow_pickle=False).tolist(), np.load(path, allow_pickle=False)
    if path.suffix == ".safetensors":
        tensors = load_file(path)
        if "ids" in tensors:
            return tensors["ids"].tolist(), tensors["embeddings"]
        utf8, offsets = tensors["ids_utf8"].tobytes(), tensors["ids_offsets"]
        return [utf8[a:b].decode() for a, b in pairwise(offsets)], tensors["embeddings"]
    with duckdb.connect() as connection:
        if path.suffix == ".parquet":
            rows = connection.execute(f"SELECT id, embedding FROM '{path}'").fetchall()
            return [row[0] for row in rows], np.array([row[1] for row in rows], dtype=np.float32)
        rows = connection.execute(f"FROM read_csv('{path}', all_varchar = true, header = true, delim = ',')").fetchall()
        return [row[0] for row in rows], np.array([row[1:] for row in rows], dtype=np.float32)


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("kind", ID_KINDS)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_embeddings_round_trip(
    tmp_path_factory: pytest.TempPathFactory, kind: str, ending: str, data: st.DataObject
) -> None:
    ids = data.draw(st.lists(ID_KINDS[kind], min_size=2, max_size=5, unique=True))
    seed = data.draw(st.integers(0, 1000))
    vectors = np.random.default_rng(seed).standard_normal((len(ids), 3)).astype(np.float32)
    path = tmp_path_factory.mktemp("out") / f"vectors{ending}"
    write_embeddings(path, np.array(ids), vectors)
    read_ids, read_vectors = read_embeddings(path)
    assert [str(value) for value in read_ids] == [str(value) for value in ids]
    assert ending == ".csv" or all(type(a) is type(b) for a, b in zip(read_ids, ids, strict=True))
    assert read_vectors.dtype == np.float32
    assert np.array_equal(read_vectors, vectors)
    assert len(os.listdir(path.parent)) == (2 if ending == ".npy" else 1)


def test_ids_of_a_graph_go_back_out_as_they_came_in(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("s,t\n007,7\n7,a b\n")
    graph = read_tables(str(tmp_path / "e.csv"))
    write_embeddings(tmp_path / "v.csv", graph.external_ids, np.eye(3))
    assert (tmp_path / "v.csv").read_text() == "id,e0,e1,e2\n007,1.0,0.0,0.0\n7,0.0,1.0,0.0\na b,0.0,0.0,1.0\n"


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_a_table_round_trips(tmp_path: Path, ending: str) -> None:
    columns: dict[str, Array] = {
        "id": np.array([3, -1, 2**40]),
        'label "of" it': np.array(["é", "a,b", 'c"d']),
        "probability": np.array([0.1, 1 / 3, 1.0], dtype=np.float32),
        "known": np.array([True, False, True]),
    }
    path = tmp_path / f"it's a table{ending}"
    write_table(path, columns)
    with duckdb.connect() as connection:
        read = connection.execute("SELECT * FROM '{}'".format(str(path).replace("'", "''"))).fetchnumpy()
    assert list(read) == list(columns)
    for name, column in columns.items():
        assert np.asarray(read[name]).astype(column.dtype).tolist() == column.tolist()


@contextmanager
def small_files(num_bytes: int) -> Iterator[None]:
    """The system refuses to write larger files: as real as a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("ending", FORMATS)
def test_a_failed_write_leaves_nothing_and_names_the_file(tmp_path: Path, ending: str) -> None:
    vectors = np.random.default_rng(0).standard_normal((4000, 64)).astype(np.float32)
    ids = np.arange(4000)
    path = tmp_path / f"vectors{ending}"
    with small_files(200_000), pytest.raises(InputError) as caught:
        write_embeddings(path, ids, vectors)
    assert f"cannot write {path}: " in str(caught.value)
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == []
    write_embeddings(path, ids, vectors)
    before = path.read_bytes()
    with small_files(200_000), pytest.raises(InputError):
        write_embeddings(path, ids, vectors + 1)
    assert path.read_bytes() == before


def test_names_that_cannot_be_written(tmp_path: Path) -> None:
    ids, vectors = np.arange(2), np.eye(2)
    with pytest.raises(InputError, match=r"\.parquet, \.csv, \.npy, \.safetensors"):
        write_embeddings(tmp_path / "vectors.xlsx", ids, vectors)
    with pytest.raises(InputError, match=r"one of \.parquet, \.csv$"):
        write_table(tmp_path / "table.npy", {"a": ids})
    for ending in FORMATS:
        with pytest.raises(InputError, match="missing does not exist"):
            write_embeddings(tmp_path / "missing" / f"vectors{ending}", ids, vectors)
    with pytest.raises(ValueError, match=r"one row for each id, got \(3, 3\)"):
        write_embeddings(tmp_path / "vectors.npy", ids, np.eye(3))
    with pytest.raises(ValueError, match="equal length"):
        write_table(tmp_path / "table.csv", {"a": ids, "b": np.arange(3)})
    assert os.listdir(tmp_path) == []


def test_no_rows(tmp_path: Path) -> None:
    for ending in FORMATS:
        write_embeddings(tmp_path / f"v{ending}", np.array([], dtype=np.str_), np.zeros((0, 2)))
        ids, vectors = read_embeddings(tmp_path / f"v{ending}")
        assert (ids, vectors.size) == ([], 0)


def test_writing_needs_neither_pandas_nor_pyarrow(tmp_path: Path) -> None:
    code = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pandas", "pyarrow"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
import numpy as np
from graphstrap.io.export import write_embeddings
write_embeddings({str(tmp_path / "v.parquet")!r}, np.array(["a", "b"]), np.eye(2))
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert read_embeddings(tmp_path / "v.parquet")[0] == ["a", "b"]


def test_names_that_differ_in_capitals_keep_their_own_columns(tmp_path: Path) -> None:
    write_table(tmp_path / "out.csv", {"p_a": np.array([1.0]), "p_A": np.array([2.0])})
    assert (tmp_path / "out.csv").read_text() == "p_a,p_A_2\n1.0,2.0\n"
