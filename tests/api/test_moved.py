"""Paths that the documentation of 0.1 named: each warns, names the new place and gives what it gave."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import graphstrap as gs
from graphstrap.api.moved import MOVED

# What the documentation and examples of 0.1 took from each.
DOCUMENTED = {
    "callgraph": ("call_graph",),
    "datasets": ("find_name", "load"),
    "estimator": ("BGRL", "random_init"),
    "evaluate": ("Evaluation", "evaluate", "hide_edges"),
    "features": ("raw_features",),
    "generate": ("mag",),
    "hidden_edges": ("score_links",),
    "neighbors": ("find_neighbors", "find_node"),
}


@pytest.fixture(autouse=True)
def forget_old_paths() -> Iterator[None]:
    """A module warns when it is first imported."""
    yield
    for name in MOVED:
        sys.modules.pop(f"graphstrap.{name}", None)
        if name not in gs.__all__:
            vars(gs).pop(name, None)


def test_every_moved_path_is_documented() -> None:
    assert set(DOCUMENTED) == set(MOVED)


@pytest.mark.parametrize("name", MOVED)
def test_an_old_path_warns_and_gives_what_the_new_one_has(name: str) -> None:
    new = importlib.import_module(f"graphstrap.{MOVED[name]}")
    with pytest.warns(DeprecationWarning, match=f"graphstrap.{name} .* graphstrap.{MOVED[name]}") as caught:
        old = importlib.import_module(f"graphstrap.{name}")
    assert len(caught) == 1
    for attribute in DOCUMENTED[name]:
        assert hasattr(old, attribute)
        assert not hasattr(new, attribute) or getattr(old, attribute) is getattr(new, attribute)


def test_the_warning_points_at_the_line_that_imports() -> None:
    with pytest.warns(DeprecationWarning, match="neighbors") as caught:
        exec(compile("from graphstrap.neighbors import find_node", "user.py", "exec"), {})
    with pytest.warns(DeprecationWarning, match="estimator") as caught_too:
        gs.estimator  # noqa: B018
    assert caught[0].filename == "user.py"
    assert caught_too[0].filename == str(Path(__file__))


def test_evaluate_stays_the_function_whatever_is_imported() -> None:
    function = gs.evaluate
    with pytest.warns(DeprecationWarning, match="import hide_edges from graphstrap.evaluation.links"):
        from graphstrap.evaluate import evaluate, hide_edges  # type: ignore[import-not-found]
    from graphstrap.evaluation.links import hide_edges as same

    assert gs.evaluate is function is evaluate
    assert hide_edges is same


def test_other_names_are_not_there() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"graphstrap\.nothing"):
        importlib.import_module("graphstrap.nothing")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        gs.nothing  # noqa: B018


def test_import_graphstrap_imports_nothing_heavy() -> None:
    code = "import sys, graphstrap\n"
    code += (
        "heavy = {'torch', 'sklearn', 'numpy', 'duckdb', 'scipy', 'matplotlib', 'typer', 'rich'} & set(sys.modules)\n"
    )
    code += "assert not heavy, heavy\nassert dir(graphstrap) == sorted(graphstrap.__all__)\n"
    code += "assert all(getattr(graphstrap, name) is not None for name in graphstrap.__all__)"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
