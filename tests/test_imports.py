"""Imports point down only: each room may import the rooms before it, and nothing after it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "graphstrap"

# From the bottom up: a room may import the rooms before it, and itself.
ROOMS = ["errors", "graph", "ops", "io", "run", "nn", "train", "evaluation", "api", "report", "cli", "", "__main__"]
MODULES = sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    """`ops/_csr/products.py` belongs to `ops`; the package's own `__init__` to ``."""
    relative = path.relative_to(SOURCE)
    first = relative.parts[0]
    return first.removesuffix(".py") if first != "__init__.py" else ""


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module == "graphstrap":
            names = [f"graphstrap.{alias.name}" for alias in node.names]
        rooms |= {name.split(".")[1] for name in names if name and name.startswith("graphstrap.")}
    return rooms


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_down(path: Path) -> None:
    room = room_of(path)
    assert room in ROOMS, f"{room} is no room: give it a place in ROOMS"
    for other in imported_rooms(path) - {room}:
        assert ROOMS.index(other) < ROOMS.index(room), f"{room} may not import {other}"


def test_every_room_exists() -> None:
    assert set(ROOMS) == {room_of(path) for path in MODULES}


FORBIDDEN_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml"}
FORBIDDEN_CALLS = {"eval", "exec", "torch.load", "np.loads", "pd.read_pickle", "pandas.read_pickle", "__import__"}


def code_that_runs_what_it_reads(source: str) -> list[str]:
    """Imports and calls that could run code out of a file; every np.load must say allow_pickle=False."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.split(".")[0] in FORBIDDEN_MODULES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in FORBIDDEN_MODULES:
            found.append(str(node.module))
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            found += [name] if name in FORBIDDEN_CALLS else []
            allowed = {k.arg: ast.unparse(k.value) for k in node.keywords}.get("allow_pickle")
            if allowed not in (None, "False") or (name in ("np.load", "numpy.load") and allowed is None):
                found.append(f"{name}(allow_pickle={allowed})")
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_is_ever_unpickled(path: Path) -> None:
    assert code_that_runs_what_it_reads(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from joblib import load",
        "import yaml",
        "import marshal",
        "eval('1')",
        "exec('1')",
        "torch.load(f)",
        "np.load(f)",
        "np.load(f, allow_pickle=True)",
        "np.save(f, x, allow_pickle=yes)",
    ],
)
def test_the_search_for_unpickling_finds_it(line: str) -> None:
    assert code_that_runs_what_it_reads(line)
