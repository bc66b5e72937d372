"""The format of a store: a folder of plain `.npy` arrays and a JSON file that describes them.

`StoreBuilder` writes one as a whole or not at all; `read_info` reads what `store.json` says and checks it field by
field, and `check_sizes` the type and shape of every array, before any is opened. The JSON names arrays, never files: no
path leads elsewhere. `parts.json` and `part.json` of a graph in parts (see `parts.py`) say the same things, and more.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph import Graph, Splits
from graphstrap.graph.blocks import Block, QuantisedMatrix, SparseMatrix
from graphstrap.graph.edge_list import Cleaning
from graphstrap.graph.graph import EDGE_FIELDS, NODE_FIELDS, SPLITS
from graphstrap.io.arrays import Array, ArrayInfo, ArrayWriter, as_tensor, checksum, dtype_name, open_array
from graphstrap.io.files import atomic_folder, atomic_write, read_text

Report = Callable[[str, float], None]  # told of a stage and how much of it is done, from 0 to 1

STORE_FILE = "store.json"
FORMAT, VERSION = "graphstrap-store", 1
_MAX_JSON_BYTES = 1 << 26
_MAX_SIZE = 1 << 48
_DTYPES = r"\|b1|\|u1|\|i1|<i[248]|<u[248]|<f[248]|<U[1-9][0-9]{0,5}|bfloat16"
_ARRAY_NAMES = (
    r"indptr|indices|out_indptr|out_indices|out_positions|labels|train|val|test|node_times|ids"
    r"|edge_types|edge_weights|edge_times|edge_columns"
    r"|part_of|hot|nodes|first_edges|time_codes|source_time_codes"  # of partitioned graphs
    r"|(features|sample)\.[0-9]{1,3}(\.(indptr|indices|values|scale|offset|pca_mean|pca_components))?"
)
FACTS = (
    *("name", "type_offsets", "graph_offsets", "node_types", "features", "class_names", "feature_names"),
    *("edge_type_names", "edge_column_names", "cleaning"),
)
_KINDS = {SparseMatrix: "sparse", QuantisedMatrix: "quantised"}  # of feature blocks; others are dense
_MEMBERS = {"dense": (), "sparse": ("indptr", "indices", "values"), "quantised": ("scale", "offset")}
COPY_IT = "copy or prepare it again"


class StoreBuilder:
    """Arrays on their way into a store. `scratch` is a folder for temporary files, gone when the build ends."""

    def __init__(self, folder: Path, *, file_name: str = STORE_FILE, kind: str = FORMAT) -> None:
        self.folder, self.scratch = folder, folder / ".scratch"
        self.file_name, self.kind = file_name, kind
        self.arrays: dict[str, ArrayInfo] = {}
        self.open_files = ExitStack()
        self._appended: dict[str, ArrayWriter] = {}
        self.scratch.mkdir()

    @contextmanager
    def array(self, name: str, *, dtype: str, columns: tuple[int, ...] = ()) -> Iterator[ArrayWriter]:
        """An array to append rows to; it is part of the store when the block ends without an exception."""
        assert name not in self.arrays, name
        with ArrayWriter(self.folder / f"{name}.npy", dtype=dtype, columns=columns) as writer:
            yield writer
            self.arrays[name] = writer.close()

    def append(self, name: str, rows: Array) -> None:
        """Rows of a temporary array, which is of the type and width of the first that it gets."""
        if name not in self._appended:
            writer = ArrayWriter(self.scratch / f"{name}.npy", dtype=rows.dtype.str, columns=rows.shape[1:])
            self._appended[name] = self.open_files.enter_context(writer)
        self._appended[name].append(rows)

    def appended(self, name: str) -> Array:
        """What was appended, memory-mapped."""
        return open_array(self.scratch, name, self._appended[name].close())

    def write(self, name: str, values: Array | Tensor, *, dtype: str | None = None) -> None:
        """A whole array that is in memory, in its own type or in another."""
        with self.array(name, dtype=dtype or dtype_name(values), columns=tuple(values.shape[1:])) as writer:
            writer.append(values)

    def write_nodes(self, graph: Graph, nodes: Tensor | None = None) -> None:
        """What these nodes, or all, have beside features."""
        columns = graph.columns(NODE_FIELDS) | ({} if graph.splits is None else vars(graph.splits))
        for name, column in columns.items():
            self.write(name, column if nodes is None else column.index_select(0, nodes))
        if graph.ids is not None:
            ids = np.asarray(graph.ids if nodes is None else graph.ids[nodes.numpy()])
            self.write("ids", ids if ids.dtype.kind in "iu" else ids.astype(np.str_))

    def write_block(self, name: str, block: Block) -> None:
        """The arrays of a feature block that is in memory."""
        if not isinstance(block, SparseMatrix):
            self.write(name, block.codes if isinstance(block, QuantisedMatrix) else block)  # type: ignore[arg-type]
        for member in _MEMBERS[describe_block(block)["kind"]]:
            self.write(f"{name}.{member}", getattr(block, member))

    def read(self, name: str) -> Array:
        """A finished array, memory-mapped."""
        return open_array(self.folder, name, self.arrays[name])

    def read_tensor(self, name: str) -> Tensor:
        """The same as a tensor, which nothing may write to."""
        return as_tensor(self.read(name), self.arrays[name].dtype)

    def finish(self, about: dict[str, Any]) -> None:
        """Write what describes the store: from then on the folder is one."""
        shutil.rmtree(self.scratch)
        described = {"format": self.kind, "version": VERSION, **about}
        described["arrays"] = {name: asdict(info) for name, info in sorted(self.arrays.items())}
        with atomic_write(self.folder / self.file_name) as temporary:
            temporary.write_text(json.dumps(described, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


@contextmanager
def build_store(
    path: str | os.PathLike[str], *, overwrite: bool = False, file_name: str = STORE_FILE, kind: str = FORMAT
) -> Iterator[StoreBuilder]:
    """Yield a builder; the store gets its name when the block ends. An OSError comes out as an InputError."""
    final = Path(os.path.abspath(path))

    def check() -> None:
        if not final.parent.is_dir():
            raise InputError(f"cannot write {final}: the folder {final.parent} does not exist: create it first")
        if not os.path.lexists(final):
            return
        if not overwrite:
            raise InputError(f"{final} exists: choose another name, or replace it with --overwrite")
        if final.is_symlink() or not (final / file_name).is_file():
            raise InputError(f"{final} is not a store (no {file_name}), so it is not replaced: choose another name")

    with atomic_folder(final, check=check) as folder:
        builder = StoreBuilder(folder, file_name=file_name, kind=kind)
        with builder.open_files:
            yield builder
        assert (folder / file_name).exists(), "finish() makes it a store"


def describe(graph: Graph, blocks: tuple[Block | None, ...]) -> dict[str, Any]:
    """What `store.json` says of a graph with these feature blocks, beside its arrays."""
    return {name: getattr(graph, name) for name in FACTS} | {
        "graph_offsets": graph.graph_offsets if graph.num_graphs > 1 else None,
        "features": [None if block is None else describe_block(block) for block in blocks],
        "cleaning": asdict(graph.cleaning),
    }


def describe_block(block: Block) -> dict[str, Any]:
    return {"kind": _KINDS.get(type(block), "dense"), "columns": int(block.shape[1])}


def edge_columns(graph: Graph) -> dict[str, tuple[Tensor, str]]:
    """Where edges come from, and what they have, each with its type in a store."""
    dtypes = {"edge_types": edge_type_dtype(len(graph.edge_type_names))}
    columns = graph.columns(("indices", *EDGE_FIELDS))
    return {name: (column, dtypes.get(name) or dtype_name(column)) for name, column in columns.items()}


def edge_type_dtype(num_types: int) -> str:
    """One byte for each edge's type where that is enough."""
    return "|u1" if 0 < num_types <= 256 else "<i8"


# ---- reading ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StoreInfo:
    """What `store.json` says, and the arrays that it describes."""

    folder: Path
    facts: dict[str, Any]  # fields of the graph: names, offsets and what was cleaned
    blocks: tuple[tuple[str, int] | None, ...]  # kind and width of each type's features
    arrays: dict[str, ArrayInfo]
    about: dict[str, Any]  # all of the JSON, unchecked

    @property
    def name(self) -> str:
        return str(self.facts["name"])

    @property
    def type_offsets(self) -> tuple[int, ...]:
        return tuple(self.facts["type_offsets"])

    @property
    def num_nodes(self) -> int:
        return self.type_offsets[-1]

    @property
    def num_edges(self) -> int:
        return self.arrays["indices"].shape[0]

    @property
    def num_bytes(self) -> int:
        return sum(array.num_bytes for array in self.arrays.values())

    def refuse(self, problem: str) -> NoReturn:
        refuse(self.folder, problem)

    def open_tensor(self, name: str) -> Tensor:
        """An array as a tensor over a read-only memory map."""
        if name not in self.arrays:
            self.refuse(f"is damaged: it has no array {name}: {COPY_IT}")
        return as_tensor(open_array(self.folder, name, self.arrays[name]), self.arrays[name].dtype)

    def open_block(self, number: int, *, prefix: str = "features") -> Block | None:
        """The features of a node type, memory-mapped; `sample` for a few rows of them, which are never quantised."""
        described = self.blocks[number]
        if described is None:
            return None
        name, (kind, columns) = f"{prefix}.{number}", described
        kind = "dense" if prefix == "sample" and kind == "quantised" else kind
        members = [self.open_tensor(f"{name}.{member}") for member in _MEMBERS[kind]]
        if kind == "sparse":
            indptr, indices, values = members
            return SparseMatrix(indptr, indices, values, columns)
        values = self.open_tensor(name)
        return QuantisedMatrix(values, *members) if kind == "quantised" else values

    def open_graph(self, **more: Any) -> Graph:
        """The arrays, and `more`, as a graph, whose in-edges must begin and end as they should."""
        columns: dict[str, Any] = {
            name: self.open_tensor(name) for name in (*NODE_FIELDS, *EDGE_FIELDS) if name in self.arrays
        }
        if "train" in self.arrays:
            columns["splits"] = Splits(*(self.open_tensor(name) for name in SPLITS))
        if "ids" in self.arrays:
            columns["ids"] = open_array(self.folder, "ids", self.arrays["ids"])
        features = tuple(self.open_block(t) for t in range(len(self.blocks)))
        indptr, indices = self.open_tensor("indptr"), self.open_tensor("indices")
        try:
            graph = Graph(indptr=indptr, indices=indices, features=features, **columns, **self.facts, **more)
        except InputError:
            raise
        except ValueError as error:
            raise InputError(f"the store {self.folder} does not hold a consistent graph: {error}") from error
        self.check_ends(graph.indptr)
        return graph

    def check_ends(self, indptr: Tensor) -> None:
        if int(indptr[0]) != 0 or int(indptr[-1]) != self.num_edges:
            self.refuse(f"is damaged: indptr does not run from 0 to {self.num_edges}: {COPY_IT}")

    def check_sizes(self, *, num_ids: int | None = None) -> None:
        """Check the type and shape of every array before any is mapped. Edges come from `num_ids` nodes, or from its
        own."""
        if not {"indptr", "indices"} <= set(self.arrays):
            self.refuse(f"is damaged: it has no edges: {COPY_IT}")
        num_nodes, num_edges = self.num_nodes, self.num_edges
        index_type = "<i4" if (num_nodes if num_ids is None else num_ids) < 2**31 else "<i8"
        for names, rows, dtypes, axes in (
            (("indptr", "out_indptr"), num_nodes + 1, ("<i8",), (1,)),
            (("indices", "out_indices"), num_edges, (index_type,), (1,)),
            (("out_positions",), num_edges, ("<i8",), (1,)),
            (SPLITS, num_nodes, ("|b1",), (2,)),
            (("labels",), num_nodes, ("<i8", "|u1"), (1, 2)),
            (("node_times",), num_nodes, ("<i", "<f"), (1,)),
            (("ids",), num_nodes, ("<i8", "<U"), (1,)),
            (("edge_types",), num_edges, ("|u1", "<i8"), (1,)),
            (("edge_weights",), num_edges, ("<f4",), (1,)),
            (("edge_times",), num_edges, ("<i", "<f"), (1,)),
            (("edge_columns",), num_edges, ("<f4",), (2,)),
        ):
            for name in names:
                if name in self.arrays:
                    self.check_array(name, dtypes, rows=rows, axes=axes)
        for number, block in enumerate(self.blocks):
            if block is not None:
                rows = self.type_offsets[number + 1] - self.type_offsets[number]
                self.check_block(f"features.{number}", *block, rows=rows)

    def check_block(self, name: str, kind: str, columns: int, *, rows: int) -> None:
        if kind == "sparse":
            self.check_array(f"{name}.indptr", ("<i8",), rows=rows + 1)
            self.check_array(f"{name}.indices", ("<i4",))
            self.check_array(f"{name}.values", ("<f4",))
            return
        dtypes = ("|u1",) if kind == "quantised" else ("<f4", "<f2", "bfloat16")
        self.check_array(name, dtypes, rows=rows, columns=columns, axes=(2,))
        if kind == "quantised":
            self.check_array(f"{name}.scale", ("<f4",), rows=columns)
            self.check_array(f"{name}.offset", ("<f4",), rows=columns)

    def check_array(
        self,
        name: str,
        dtypes: tuple[str, ...],
        *,
        rows: int | None = None,
        columns: int | None = None,
        axes: tuple[int, ...] = (1,),
    ) -> None:
        """An array must be there, of a type that begins with one of `dtypes`, and of this shape where that is known."""
        array = self.arrays.get(name)
        if array is None:
            self.refuse(f"is damaged: it has no array {name}: {COPY_IT}")
        wanted = (rows, columns)[: len(array.shape)]
        fits = all(size in (None, found) for size, found in zip(wanted, array.shape, strict=True))
        if not fits or len(array.shape) not in axes or not array.dtype.startswith(dtypes):
            shape = " x ".join("any" if size is None else f"{size:,}" for size in (rows, columns)[: max(axes)])
            self.refuse(
                f"is damaged: {name} is {array.dtype} of shape {array.shape}, expected {' or '.join(dtypes)} of shape "
                f"{shape}: {COPY_IT}"
            )


def is_store(path: str | os.PathLike[str]) -> bool:
    return os.path.isfile(os.path.join(path, STORE_FILE))


def read_info(path: str | os.PathLike[str], *, file_name: str = STORE_FILE, kind: str = FORMAT) -> StoreInfo:
    """Read and check `store.json`, in time and memory bounded by its own size."""
    folder = Path(path)
    described = _read_json(folder, file_name)
    if described.get("format") != kind:
        refuse(folder, f"is no store: format is {described.get('format')!r:.100}")
    version = described.get("version")
    if version != VERSION:
        refuse(folder, f"has version {version!r:.100} where this program reads {VERSION}: prepare it again")
    take = partial(checked_value, folder, file_name, described)
    names = ["node_types", "edge_type_names", "edge_column_names"]
    names += [name for name in ("class_names", "feature_names") if described.get(name) is not None]
    info = StoreInfo(
        folder,
        facts={
            "name": take("name", str),
            "type_offsets": tuple(take("type_offsets", _are_offsets)),
            "graph_offsets": tuple(take("graph_offsets", lambda v: v is None or _are_offsets(v)) or ()),
            "cleaning": Cleaning(**take("cleaning", _is_cleaning)),
            **{name: tuple(take(name, [str])) for name in names},
        },
        blocks=tuple(None if b is None else (b["kind"], b["columns"]) for b in take("features", [_is_block])),
        arrays={
            name: ArrayInfo(a["dtype"], tuple(a["shape"]), a["sha256"])
            for name, a in take("arrays", _are_arrays).items()
        },
        about=described,
    )
    if not len(info.facts["node_types"]) == len(info.blocks) == len(info.type_offsets) - 1:
        info.refuse("is damaged: names, sizes and features of its node types differ in number")
    return info


def refuse(folder: Path, problem: str) -> NoReturn:
    raise InputError(f"the store {folder} {problem}")


def checked_value(folder: Path, file_name: str, described: dict[str, Any], key: str, form: Any) -> Any:
    """What the JSON says under a key, in the form that `fits` knows."""
    value = described.get(key)
    if not fits(value, form):
        refuse(folder, f"is damaged: {key} in {file_name} is missing or wrong: {COPY_IT}")
    return value


def fits(value: Any, form: Any) -> bool:
    """Whether a value of JSON has a form: a type, a list of one form, a dict with a form for each key, or a test."""
    if isinstance(form, list):
        return isinstance(value, list) and all(fits(item, form[0]) for item in value)
    if isinstance(form, dict):
        return isinstance(value, dict) and all(fits(value.get(key), one) for key, one in form.items())
    return type(value) is form if isinstance(form, type) else bool(form(value))


def _read_json(folder: Path, file_name: str) -> dict[str, Any]:
    path = folder / file_name
    if path.is_symlink() or not path.is_file():
        refuse(folder, f"is no store: it has no {file_name}")
    try:
        described = json.loads(read_text(path, max_bytes=_MAX_JSON_BYTES))
    except (ValueError, RecursionError) as error:
        raise InputError(f"the store {folder} is damaged: {file_name} cannot be read ({error})") from error
    if not isinstance(described, dict):
        refuse(folder, f"is damaged: {file_name} is not an object")
    return described


def is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MAX_SIZE


def _are_offsets(value: Any) -> bool:
    return fits(value, [is_size]) and len(value) >= 2 and value[0] == 0 and value == sorted(value)


def _is_block(value: Any) -> bool:
    return value is None or fits(value, {"kind": list(_MEMBERS).__contains__, "columns": is_size})


def _is_cleaning(value: Any) -> bool:
    names = {field.name for field in fields(Cleaning)}
    return isinstance(value, dict) and set(value) <= names and all(map(is_size, value.values()))


def _are_arrays(value: Any) -> bool:
    names_fit = isinstance(value, dict) and all(re.fullmatch(_ARRAY_NAMES, name) for name in value)
    return names_fit and all(fits(array, _ARRAY) for array in value.values())


_ARRAY = {
    "dtype": lambda v: isinstance(v, str) and re.fullmatch(_DTYPES, v),
    "shape": lambda v: fits(v, [is_size]) and 1 <= len(v) <= 2,
    "sha256": str,
}


def check_sums(infos: list[StoreInfo], progress: Callable[[int, int], None]) -> None:
    """Read all arrays of these folders: every checksum must be right. `progress` is told of bytes done, and of all."""
    total, done = sum(info.num_bytes for info in infos), 0
    for info in infos:
        for name, array in info.arrays.items():
            if checksum(info.folder, name, array) != array.sha256:
                info.refuse(f"is damaged: {name}.npy does not have its checksum: {COPY_IT}")
            done += array.num_bytes
            progress(done, total)
