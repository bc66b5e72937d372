"""The type and the shape of every array of a store, by what `store.json` says: nothing is opened for it."""

from __future__ import annotations

from graphstrap.io._store_info import StoreInfo


def check_sizes(info: StoreInfo, *, num_ids: int | None = None) -> None:
    """The type and shape of every array, before any of them is mapped. `num_ids` is how many nodes edges may come from,
    if that is not the number of rows."""
    if "indptr" not in info.arrays or "indices" not in info.arrays:
        info.refuse("is damaged: it has no edges: copy or prepare it again")
    num_nodes, num_edges = info.num_nodes, info.num_edges
    index_type = "<i4" if (num_nodes if num_ids is None else num_ids) < 2**31 else "<i8"
    rows: dict[str, tuple[int, str, int]] = {  # number of rows, type, dimensions
        "indptr": (num_nodes + 1, "<i8", 1),
        "out_indptr": (num_nodes + 1, "<i8", 1),
        "indices": (num_edges, index_type, 1),
        "out_indices": (num_edges, index_type, 1),
        "out_positions": (num_edges, "<i8", 1),
        "train": (num_nodes, "|b1", 2),
        "val": (num_nodes, "|b1", 2),
        "test": (num_nodes, "|b1", 2),
        "edge_weights": (num_edges, "<f4", 1),
        "edge_columns": (num_edges, "<f4", 2),
    }
    for name, (count, dtype, dimensions) in rows.items():
        array = info.arrays.get(name)
        if array is not None and (array.dtype, array.shape[0], len(array.shape)) != (dtype, count, dimensions):
            info.refuse(f"is damaged: {name} is {array.dtype} {array.shape}, expected {dtype} and {count:,} rows")
    for name, count, kinds in (
        ("labels", num_nodes, ("<i8", "|u1")),
        ("node_times", num_nodes, ("<i", "<f")),
        ("ids", num_nodes, ("<i8", "<U")),
        ("edge_types", num_edges, ("|u1", "<i8")),
        ("edge_times", num_edges, ("<i", "<f")),
    ):
        array = info.arrays.get(name)
        if array is not None and (array.shape[0] != count or not array.dtype.startswith(kinds)):
            info.refuse(f"is damaged: {name} is {array.dtype} {array.shape}, expected {count:,} rows")
    if len(info.node_types) != len(info.blocks) or len(info.type_offsets) != len(info.blocks) + 1:
        info.refuse("is damaged: names, sizes and features of its node types differ in number")
    for number, block in enumerate(info.blocks):
        if block is not None:
            check_block(
                info, f"features.{number}", *block, rows=info.type_offsets[number + 1] - info.type_offsets[number]
            )


def check_block(info: StoreInfo, name: str, kind: str, columns: int, *, rows: int) -> None:
    floats = ("<f4", "<f2", "bfloat16")
    parts: dict[str, dict[str, tuple[tuple[int, ...] | None, tuple[str, ...]]]] = {
        "dense": {name: ((rows, columns), floats)},
        "quantised": {
            name: ((rows, columns), ("|u1",)),
            f"{name}.scale": ((columns,), ("<f4",)),
            f"{name}.offset": ((columns,), ("<f4",)),
        },
        "sparse": {
            f"{name}.indptr": ((rows + 1,), ("<i8",)),
            f"{name}.indices": (None, ("<i4",)),
            f"{name}.values": (None, ("<f4",)),
        },
    }
    for part, (shape, dtypes) in parts[kind].items():
        array = info.arrays.get(part)
        if array is None or array.dtype not in dtypes or shape not in (None, array.shape):
            info.refuse(f"is damaged: {part} is missing, or not the features of {rows:,} nodes and {columns} columns")
