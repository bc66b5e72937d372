"""Results that are worked out once for a graph, a view or a matrix, and kept as long as it lives."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from graphstrap.graph import Graph, View
from graphstrap.graph.blocks import SparseMatrix

P = ParamSpec("P")
T = TypeVar("T")


def once(work_out: Callable[P, T]) -> Callable[P, T]:
    """The function with its results kept, until one of the graphs, views and matrices that it was given is gone.

    Arguments of other types are compared by value; those given by name are not looked at.
    """
    kept: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    @wraps(work_out)
    def look_up(*arguments: P.args, **named: P.kwargs) -> T:
        owners = [one for one in arguments if isinstance(one, Graph | View | SparseMatrix)]
        others = tuple(one for one in arguments if not isinstance(one, Graph | View | SparseMatrix))
        found: Any = kept
        for owner in owners:
            found = found.setdefault(owner, {} if owner is owners[-1] else WeakKeyDictionary())
        if others not in found:
            found[others] = work_out(*arguments, **named)
        result: T = found[others]
        return result

    return look_up
