"""The nodes table to the arrays of a store, a part of its rows at a time.

Rows come in the order of the table; nodes stand type by type. What a node has goes to one file for each type, and the
files are joined at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from graphstrap.errors import InputError
from graphstrap.io.arrays import Array, ArrayInfo, ArrayWriter, open_array
from graphstrap.io.columns import NodeColumns
from graphstrap.io.database import TableCopy, TableSlice
from graphstrap.io.store_builder import StoreBuilder
from graphstrap.io.tables import check_classes, split_names
from graphstrap.io.values import (
    Column,
    check_cells,
    check_gaps,
    code_names,
    feature_names,
    find_feature_kinds,
    read_columns,
    read_times,
    time_expression,
)
from graphstrap.io.write_edges import Report

_FIRST_ROWS = 1024  # read to learn how wide lists are


@dataclass
class NodePart:
    """What `store.json` and the next steps need to know of the nodes."""

    node_types: tuple[str, ...] = ("node",)
    type_code: str | None = None  # SQL, where nodes have types
    type_offsets: tuple[int, ...] = ()
    class_names: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    raw_blocks: list[Array | None] = field(default_factory=list)


class ByType:
    """An array whose rows come for all types in turn, and stand type by type in the end."""

    def __init__(self, builder: StoreBuilder, name: str, *, dtype: str, num_types: int, columns: tuple[int, ...] = ()):
        self.builder, self.name, self.dtype, self.columns = builder, name, dtype, columns
        names = [f"{name}.of.{t}" for t in range(num_types)]
        self.writers = [builder.scratch_array(one, dtype=dtype, columns=columns) for one in names]

    def append(self, rows: Array, types: Array | None) -> None:
        for t, writer in enumerate(self.writers):
            writer.append(rows if types is None else rows[types == t])

    def finish(self) -> None:
        with self.builder.array(self.name, dtype=self.dtype, columns=self.columns) as final:
            for array in self.close():
                for begin in range(0, len(array), 1 << 20):
                    final.append(array[begin : begin + (1 << 20)])

    def close(self) -> Iterator[Array]:
        for writer in self.writers:
            info: ArrayInfo = writer.close()
            yield open_array(writer.path.parent, writer.path.stem, info)
            writer.path.unlink()


def write_nodes(
    builder: StoreBuilder, copy: TableCopy, columns: NodeColumns, *, chunk_bytes: int, report: Report
) -> NodePart:
    """Labels, splits and times go to the store, raw features to scratch files."""
    part, whole = NodePart(), copy.whole
    if columns.type is not None:
        part.node_types, part.type_code = code_names(whole, columns.type)
    num_types = len(part.node_types)
    readers = _readers(builder, copy, columns, part)
    counts = np.zeros(num_types, dtype=np.int64)
    features = _Features(builder, copy, columns.features, num_types)
    if num_types > 1:
        for rows in copy.slices(features.step(chunk_bytes)):
            features.look(rows, _types(rows, part, columns))
    for rows in copy.slices(features.step(chunk_bytes)):
        types = _types(rows, part, columns)
        counts += len_by_type(rows, types, num_types)
        for arrays, read in readers:
            for array, values in zip(arrays, read(rows), strict=True):
                array.append(values, types)
        features.write(rows, types)
        report("reading nodes", rows.end / max(1, copy.num_rows))
    for arrays, _ in readers:
        for array in arrays:
            array.finish()
    part.raw_blocks, part.feature_names = features.finish()
    part.type_offsets = (0, *np.cumsum(counts).tolist())
    return part


def len_by_type(rows: TableSlice, types: Array | None, num_types: int) -> Array:
    return np.array([rows.end - rows.begin]) if types is None else np.bincount(types, minlength=num_types)


def _types(rows: TableSlice, part: NodePart, columns: NodeColumns) -> Array | None:
    if part.type_code is None:
        return None
    codes = np.asarray(rows.fetch({"code": part.type_code})["code"])
    check_cells(rows, str(columns.type), is_good=codes >= 0, wanted="a node type")
    return codes


Reader = tuple[list[ByType], Callable[[TableSlice], list[Array]]]


def _readers(builder: StoreBuilder, copy: TableCopy, columns: NodeColumns, part: NodePart) -> list[Reader]:
    """For labels, splits and times: the arrays they go to, and how a part of the table becomes rows of them."""
    readers: list[Reader] = []
    whole = copy.whole

    def arrays(names: tuple[str, ...], dtype: str, shape: tuple[int, ...] = ()) -> list[ByType]:
        num_types = len(part.node_types)
        return [ByType(builder, name, dtype=dtype, num_types=num_types, columns=shape) for name in names]

    if columns.label is not None:
        part.class_names, label_code = code_names(whole, columns.label)
        check_classes(whole, columns.label, part.class_names)
        readers.append((arrays(("labels",), "<i8"), lambda rows: [np.asarray(rows.fetch({"c": label_code})["c"])]))
    if columns.split is not None:
        values, split_code = code_names(whole, columns.split)
        splits = split_names(whole, columns.split, values=values)

        def read_splits(rows: TableSlice) -> list[Array]:
            found = splits[np.asarray(rows.fetch({"c": split_code})["c"])]
            return [(found == name)[:, None] for name in ("train", "val", "test")]

        readers.append((arrays(("train", "val", "test"), "|b1", (1,)), read_splits))
    if columns.time is not None:
        time, sql = columns.time, time_expression(whole, columns.time)
        dtype = read_times(copy.slice(0, 1), time, expression=sql).dtype.str
        readers.append((arrays(("node_times",), dtype), lambda rows: [read_times(rows, time, expression=sql)]))
    return readers


class _Features:
    """Feature columns to one raw float32 file for each type; a column that is empty for a whole type is left out."""

    def __init__(self, builder: StoreBuilder, copy: TableCopy, names: tuple[str, ...], num_types: int) -> None:
        self.builder, self.num_types = builder, num_types
        self.kinds = find_feature_kinds(copy.whole, names)
        self.is_used = np.full((num_types, len(names)), num_types == 1)
        self.writers: list[ArrayWriter | None] = [None] * num_types
        self.widths: dict[tuple[int, str], int] = {}
        first = copy.slice(0, min(copy.num_rows, _FIRST_ROWS))
        self.width = sum(_width(column) for column in read_columns(first, self.kinds)) if self.kinds else 0

    def step(self, chunk_bytes: int) -> int:
        return max(1, chunk_bytes // (64 + 48 * self.width))

    def look(self, rows: TableSlice, types: Array | None) -> None:
        """Which columns the types of these rows have."""
        columns = read_columns(rows, self.kinds)
        for t, of_type in self._by_type(rows, types):
            self.is_used[t] |= np.array([not column.is_empty(of_type) for column in columns], dtype=bool)

    def write(self, rows: TableSlice, types: Array | None) -> None:
        columns = read_columns(rows, self.kinds)
        used = [
            (t, of_type, [column for column, is_used in zip(columns, self.is_used[t], strict=True) if is_used])
            for t, of_type in self._by_type(rows, types)
        ]
        check_gaps(rows, [(column, of_type) for _, of_type, some in used for column in some])
        for t, of_type, some in used:
            if some:
                self._append(t, [self._take(t, column, rows, of_type) for column in some])

    def finish(self) -> tuple[list[Array | None], tuple[str, ...] | None]:
        blocks: list[Array | None] = []
        for writer in self.writers:
            info = None if writer is None else writer.close()
            blocks.append(
                None if writer is None or info is None else open_array(writer.path.parent, writer.path.stem, info)
            )
        if self.num_types > 1:
            return blocks, None
        return blocks, feature_names({name: self.widths.get((0, name), 1) for name in self.kinds}) or None

    def _by_type(self, rows: TableSlice, types: Array | None) -> Iterator[tuple[int, Array]]:
        for t in range(self.num_types):
            of_type = np.arange(rows.end - rows.begin) if types is None else np.flatnonzero(types == t)
            if len(of_type):
                yield t, of_type

    def _take(self, t: int, column: Column, rows: TableSlice, of_type: Array) -> Array:
        block = column.take(rows, of_type)
        width = self.widths.setdefault((t, column.name), block.shape[1])
        if block.shape[1] != width:
            raise InputError(
                f"column {column.name!r} is a list of {block.shape[1]} in {rows.place(int(of_type[0]))} but of {width} "
                f"before: make all lists of equal length"
            )
        return block

    def _append(self, t: int, parts: list[Array]) -> None:
        block = np.concatenate(parts, axis=1)
        writer = self.writers[t]
        if writer is None:
            writer = self.builder.scratch_array(f"raw.{t}", dtype="<f4", columns=(block.shape[1],))
            self.writers[t] = writer
        writer.append(block)


def _width(column: Column) -> int:
    return 1 if column.lengths is None else int(column.lengths.max(initial=1))
