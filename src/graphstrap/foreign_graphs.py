"""Graphs of other libraries, given where a Graph is due: which function turns each into one."""

from __future__ import annotations

from typing import Any

from graphstrap.errors import InputError
from graphstrap.graph import Graph

_WAYS = {
    "networkx": "turn it into one with graphstrap.io.networkx.from_networkx(graph)",
    "scipy": "turn it into one with graphstrap.io.scipy.from_scipy(matrix)",
    "numpy": "turn a square matrix into one with graphstrap.io.scipy.from_scipy(matrix), rows of node numbers with "
    "gs.Graph.from_edges(source, target)",
    "torch_geometric": "turn it into one with graphstrap.io.pyg.from_pyg(data)",
    "pandas": "write the table to a file and read it with gs.read_tables(edges, nodes), or give columns of node "
    "numbers to gs.Graph.from_edges(source, target)",
}
_WAYS_OF_BUILTINS: dict[type, str] = {
    str: "load a dataset, a store or an .npz file with gs.load(name), tables with gs.read_tables(edges, nodes)",
    list: "several graphs become one with gs.join_graphs(graphs)",
}
_ANY_WAY = "make one with gs.load, gs.read_tables or gs.Graph.from_edges"


def check_is_graph(graph: Any) -> None:
    """Refuse what is no Graph. Libraries are known by name: none is imported for it."""
    if isinstance(graph, Graph):
        return
    libraries = [kind.__module__.split(".")[0] for kind in type(graph).__mro__]
    known = [_WAYS[library] for library in libraries if library in _WAYS]
    way = known[0] if known else _WAYS_OF_BUILTINS.get(type(graph), _ANY_WAY)
    of = f"{libraries[0]}'s " if known else ""
    raise InputError(f"a graphstrap Graph is due here, got {of}{type(graph).__name__}: {way}")
