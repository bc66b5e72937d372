"""What is no Graph is refused with the function that makes one of it."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphstrap as gs

GIVEN: dict[str, tuple[Callable[[], Any], str]] = {
    "networkx": (lambda: importlib.import_module("networkx").path_graph(4), "graphstrap.io.networkx.from_networkx"),
    "scipy": (lambda: importlib.import_module("scipy.sparse").eye(4, format="csr"), "graphstrap.io.scipy.from_scipy"),
    "numpy": (lambda: np.eye(4), "graphstrap.io.scipy.from_scipy"),
    "torch_geometric": (lambda: importlib.import_module("torch_geometric.data").Data(), "graphstrap.io.pyg.from_pyg"),
    "pandas": (lambda: importlib.import_module("pandas").DataFrame({"source": [0]}), "graphstrap.read_tables"),
    "a name": (lambda: "cora", "graphstrap.load"),
    "a list": (lambda: [1], "graphstrap.join_graphs"),
    "nothing": (lambda: None, "graphstrap.load"),
}


def in_words(function: str) -> str:
    return function if ".io." in function else function.replace("graphstrap.", "gs.")


@pytest.mark.parametrize("library", GIVEN)
def test_the_function_to_call_is_named_and_there(library: str) -> None:
    if library in ("networkx", "torch_geometric", "pandas"):
        pytest.importorskip(library)
    make, function = GIVEN[library]
    fitted = gs.BGRL(settings={"train.steps": 1}).fit(gs.Graph.from_edges([0, 1], [1, 2]))
    uses: list[Callable[[Any], Any]] = [
        gs.BGRL().fit,
        gs.BGRL().resolve,
        fitted.embed,
        fitted.predict,
        lambda graph: gs.evaluate(np.ones((4, 2)), graph),
        lambda graph: gs.join_graphs([graph]),
    ]
    for use in uses:
        with pytest.raises(gs.InputError, match=re.escape(in_words(function))):
            use(make())
    module, name = function.rsplit(".", 1)
    assert callable(getattr(importlib.import_module(module), name))
