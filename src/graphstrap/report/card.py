"""A model folder in the layout of the Hugging Face Hub: config.json, model.safetensors, README.md (the model card).

`gs.Embedder.load(folder)` reads it. The card says what the model was trained on, how, and how good it is by which
protocol.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphstrap.errors import InputError
from graphstrap.evaluation.registry import Evaluation
from graphstrap.io.files import atomic_write, os_errors, read_text
from graphstrap.nn.model import Model
from graphstrap.report.page import fill
from graphstrap.run.environment import graphstrap_version
from graphstrap.run.folder import MODEL_FILE, Run


def check_model_folder(folder: Path) -> None:
    """A folder that may be written to is missing, empty but for hidden files (a clone is), or a model folder of
    Graphstrap, whose files are replaced."""
    if (folder / "run.json").exists():
        raise InputError(f"{folder} is a run folder: choose another --to")
    with os_errors(f"{folder} cannot be written to"):
        found = [path.name for path in folder.iterdir()] if folder.exists() else []
    is_empty = all(name.startswith(".") or name == MODEL_FILE for name in found)
    if not is_empty and not _is_ours(folder / "config.json"):
        raise InputError(f"{folder} holds files that are not a model folder of Graphstrap: choose another --to")


def write_model_folder(
    run: Run, model: Model, folder: Path, *, evaluations: Sequence[Evaluation] = (), why_not: str = ""
) -> None:
    """Write the three files; the folder is made where it is missing. `why_not` says why there are no evaluations."""
    check_model_folder(folder)
    model.save(folder)
    for name, text in (
        ("config.json", json.dumps(model_config(run, model), indent=2) + "\n"),
        ("README.md", model_card(run, model, evaluations, why_not=why_not)),
    ):
        with atomic_write(folder / name) as temporary:
            temporary.write_text(text, encoding="utf-8")


def model_config(run: Run, model: Model) -> dict[str, Any]:
    """What a program wants to know before it reads the weights."""
    return {
        "library_name": "graphstrap",
        "graphstrap_version": graphstrap_version(),
        "model_type": run.recipe.method.name,
        "input_sizes": list(model.transform.sizes),
        "embedding_size": run.recipe.encoder.embedding_size + model.num_own_columns,
        "seed": model.seed,
        "recipe": tomllib.loads(run.recipe.to_toml()),
    }


def model_card(run: Run, model: Model, evaluations: Sequence[Evaluation], *, why_not: str = "") -> str:
    """Markdown with the Hub's header. Names that a user gave stand as code, on one line."""
    graph, recipe = run.info["graph"], run.recipe
    scores = [f"- {one}" for one in evaluations] or [f"Not evaluated{f': {why_not}' if why_not else ''}."]
    filled = {
        "graph": _code(graph.get("name", "graph")),
        "num_nodes": f"{graph.get('num_nodes', 0):,}",
        "num_edges": f"{graph.get('num_edges', 0):,}",
        "num_features": ", ".join(map(str, graph.get("num_features", []))),
        "method": recipe.method.name,
        "with_or_without": "with" if recipe.method_class.learns_labels else "without",
        "steps": f"{recipe.train.steps:,}",
        "seed": str(run.info["seed"]),
        "encoder": recipe.encoder.name,
        "hidden_sizes": str(list(recipe.encoder.hidden_sizes)),
        "size": str(recipe.encoder.embedding_size + model.num_own_columns),
        "evaluation": "\n".join(scores),
    }
    return fill("card.md", filled)


def _is_ours(config: Path) -> bool:
    try:
        found = json.loads(read_text(config))
    except (InputError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("library_name") == "graphstrap"


def _code(name: str) -> str:
    return f"`{' '.join(str(name).replace('`', chr(39)).replace('|', '/').split())}`"
