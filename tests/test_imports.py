"""Imports point down only: each module may import from its own level's list of lower ones, and nothing above."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "graphstrap"

# From the bottom up. A module may import modules of lower levels, and modules of its own package.
LEVELS = [
    {"errors", "keep", "fingerprint", "free_memory", "adamw"},  # these import nothing of ours
    {"sparse", "edge_table", "quantised", "plain", "setting"},  # tables and small files
    {"csr", "scaled"},
    {"blocks"},  # features in all their forms
    {"shapes"},
    {"graph"},  # the one noun that all else is about
    {"foreign_graphs"},  # what others call one
    {"view", "many_graphs", "folds"},
    {"ops"},  # speed, and nothing else knows of devices
    {"sampling", "encoders", "views", "io", "features", "own_features", "environment", "recipe"},
    {"callgraph", "recipe_files", "check_recipe", "generate", "checkpoint"},
    {"defaults"},
    {"datasets"},
    {"source", "run", "methods"},  # what a run is made of
    {"model", "trainable"},
    {"train"},  # the one loop
    {"parallel"},  # wraps what train built
    {"layerwise"},
    {"embed", "evaluate", "neighbors"},  # from a trained model to numbers
    {"part_layers"},
    {"fitting", "predict"},
    {"estimator", "baselines", "shards"},  # what users call
    {"seeds", "hidden_edges"},
    {"ensemble"},
    {"report", "bench"},  # what reads runs and draws
    {"reproduce"},
    {"cli"},  # one file per verb
    {"", "__main__"},
]
LEVEL_OF = {name: level for level, names in enumerate(LEVELS) for name in names}
MODULES = sorted(SOURCE.rglob("*.py"))


def part_of(path: Path) -> str:
    """`ops/_csr/bag.py` belongs to `ops`; the package's own `__init__` to ``."""
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
