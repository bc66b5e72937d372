"""Modules of 0.1 that its documentation named, under their old paths for one more release.

`from graphstrap.neighbors import find_neighbors` warns, names the new place and gives what it gave. A module that moves
later gets a line in `MOVED`, and loses it a release after.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# The old path and the new one, both within graphstrap; of several new ones, the one that has what was documented.
MOVED = {
    "callgraph": "io.callgraph",
    "datasets": "io.datasets",
    "estimator": "api.estimator",
    "evaluate": "evaluation.links",
    "features": "nn.features",
    "generate": "io.generate",
    "hidden_edges": "api.estimator",
    "neighbors": "api.neighbors",
}


def find_moved(name: str, *, stacklevel: int) -> Any:
    """What an old path stands for, with a warning at the line `stacklevel` calls up."""
    new = f"graphstrap.{MOVED[name]}"
    change = f"is a function now: import hide_edges from {new}" if name == "evaluate" else f"has moved to {new}"
    text = f"graphstrap.{name} {change}. The old path goes with the next release"
    warnings.warn(text, DeprecationWarning, stacklevel=stacklevel + 1)
    found = import_module(new)
    if name != "evaluate":
        return found
    protocols: Any = import_module("graphstrap.evaluation.protocols")
    function = protocols.evaluate  # stays what `graphstrap.evaluate` is, with what was imported from the old package
    function.evaluate, function.Evaluation, function.hide_edges = function, protocols.Evaluation, found.hide_edges
    return function


class _MovedLoader:
    """Finds old paths, after all other finders, and puts what they stand for in the module's place. Its base class
    would be `importlib.abc.Loader`, which takes as long to import as all else that `import graphstrap` does."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.partition(".")
        if package != "graphstrap" or name not in MOVED:
            return None
        return ModuleSpec(fullname, self)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """The usual empty module will do."""

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = find_moved(module.__name__.partition(".")[2], stacklevel=2)


def install() -> None:
    """Make old paths importable."""
    if not any(type(finder).__name__ == _MovedLoader.__name__ for finder in sys.meta_path):
        sys.meta_path.append(_MovedLoader())
