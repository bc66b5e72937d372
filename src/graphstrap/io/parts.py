"""A store in parts, one for each process: no host needs to hold the whole.

    parts.json            what there is to know of the whole, how it was cut, the checksum of every part's `part.json`
    part_of.npy           (N,) the part of each node: one byte, or two from 257 parts on
    hot.npy               the nodes that most edges come from, the busiest first
    sample.T.npy          the feature rows of node type T that statistics are made from (`scaled.sample_rows`)
    part-00000/           the first part: `part.json` and
        nodes             its nodes, by their numbers in the whole store, which they keep
        indptr, indices   the edges into them; `indices` are numbers of the whole store too
        first_edges       the id of each node's first edge in the whole store: an edge keeps its id
        time_codes, source_time_codes    for each node, and for the node that each edge comes from: the rank of its time
                          among all times, from 1 up; 0 for a node without one
        features.T, labels, ids, edge_types, ...    as in a store, of these nodes and edges

Nodes keep their numbers because all that is random is a hash of them. So the map of nodes to parts is a table instead
of a few offsets: a 244-million-node graph takes 244 MB of it, memory-mapped, shared by the processes of a host. Edges
are kept by target alone: what samplers draw from.

A host needs `parts.json`, the arrays beside it, and its own parts.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph import Graph, Splits
from graphstrap.graph.blocks import Block, Features, QuantisedMatrix, SparseMatrix
from graphstrap.io.arrays import as_tensor, open_array
from graphstrap.io.store_info import StoreInfo, Taker, check_block, check_sizes, is_size, read_info

# What `parts.json` and every `part.json` of a graph in parts say, checked field by field, and the sizes of arrays.
#
# The first has the checksums of the others, which have those of their arrays: a part of another graph, or of another
# number, is none.


PARTS_FILE, PART_FILE = "parts.json", "part.json"
PARTS_FORMAT, PART_FORMAT = "graphstrap-parts", "graphstrap-part"
MAX_PARTS = 1 << 15


@dataclass(frozen=True)
class PartsInfo:
    """What `parts.json` says beside what a store's does."""

    info: StoreInfo
    num_edges: int
    num_classes: int
    num_relations: int
    fingerprint: str
    training_classes: tuple[int, ...] | None  # none where there are no labels
    digests: tuple[str, ...]  # of every part's JSON
    cut: dict[str, Any]  # how it was cut

    @property
    def num_parts(self) -> int:
        return len(self.digests)

    def folder_of(self, number: int) -> Path:
        return self.info.folder / part_name(number)


def part_name(number: int) -> str:
    return f"part-{number:05}"


def read_parts_info(path: str | os.PathLike[str]) -> PartsInfo:
    """Read and check `parts.json`, and the sizes of the arrays beside it."""
    info = read_info(path, file_name=PARTS_FILE, kind=PARTS_FORMAT)
    take = Taker(info.folder, info.about, PARTS_FILE)
    classes = take("training_classes", lambda v: v is None or (isinstance(v, list) and all(map(is_size, v))))
    found = PartsInfo(
        info,
        num_edges=take("num_edges", is_size),
        num_classes=take("num_classes", is_size),
        num_relations=take("num_relations", lambda v: is_size(v) and v > 0),
        fingerprint=take("fingerprint", lambda v: isinstance(v, str) and re.fullmatch(r"[0-9a-f]{32}", v) is not None),
        training_classes=None if classes is None else tuple(classes),
        digests=tuple(take("parts", _are_digests)),
        cut=take("cut", lambda v: isinstance(v, dict)),
    )
    _check_whole(found)
    return found


def read_part_info(found: PartsInfo, number: int) -> StoreInfo:
    """Read and check a part's JSON, which must be the one that `parts.json` knows, and the sizes of its arrays."""
    folder, whole = found.folder_of(number), found.info
    if folder.is_symlink():
        raise InputError(f"{folder} is a link: copy the part itself to its place")
    info = read_info(folder, file_name=PART_FILE, kind=PART_FORMAT)
    if digest_of(folder) != found.digests[number]:
        info.refuse(f"is damaged: it is not the part that {PARTS_FILE} speaks of: copy or prepare it again")
    if (info.blocks, len(info.type_offsets)) != (whole.blocks, len(whole.type_offsets)):
        info.refuse(f"is damaged: its features are not those of {PARTS_FILE}: copy or prepare it again")
    check_sizes(info, num_ids=whole.num_nodes)
    for name, count, dtypes in (
        ("nodes", info.num_nodes, ("<i8",)),
        ("first_edges", info.num_nodes, ("<i8",)),
        ("time_codes", info.num_nodes, ("|u1", "<i2", "<i4")),
        ("source_time_codes", info.num_edges, ("|u1", "<i2", "<i4")),
    ):
        is_needed = name in ("nodes", "first_edges") or "node_times" in info.arrays
        _check_vector(info, name, count, dtypes, is_needed=is_needed)
    return info


def open_tensor(info: StoreInfo, name: str) -> Tensor:
    if name not in info.arrays:
        info.refuse(f"is damaged: it has no array {name}: copy or prepare it again")
    return as_tensor(open_array(info.folder, name, info.arrays[name]), info.arrays[name].dtype)


def digest_of(folder: Path) -> str:
    """The checksum of a part's JSON, which has those of all its arrays."""
    try:
        return hashlib.sha256((folder / PART_FILE).read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"{folder / PART_FILE} cannot be read: {error.strerror or error}") from error


def _are_digests(value: Any) -> bool:
    return (
        isinstance(value, list)
        and 1 <= len(value) <= MAX_PARTS
        and all(isinstance(one, str) and re.fullmatch(r"[0-9a-f]{64}", one) is not None for one in value)
    )


def _check_whole(found: PartsInfo) -> None:
    info = found.info
    if len(info.node_types) != len(info.blocks) or len(info.type_offsets) != len(info.blocks) + 1:
        info.refuse("is damaged: names, sizes and features of its node types differ in number")
    _check_vector(info, "part_of", info.num_nodes, ("|u1" if found.num_parts <= 256 else "<i2",), is_needed=True)
    _check_vector(info, "hot", None, ("<i8",), is_needed=True)
    for number, block in enumerate(info.blocks):
        if block is not None:
            name, kind = f"sample.{number}", "sparse" if block[0] == "sparse" else "dense"
            array = info.arrays.get(f"{name}.indptr" if kind == "sparse" else name)
            rows = 0 if array is None else array.shape[0] - (kind == "sparse")
            check_block(info, name, kind, block[1], rows=rows)


def _check_vector(info: StoreInfo, name: str, count: int | None, dtypes: tuple[str, ...], *, is_needed: bool) -> None:
    array = info.arrays.get(name)
    if array is None and not is_needed:
        return
    if array is None or array.dtype not in dtypes or count not in (None, array.shape[0]) or len(array.shape) != 1:
        info.refuse(f"is damaged: {name} is missing, or not of its type and size: copy or prepare it again")


PLAIN = ("labels", "node_times", "edge_types", "edge_weights", "edge_times", "edge_columns")


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Part(Graph):
    """What one process knows of a graph in parts: the rows of its own nodes, and enough of the whole to build a model.

    As a Graph it has the numbers and names of the whole, and no edges: `features` are samples, `labels` the classes
    that training nodes have.

    Args:
        number: of the part; `num_parts` there are.
        part_of: (N,) the part of each node.
        own: the rows of its own nodes; `own.node_ids` are their numbers, and `own.indices` numbers of the whole.
        first_edges: (n,) the id of the first edge of each row.
        time_codes, source_time_codes: (n,) and (e,), None where nodes have no times.
        hot: the nodes that most edges come from, the busiest first.
    """

    sizes: tuple[int, int, int]  # nodes, edges and classes of the whole
    number: int
    num_parts: int
    num_relations: int
    part_of: Tensor
    own: Graph
    first_edges: Tensor
    time_codes: Tensor | None
    source_time_codes: Tensor | None
    hot: Tensor
    whole_fingerprint: str

    def __post_init__(self) -> None:
        """Nothing to check: its arrays are not those of a graph."""
        object.__setattr__(self, "fingerprint", self.whole_fingerprint)
        object.__setattr__(self, "graph_offsets", (0, self.num_nodes))

    @property
    def num_nodes(self) -> int:
        return self.sizes[0]

    @property
    def num_edges(self) -> int:
        return self.sizes[1]

    @property
    def num_classes(self) -> int:
        return self.sizes[2]

    @property
    def own_ids(self) -> np.ndarray[Any, Any]:
        """(n,) the external ids of its nodes."""
        assert self.own.node_ids is not None
        return self.own.node_ids.numpy() if self.own.ids is None else self.own.ids

    def to(self, device: torch.device | str) -> Graph:
        """It stays on the host: batches travel."""
        return self


def is_parts(path: str | os.PathLike[str]) -> bool:
    return os.path.isfile(os.path.join(path, PARTS_FILE))


def open_part(path: str | os.PathLike[str], number: int) -> Part:
    """One part, memory-mapped. What looks wrong from outside is refused; `verify_parts` looks inside."""
    found = read_parts_info(path)
    whole, info = found.info, read_part_info(found, number)
    own = _own_graph(info)
    if int(own.indptr[0]) != 0 or int(own.indptr[-1]) != own.num_edges:
        info.refuse(f"is damaged: indptr does not run from 0 to {own.num_edges}: copy or prepare it again")
    names = info.arrays
    columns = 0 if own.edge_columns is None else own.edge_columns.shape[1]
    classes = found.training_classes
    return Part(
        indptr=torch.zeros(1, dtype=torch.int64),
        indices=torch.empty(0, dtype=torch.int32),
        features=tuple(_sample(found, t) for t in range(len(whole.blocks))),
        type_offsets=whole.type_offsets,
        node_types=whole.node_types,
        class_names=whole.class_names,
        labels=None if classes is None else torch.tensor(classes, dtype=torch.int64),
        edge_types=torch.tensor([found.num_relations - 1]) if "edge_types" in names else None,
        edge_type_names=whole.edge_type_names,
        edge_weights=torch.empty(0) if "edge_weights" in names else None,
        edge_columns=torch.empty(0, columns) if "edge_columns" in names else None,
        edge_column_names=whole.edge_column_names,
        feature_names=whole.feature_names,
        cleaning=whole.cleaning,
        name=whole.name,
        sizes=(whole.num_nodes, found.num_edges, found.num_classes),
        number=number,
        num_parts=found.num_parts,
        num_relations=found.num_relations,
        part_of=open_tensor(whole, "part_of"),
        own=own,
        first_edges=open_tensor(info, "first_edges"),
        time_codes=open_tensor(info, "time_codes") if "time_codes" in names else None,
        source_time_codes=open_tensor(info, "source_time_codes") if "source_time_codes" in names else None,
        hot=open_tensor(whole, "hot"),
        whole_fingerprint=found.fingerprint,
    )


def _own_graph(info: StoreInfo) -> Graph:
    columns: dict[str, Any] = {name: open_tensor(info, name) if name in info.arrays else None for name in PLAIN}
    try:
        return Graph(
            indptr=open_tensor(info, "indptr"),
            indices=open_tensor(info, "indices"),
            features=tuple(_block(info, "features", t) for t in range(len(info.blocks))),
            type_offsets=info.type_offsets,
            node_types=info.node_types,
            class_names=info.class_names,
            splits=Splits(*(open_tensor(info, p) for p in ("train", "val", "test")))
            if "train" in info.arrays
            else None,
            edge_type_names=info.edge_type_names,
            edge_column_names=info.edge_column_names,
            feature_names=info.feature_names,
            ids=open_array(info.folder, "ids", info.arrays["ids"]) if "ids" in info.arrays else None,
            node_ids=open_tensor(info, "nodes"),
            name=info.name,
            **columns,
        )
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"the store {info.folder} does not hold consistent rows: {error}") from error


def _block(info: StoreInfo, prefix: str, number: int) -> Block | None:
    described = info.blocks[number]
    if described is None:
        return None
    name, (kind, columns) = f"{prefix}.{number}", described
    if kind == "sparse":
        indptr, indices, values = (open_tensor(info, f"{name}.{part}") for part in ("indptr", "indices", "values"))
        return SparseMatrix(indptr, indices, values, columns)
    if kind == "quantised" and prefix == "features":
        scale, offset = (open_tensor(info, f"{name}.{part}") for part in ("scale", "offset"))
        return QuantisedMatrix(open_tensor(info, name), scale, offset)
    return open_tensor(info, name)


def _sample(found: PartsInfo, number: int) -> Features | None:
    block = _block(found.info, "sample", number)
    assert not isinstance(block, QuantisedMatrix)
    return block  # type: ignore[return-value]
