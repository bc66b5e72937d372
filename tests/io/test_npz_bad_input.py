from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from graphstrap.errors import InputError
from graphstrap.io.npz import read_npz
from raw_files import make_arrays, make_hetero_arrays, save_arrays

BAD: list[tuple[str, Any, str]] = [
    ("edge_index", None, "edge_index is missing"),
    ("edge_index", np.array([[0.0], [1.0]]), "edge_index has type float64"),
    ("edge_index", np.array([0, 1]), "edge_index has shape"),
    ("edge_index", np.array([[0], [1], [2]]), "expected two rows"),
    ("edge_index", np.array([[0], [4]]), "edge_index holds 4"),
    ("edge_index", np.array([[-1], [1]]), "edge_index holds -1"),
    ("x_shape", np.array([4]), "x_shape is"),
    ("x_shape", np.array([4, 3]), "x_indices holds 4"),
    ("x_indptr", np.array([0, 2, 1, 3, 3]), "x_indptr does not divide"),
    ("x_indptr", np.array([0, 3]), "x_indptr does not divide"),
    ("x_indices", np.array([0, 1]), "x_indices has 2 entries"),
    ("x_data", None, "x_data is missing"),
    ("x_data", np.array(["a", "b", "c"]), "x_data has type"),
    ("y", np.array([0, 1]), "y has 2 rows"),
    ("y", np.array([0, 1, 1, -2]), "y holds -2"),
    ("y", np.array([0.5, 1, 1, 0]), "y has type float64"),
    ("y", np.full((4, 2), 7), "every entry must be 0 or 1"),
    ("train_mask", np.array([True]), "train_mask has shape"),
    ("class_names", np.array([1, 2]), "class_names has type"),
    ("ids", np.array(["a"]), "ids has 1 rows"),
    ("edge_weight", np.array([1.0]), "edge_weight has 1 rows"),
    ("num_nodes", np.int64(3), "3"),
]


@pytest.mark.parametrize(("key", "value", "complaint"), BAD)
def test_every_complaint_names_file_and_key(key: str, value: Any, complaint: str, tmp_path: Path) -> None:
    arrays = make_arrays() | {key: value}
    path = save_arrays(tmp_path / "bad.npz", {name: array for name, array in arrays.items() if array is not None})
    with pytest.raises(InputError, match=complaint) as caught:
        read_npz(path)
    assert str(path) in str(caught.value)


BAD_HETERO: list[tuple[str, Any, str]] = [
    ("edge_types", None, "edge_types is missing"),
    ("edge_types", np.array(["paper|cites"]), "edge_types holds"),
    ("edge_types", np.array(["paper|cites|book"]), "edge_types holds"),
    ("num_nodes:author", None, "num_nodes:author is missing"),
    ("num_nodes:author", np.int64(-1), "num_nodes:author is -1"),
    ("edge_index:author|writes|paper", np.array([[0], [3]]), "names a paper outside 0 to 2"),
    ("edge_index:author|writes|paper", np.array([0]), "edge_index:author"),
    ("x_shape:paper", np.array([2, 2]), "x_indptr:paper"),
    ("label_type", np.array("book"), "label_type is 'book'"),
    ("y:paper", np.array([0]), "y:paper has 1 rows"),
    ("train_idx:a", np.array([9]), "train_idx:a holds 9"),
]


@pytest.mark.parametrize(("key", "value", "complaint"), BAD_HETERO)
def test_every_complaint_about_types_names_file_and_key(key: str, value: Any, complaint: str, tmp_path: Path) -> None:
    arrays = make_hetero_arrays() | {key: value}
    path = save_arrays(tmp_path / "bad.npz", {name: array for name, array in arrays.items() if array is not None})
    with pytest.raises(InputError, match=complaint) as caught:
        read_npz(path)
    assert str(path) in str(caught.value)


def _single_array() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.arange(3))
    return buffer.getvalue()


def _other_zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("edge_index.npy", b"no array")
    return buffer.getvalue()


@pytest.mark.parametrize(
    "content",
    [b"", b"source,target\n0,1\n", pickle.dumps([1]), _single_array(), _other_zip()],
    ids=["empty", "csv", "pickle", "npy", "zip"],  # a zip holds the time: no name for a test
)
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "other.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"other\.npz"):
        read_npz(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.npz"):
        with pytest.raises(InputError, match="is not a file"):
            read_npz(path)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_a_truncated_file_is_refused(share: float, tmp_path: Path) -> None:
    path = save_arrays(tmp_path / "cut.npz", make_arrays())
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(InputError, match=r"cut\.npz"):
        read_npz(path)


@pytest.mark.parametrize("damage", [lambda byte: byte ^ 0xFF, lambda byte: 0])
def test_a_damaged_file_is_refused_or_read_but_never_crashes(damage: Callable[[int], int], tmp_path: Path) -> None:
    content = bytearray(save_arrays(tmp_path / "good.npz", make_arrays()).read_bytes())
    num_refused = 0
    for place in range(0, len(content), 29):
        damaged = content.copy()
        damaged[place] = damage(damaged[place])
        (tmp_path / "damaged.npz").write_bytes(damaged)
        try:
            read_npz(tmp_path / "damaged.npz")
        except InputError as error:
            num_refused += 1
            assert "damaged.npz" in str(error)  # noqa: PT017 - some damage is harmless
    assert num_refused > 10


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dia"])
@pytest.mark.parametrize("make", [scipy.sparse.eye, scipy.sparse.eye_array])
def test_a_scipy_matrix_is_called_by_its_name(make: Callable[..., Any], form: str, tmp_path: Path) -> None:
    scipy.sparse.save_npz(tmp_path / "matrix.npz", make(4, format=form))
    with pytest.raises(InputError, match=r"matrix\.npz is a SciPy matrix.* graphstrap\.io\.scipy\.from_scipy"):
        read_npz(tmp_path / "matrix.npz")


class Hostile:
    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("unpickled",))


@pytest.mark.parametrize("key", ["edge_index", "x_data", "y", "ids", "class_names"])
def test_nothing_is_unpickled(key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = np.empty(1, dtype=object)
    hostile[0] = Hostile()
    path = save_arrays(tmp_path / "hostile.npz", make_arrays() | {key: hostile})
    with pytest.raises(InputError, match=key):
        read_npz(path)
    assert capsys.readouterr().out == ""
