"""Readers: what makes a graph of a file or folder, by the ending of its name.

A reader is a function of a path that returns a Graph. `gs.load("x.graphml")` and `graphstrap fit x.graphml` use the one
that is known for `.graphml`: registered in a program, or promised by an installed package:

    @READERS.register(".graphml")
    def read_graphml(path: str) -> Graph: ...

    [project.entry-points."graphstrap.readers"]
    ".graphml" = "my_package.graphml:read_graphml"

A store and a graph in parts are folders that are known by what they hold, whatever they are called.
"""

from __future__ import annotations

from collections.abc import Callable

from graphstrap.graph import Graph
from graphstrap.graph.graph import check_is_graph
from graphstrap.io.parts import is_parts
from graphstrap.io.registry import Registry
from graphstrap.io.store_format import is_store

Reader = Callable[[str], Graph]

READERS: Registry[Reader] = Registry(
    "reader",
    group="graphstrap.readers",
    own={
        ".npz": "graphstrap.io.npz:read_npz",
        "store": "graphstrap.io.store:open_store",
        "parts": "graphstrap.io.parts:join_parts",
    },
)


def find_reader(source: str) -> str | None:
    """The name of the reader for a file or folder; None where there is none, as for the name of a dataset."""
    if is_store(source):
        return "store"
    if is_parts(source):
        return "parts"
    endings = [name for name in READERS if name.startswith(".") and source.lower().endswith(name.lower())]
    return max(endings, key=len, default=None)


def read_graph(source: str, *, reader: str) -> Graph:
    """The graph that a reader makes of a file or folder."""
    graph = READERS.get(reader)(source)
    check_is_graph(graph)
    return graph
