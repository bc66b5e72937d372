"""Writing embeddings and other tables: Parquet, CSV, NumPy, safetensors and faiss, each file whole or not at all.

The ending of the name chooses the format of embeddings:

    .parquet       columns id and embedding (a list of FLOAT, the same length in each row); where pyarrow is installed,
                   the file also says that lists are of fixed size, as LanceDB and vector columns like it
    .csv           columns id, e0, e1, ...
    .npy           the vectors, float32 (N, D); the ids beside it in <stem>.ids.npy: int64 or strings, never pickled
    .safetensors   tensor embeddings, float32 (N, D); integer ids as int64 tensor ids (N,); text ids as UTF-8 in a uint8
                   tensor ids_utf8, id i from ids_offsets[i] up to ids_offsets[i + 1], an int64 tensor (N + 1,)
    .faiss         an exact index of the unit vectors by inner product, which is the cosine; ids as for .npy.
                   Needs faiss: pip install "graphstrap[search]"
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from graphstrap.errors import InputError
from graphstrap.io.arrays import Archive, Array
from graphstrap.io.database import connect, one_line_errors, quote_name, quote_text
from graphstrap.io.files import atomic_write, check_folder, os_errors
from graphstrap.io.registry import import_extra

PathLike = str | os.PathLike[str]

_FORMATS = {".parquet": "FORMAT parquet", ".csv": "FORMAT csv, HEADER"}

MAG240M_PAPERS = 121_751_666
PARTS = {"test-whole": ("", 146_818), "test-dev": ("_dev", 88_092), "test-challenge": ("_challenge", 58_726)}


def write_embeddings(path: PathLike, ids: Array, vectors: Array) -> None:
    """Write one vector for each id, in the format that the ending of `path` names.

    Args:
        path: ends in .parquet, .csv, .npy, .safetensors or .faiss.
        ids: (N,) integers or strings.
        vectors: (N, D) numbers, written as float32.

    Example:
        gs.write_embeddings("embeddings.parquet", graph.external_ids, model.embed(graph))
    """
    ids, vectors = np.asarray(ids), np.asarray(vectors, dtype=np.float32)
    ids = ids.astype(np.int64 if ids.dtype.kind in "iu" else np.str_)
    if vectors.ndim != 2 or len(vectors) != len(ids):
        raise ValueError(f"vectors must be ({len(ids)}, D), one row for each id, got {vectors.shape}")
    _WRITERS[_find_ending(path, _WRITERS)](Path(path), ids, vectors)


def write_table(path: PathLike, columns: dict[str, Array]) -> None:
    """Write columns of equal length, (N,) numbers, booleans or strings, as .parquet or .csv."""
    lengths = {name: len(column) for name, column in columns.items()}
    if not columns or len(set(lengths.values())) > 1:
        raise ValueError(f"columns must be of equal length, got {lengths}")
    _copy(Path(path), columns, selection="*", options=_FORMATS[_find_ending(path, _FORMATS)])


def check_embeddings_path(path: PathLike) -> None:
    """Fail now rather than after the work, if `write_embeddings` could not write there."""
    if _find_ending(path, _WRITERS) == ".faiss":
        _import_faiss()
    check_folder(Path(path))


def check_table_path(path: PathLike) -> None:
    """Fail now rather than after the work, if `write_table` could not write there."""
    _find_ending(path, _FORMATS)
    check_folder(Path(path))


def ids_path(path: PathLike) -> Path:
    """Where the ids that belong to a .npy or .faiss file of vectors are."""
    return Path(path).with_suffix(".ids.npy")


def _find_ending(path: PathLike, known: Iterable[str]) -> str:
    ending = Path(path).suffix.lower()
    if ending not in known:
        raise InputError(f"cannot write {os.fspath(path)}: the name must end in one of {', '.join(known)}")
    return ending


def _write_parquet(path: Path, ids: Array, vectors: Array) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        names = [f"e{i}" for i in range(vectors.shape[1])]
        columns = {"id": ids} | dict(zip(names, vectors.T, strict=True))
        _copy(path, columns, selection=f"id, [{', '.join(names)}] AS embedding", options=_FORMATS[".parquet"])
        return
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    table = pa.table({"id": pa.array(ids.tolist()), "embedding": lists})
    with atomic_write(path) as temporary:
        pq.write_table(table, temporary)


def _write_csv(path: Path, ids: Array, vectors: Array) -> None:
    columns = {"id": ids} | {f"e{i}": column for i, column in enumerate(vectors.T)}
    _copy(path, columns, selection="*", options=_FORMATS[".csv"])


def _write_npy(path: Path, ids: Array, vectors: Array) -> None:
    with atomic_write(ids_path(path)) as temporary_ids, atomic_write(path) as temporary:
        np.save(temporary_ids, ids, allow_pickle=False)
        np.save(temporary, vectors, allow_pickle=False)


def _write_safetensors(path: Path, ids: Array, vectors: Array) -> None:
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    tensors = {"embeddings": np.ascontiguousarray(vectors)}
    if ids.dtype.kind == "i":
        tensors["ids"] = ids
    else:
        encoded = [text.encode() for text in ids.tolist()]
        tensors["ids_utf8"] = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        tensors["ids_offsets"] = np.cumsum([0] + [len(text) for text in encoded], dtype=np.int64)
    with atomic_write(path) as temporary:
        try:
            save_file(tensors, temporary)
        except SafetensorError as error:
            raise InputError(f"cannot write {path}: {error}") from error


def _write_faiss(path: Path, ids: Array, vectors: Array) -> None:
    faiss = _import_faiss()
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(np.ascontiguousarray(unit, dtype=np.float32))
    with atomic_write(ids_path(path)) as temporary_ids, atomic_write(path) as temporary:
        np.save(temporary_ids, ids, allow_pickle=False)
        temporary.write_bytes(faiss.serialize_index(index).tobytes())


def _import_faiss() -> Any:
    return import_extra("faiss", 'a .faiss index needs faiss, which is not installed: pip install "graphstrap[search]"')


_WRITERS = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".npy": _write_npy,
    ".safetensors": _write_safetensors,
    ".faiss": _write_faiss,
}


def _copy(path: Path, columns: dict[str, Array], *, selection: str, options: str) -> None:
    """Let DuckDB write NumPy columns. It reads them where they are, strings as Python objects."""
    arrays, names = list(columns.values()), _distinct(list(columns))
    registered = {f"c{i}": a.astype(object) if a.dtype.kind == "U" else a for i, a in enumerate(arrays)}
    casts = ", ".join(
        f"{f'CAST(c{i} AS VARCHAR)' if array.dtype.kind in 'UO' else f'c{i}'} AS {quote_name(name)}"
        for i, (array, name) in enumerate(zip(arrays, names, strict=True))
    )
    with connect() as connection, atomic_write(path) as temporary, one_line_errors(str(path), "write"):
        connection.register("columns", registered)
        query = f"SELECT {selection} FROM (SELECT {casts} FROM columns)"
        connection.execute(f"COPY ({query}) TO {quote_text(str(temporary))} ({options}, USE_TMP_FILE false)")


def _distinct(names: list[str]) -> list[str]:
    """Names that differ in more than capitals, which DuckDB does not tell apart: a, A becomes a, A_2."""
    distinct: dict[str, str] = {}  # by its small letters
    for name in names:
        number, unlike = 1, name
        while unlike.lower() in distinct:
            number += 1
            unlike = f"{name}_{number}"
        distinct[unlike.lower()] = unlike
    return list(distinct.values())


# Answers in the layout that OGB-LSC takes for MAG240M: `y_pred` (papers,) int16, in the order of its split's papers, in
# y_pred_mag240m.npz for test-whole, y_pred_mag240m_dev.npz for test-dev, y_pred_mag240m_challenge.npz for the third.


def read_papers(path: Path, *, part: str, below: int) -> Array:
    """(M,) the papers of a part in their order, from OGB-LSC's split saved as plain arrays: `np.savez("split_dict.npz",
    **split)`."""
    _check_part(part)
    with Archive(path) as archive:
        return archive.indices(part, below=below)


def write_submission(folder: Path, answers: Array, *, part: str, num_papers: int | None = None) -> Path:
    """The file of a part of the test papers; its path. `num_papers` is for graphs that are not MAG240M itself."""
    ending, wanted = _check_part(part)
    wanted = wanted if num_papers is None else num_papers
    if answers.shape != (wanted,):
        raise InputError(f"{part} has {wanted:,} papers, got answers of shape {answers.shape}: give one for each paper")
    path = folder / f"y_pred_mag240m{ending}.npz"
    with os_errors(f"{folder} cannot be made"):
        folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as temporary:
        np.savez_compressed(temporary, y_pred=answers.astype(np.int16))
    return path


def _check_part(part: str) -> tuple[str, int]:
    if part not in PARTS:
        raise InputError(f"there is no part {part!r} of MAG240M's test papers: take one of {', '.join(PARTS)}")
    return PARTS[part]
