"""A store in parts, one for each process: no host needs to hold the whole.

    parts.json            what there is to know of the whole, how it was cut, the checksum of every part's `part.json`
    part_of.npy           (N,) the part of each node: one byte, or two from 257 parts on
    hot.npy               the nodes that most edges come from, the busiest first
    sample.T.npy          the feature rows of node type T that statistics are made from (`blocks.sample_rows`)
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
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.graph.blocks import Block, QuantisedMatrix, readable, row_positions, row_starts, take_rows
from graphstrap.graph.graph import EDGE_FIELDS, NODE_FIELDS
from graphstrap.graph.many import join_features, join_splits, join_tensors
from graphstrap.io.files import read_bytes, room_for_files
from graphstrap.io.store import check_edges, check_range, check_values
from graphstrap.io.store_format import COPY_IT, StoreInfo, check_sums, checked_value, fits, is_size, read_info

PARTS_FILE, PART_FILE = "parts.json", "part.json"
PARTS_FORMAT, PART_FORMAT = "graphstrap-parts", "graphstrap-part"
MAX_PARTS = 1 << 15


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Part(Graph):
    """What one process knows of a graph in parts: the rows of its own nodes, and enough of the whole to build a model.

    As a Graph it has the numbers and names of the whole, and no edges: `features` are samples, `labels` the classes
    that training nodes have.
    """

    sizes: tuple[int, int, int, int]  # nodes, edges, classes and relations of the whole
    number: int
    num_parts: int
    part_of: Tensor  # (N,)
    own: Graph  # the rows of its own nodes; `own.node_ids` are their numbers, and `own.indices` numbers of the whole
    first_edges: Tensor  # (n,) the id of the first edge of each row
    time_codes: Tensor | None  # (n,) None where nodes have no times
    source_time_codes: Tensor | None  # (e,)
    hot: Tensor  # the nodes that most edges come from, the busiest first
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
    def num_relations(self) -> int:
        return self.sizes[3]

    @property
    def nodes(self) -> Tensor:
        """(n,) the numbers of its own nodes."""
        assert self.own.node_ids is not None
        return self.own.node_ids

    @property
    def own_ids(self) -> np.ndarray[Any, Any]:
        """(n,) the external ids of its nodes."""
        return self.nodes.numpy() if self.own.ids is None else self.own.ids

    def to(self, device: torch.device | str) -> Graph:
        """It stays on the host: batches travel."""
        return self


def is_parts(path: str | os.PathLike[str]) -> bool:
    return os.path.isfile(os.path.join(path, PARTS_FILE))


def open_part(path: str | os.PathLike[str], number: int) -> Part:
    """One part, memory-mapped. What looks wrong from outside is refused; `verify_parts` looks inside."""
    found = read_parts_info(path)
    whole, info = found.info, read_part_info(found, number)
    own, classes = info.open_graph(node_ids=info.open_tensor("nodes")), found.training_classes
    has_times = "time_codes" in info.arrays
    return Part(
        indptr=torch.zeros(1, dtype=torch.int64),
        indices=torch.empty(0, dtype=torch.int32),
        features=tuple(whole.open_block(t, prefix="sample") for t in range(len(whole.blocks))),
        labels=None if classes is None else torch.tensor(classes, dtype=torch.int64),
        edge_types=None if own.edge_types is None else torch.tensor([found.num_relations - 1]),
        edge_weights=None if own.edge_weights is None else torch.empty(0),
        edge_columns=None if own.edge_columns is None else torch.empty(0, own.edge_columns.shape[1]),
        sizes=(whole.num_nodes, found.num_edges, found.num_classes, found.num_relations),
        number=number,
        num_parts=found.num_parts,
        part_of=whole.open_tensor("part_of"),
        own=own,
        first_edges=info.open_tensor("first_edges"),
        time_codes=info.open_tensor("time_codes") if has_times else None,
        source_time_codes=info.open_tensor("source_time_codes") if has_times else None,
        hot=whole.open_tensor("hot"),
        whole_fingerprint=found.fingerprint,
        **whole.facts,
    )


# ---- all parts together ---------------------------------------------------------------------------------------------


def verify_parts(
    path: str | os.PathLike[str], *, progress: Callable[[int, int], None] = lambda done, total: None
) -> PartsInfo:
    """Read all parts through: every checksum must be right, every number in its range, every node in one part."""
    found = read_parts_info(path)
    infos = [found.info, *(read_part_info(found, number) for number in range(found.num_parts))]
    check_sums(infos, progress)
    try:
        with _room_for(found, infos):
            _check_structure([open_part(path, number) for number in range(found.num_parts)])
    except (ValueError, IndexError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"the parts in {path} do not hold a graph: {error}: copy or prepare them again") from error
    return found


def join_parts(path: str | os.PathLike[str]) -> Graph:
    """The whole graph, put together in memory, after its parts were read through."""
    found = read_parts_info(path)
    infos = [read_part_info(found, number) for number in range(found.num_parts)]
    _check_memory(found, infos)
    verify_parts(path)
    with _room_for(found, infos):
        return _joined([open_part(path, number) for number in range(found.num_parts)])


def _joined(parts: list[Part]) -> Graph:
    rows = [part.own for part in parts]
    order = torch.argsort(torch.cat([part.nodes for part in parts]))
    degrees = torch.cat([own.in_degrees for own in rows])
    edges = row_positions(row_starts(degrees), order)

    def joined(name: str, order: Tensor) -> Tensor | None:
        column = join_tensors([getattr(own, name) for own in rows])
        return None if column is None else column.index_select(0, order)

    splits = join_splits([own.splits for own in rows])
    ids = [own.ids for own in rows if own.ids is not None]
    graph = replace(
        rows[0],
        indptr=row_starts(degrees.index_select(0, order)),
        features=tuple(_joined_block(rows, t) for t in range(len(rows[0].features))),
        type_offsets=parts[0].type_offsets,
        graph_offsets=(),
        splits=None if splits is None else splits.map(lambda mask: mask.index_select(0, order)),
        ids=np.concatenate(ids)[order.numpy()] if ids else None,
        node_ids=None,
        **{name: joined(name, order) for name in NODE_FIELDS},  # type: ignore[arg-type]
        **{name: joined(name, edges) for name in ("indices", *EDGE_FIELDS)},  # type: ignore[arg-type]
    )
    object.__setattr__(graph, "fingerprint", parts[0].fingerprint)
    return graph


def _room_for(found: PartsInfo, infos: list[StoreInfo]) -> AbstractContextManager[None]:
    """Every part maps its own arrays, and those of the whole."""
    number = sum(len(info.arrays) for info in infos) + found.num_parts * len(found.info.arrays)
    return room_for_files(number, what=f"a graph in {found.num_parts} parts, all of them together,")


def _check_memory(found: PartsInfo, infos: list[StoreInfo]) -> None:
    """Refuse what this machine could not hold: all arrays, and once more while they are put in order."""
    needed = 2 * sum(info.num_bytes for info in infos)
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not said on every system
        return
    if needed > memory:
        raise InputError(
            f"{found.info.folder} is put together in memory, and takes {needed / 1e9:.0f} GB of it: take the whole "
            f"store, or --workers {found.num_parts} where a verb has it"
        )


def _check_structure(parts: list[Part]) -> None:
    """Raise a ValueError that says what is wrong."""
    whole = parts[0]
    if sum(part.own.num_edges for part in parts) != whole.num_edges:
        raise ValueError(f"parts do not have {whole.num_edges} edges together")
    check_range("part_of", whole.part_of, len(parts))
    check_range("hot nodes", whole.hot, whole.num_nodes)
    check_values(whole)
    degrees, codes = torch.zeros(2, whole.num_nodes, dtype=torch.int64)
    for part in parts:
        own, nodes = part.own, part.nodes
        if not torch.equal(nodes, (part.part_of == part.number).nonzero().squeeze(1)):
            raise ValueError(f"part {part.number} does not have the nodes that part_of says")
        if torch.searchsorted(nodes, torch.tensor(part.type_offsets)).tolist() != list(own.type_offsets):
            raise ValueError(f"part {part.number} does not have the node types of the whole")
        check_edges("in", own.indptr, own.indices, whole.num_nodes)
        check_values(own)
        if own.edge_types is not None:
            check_range("edge types", own.edge_types, part.num_relations)
        degrees[nodes] = own.in_degrees
        if part.time_codes is not None:
            codes[nodes] = part.time_codes.long()
    indptr = row_starts(degrees)
    for part in parts:
        if not torch.equal(part.first_edges, indptr.index_select(0, part.nodes)):
            raise ValueError(f"part {part.number} does not say where the edges of its nodes stand in the whole")
        times = part.source_time_codes
        if times is not None and not torch.equal(times.long(), codes.index_select(0, part.own.indices.long())):
            raise ValueError(f"part {part.number} has other times for the sources of its edges than their parts")


def _joined_block(rows: list[Graph], number: int) -> Block:
    """The features of one node type, from all parts, in the order of the nodes."""
    spans = [slice(*own.type_offsets[number : number + 2]) for own in rows]
    nodes = [own.node_ids[span] for own, span in zip(rows, spans, strict=True) if own.node_ids is not None]
    order, blocks = torch.argsort(torch.cat(nodes)), [own.features[number] for own in rows]
    if isinstance(first := blocks[0], QuantisedMatrix):
        codes = torch.cat([block.codes for block in blocks if isinstance(block, QuantisedMatrix)])
        return QuantisedMatrix(codes.index_select(0, order), first.scale, first.offset)
    joined = join_features([readable(block) for block in blocks])
    assert joined is not None, "every type of a graph in parts has features"
    return take_rows(joined, order)


# ---- what parts.json and every part.json say -------------------------------------------------------------------------


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


def part_name(number: int) -> str:
    return f"part-{number:05}"


def read_parts_info(path: str | os.PathLike[str]) -> PartsInfo:
    """Read and check `parts.json`, and the sizes of the arrays beside it."""
    info = read_info(path, file_name=PARTS_FILE, kind=PARTS_FORMAT)
    take = partial(checked_value, info.folder, PARTS_FILE, info.about)
    classes = take("training_classes", lambda v: v is None or fits(v, [is_size]))
    found = PartsInfo(
        info,
        num_edges=take("num_edges", is_size),
        num_classes=take("num_classes", is_size),
        num_relations=take("num_relations", lambda v: is_size(v) and v > 0),
        fingerprint=take("fingerprint", partial(_is_hex, 32)),
        training_classes=None if classes is None else tuple(classes),
        digests=tuple(take("parts", lambda v: fits(v, [partial(_is_hex, 64)]) and 1 <= len(v) <= MAX_PARTS)),
        cut=take("cut", dict),
    )
    info.check_array("part_of", ("|u1" if found.num_parts <= 256 else "<i2",), rows=info.num_nodes)
    info.check_array("hot", ("<i8",))
    for number, block in enumerate(info.blocks):
        if block is not None:
            name, kind = f"sample.{number}", "sparse" if block[0] == "sparse" else "dense"
            array = info.arrays.get(f"{name}.indptr" if kind == "sparse" else name)
            rows = 0 if array is None else array.shape[0] - (kind == "sparse")
            info.check_block(name, kind, block[1], rows=rows)
    return found


def read_part_info(found: PartsInfo, number: int) -> StoreInfo:
    """Read and check a part's JSON, which must be the one that `parts.json` knows, and the sizes of its arrays."""
    folder, whole = found.info.folder / part_name(number), found.info
    if folder.is_symlink():
        raise InputError(f"{folder} is a link: copy the part itself to its place")
    info = read_info(folder, file_name=PART_FILE, kind=PART_FORMAT)
    if digest_of(folder) != found.digests[number]:
        info.refuse(f"is damaged: it is not the part that {PARTS_FILE} speaks of: {COPY_IT}")
    if (info.blocks, len(info.type_offsets)) != (whole.blocks, len(whole.type_offsets)):
        info.refuse(f"is damaged: its features are not those of {PARTS_FILE}: {COPY_IT}")
    info.check_sizes(num_ids=whole.num_nodes)
    info.check_array("nodes", ("<i8",), rows=info.num_nodes)
    info.check_array("first_edges", ("<i8",), rows=info.num_nodes)
    for name, rows in (("time_codes", info.num_nodes), ("source_time_codes", info.num_edges)):
        if name in info.arrays or "node_times" in info.arrays:
            info.check_array(name, ("|u1", "<i2", "<i4"), rows=rows)
    return info


def digest_of(folder: Path) -> str:
    """The checksum of a part's JSON, which has those of all its arrays."""
    return hashlib.sha256(read_bytes(folder / PART_FILE)).hexdigest()


def _is_hex(length: int, value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(rf"[0-9a-f]{{{length}}}", value) is not None
