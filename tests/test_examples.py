"""Every example runs, at a small size, and shows what it claims to show."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent.parent / "examples"
# What each is called with, and (better, worse) pairs of what it measured; none where training is too short to say.
CASES: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {
    "call_graph": (
        {"package": "typer", "steps": 10, "min_functions_per_class": 12},
        [],
    ),
    "fraud": ({"num_accounts": 1500, "steps": 60}, [("linear, embeddings", "chance")]),
    "recommend": ({"num_users": 300, "num_items": 150, "steps": 30}, [("bought together", "most popular")]),
    "pyg_encoder": ({"steps": 3}, []),
    "pipeline": ({"steps": 3, "num_folds": 2}, []),
    "round_trips": ({"steps": 60}, [("BGRL", "degree alone")]),
}


def test_every_example_is_run() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == set(CASES)


@pytest.mark.usefixtures("forget_added_encoders")
@pytest.mark.parametrize("name", CASES)
def test_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if name == "round_trips":
        pytest.importorskip("pandas", reason="pandas is not installed: pip install pandas")
    arguments, order = CASES[name]
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    scores = module.main(**arguments)
    printed = capsys.readouterr().out
    assert all(what in printed for what in scores)
    assert all(-100.0 <= score <= 100.0 for score in scores.values())
    for better, worse in order:
        assert scores[better] > scores[worse], scores
