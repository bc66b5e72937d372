"""Columns of a nodes table that training left out (--ignore-columns): names, places, notes, there to look at."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphstrap.io._columns import TableOptions, choose_node_columns
from graphstrap.io._database import connect, quote_name
from graphstrap.io._files import open_table

Array = np.ndarray[Any, Any]


def read_other_columns(nodes: str, ids: Array, *, options: TableOptions, limit: int) -> dict[str, Array]:
    """The first `limit` ignored columns as text, "" where empty, for the nodes with these ids, in their order."""
    with connect() as connection:
        table = open_table(connection, nodes)
        used = choose_node_columns(table, options)
        ignored = {name.lower() for name in options.ignore_columns}
        names = [name for name in table.columns if name.lower() in ignored and name != used.id][:limit]
        if not names:
            return {}
        columns = {"id": used.id} | {f"c{index}": name for index, name in enumerate(names)}
        found = table.fetch({as_: f"CAST({quote_name(name)} AS VARCHAR)" for as_, name in columns.items()})
    row_of = {text: row for row, text in enumerate(_texts(found["id"]))}
    rows = [row_of.get(text, -1) for text in map(str, ids.tolist())]
    texts = [_texts(found[f"c{index}"]) for index in range(len(names))]
    return {
        name: np.array([column[row] if row >= 0 else "" for row in rows], dtype=np.str_)
        for name, column in zip(names, texts, strict=True)
    }


def _texts(column: Array) -> list[str]:
    values = column.tolist()  # a masked cell becomes None
    return ["" if value is None else str(value) for value in values]
