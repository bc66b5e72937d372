"""Imports point down only: each module may import from its own level's list of lower ones, and nothing above."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "graphstrap"

# From the bottom up. A module may import modules of lower levels, and modules of its own package.
LEVELS = [
    {"errors", "keep"},
    {"sparse", "edge_table", "quantised"},
    {"csr", "scaled"},
    {"graph"},
    {"view", "many_graphs"},
    {"ops"},
    {"sampling", "encoders", "views", "io", "features", "own_features", "environment", "recipe"},
    {"callgraph", "defaults", "generate"},
    {"datasets"},
    {"source", "run", "methods"},
    {"model"},
    {"train"},
    {"parallel"},
    {"layerwise"},
    {"embed", "evaluate", "neighbors"},
    {"estimator", "baselines", "shards"},
    {"seeds"},
    {"report", "bench"},
    {"reproduce"},
    {"cli"},
    {"", "__main__"},
]
LEVEL_OF = {name: level for level, names in enumerate(LEVELS) for name in names}
MODULES = sorted(SOURCE.rglob("*.py"))


def part_of(path: Path) -> str:
    """`ops/_csr.py` belongs to `ops`; the package's own `__init__` to ``."""
    relative = path.relative_to(SOURCE)
    first = relative.parts[0]
    return first.removesuffix(".py") if first != "__init__.py" else ""


def imported_parts(path: Path) -> set[str]:
    parts = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module == "graphstrap":
            names = [f"graphstrap.{alias.name}" for alias in node.names]
        parts |= {name.split(".")[1] for name in names if name and name.startswith("graphstrap.")}
    return parts


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_down(path: Path) -> None:
    part = part_of(path)
    assert part in LEVEL_OF, f"{part} has no level yet: give it one in LEVELS"
    for other in imported_parts(path) - {part}:
        assert LEVEL_OF[other] < LEVEL_OF[part], f"{part} may not import {other}"


def test_every_level_names_modules_that_exist() -> None:
    assert set(LEVEL_OF) == {part_of(path) for path in MODULES}


def test_nothing_is_ever_unpickled() -> None:
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        assert "import pickle" not in text, path
        assert "allow_pickle=True" not in text, path
        assert "torch.load(" not in text, path
