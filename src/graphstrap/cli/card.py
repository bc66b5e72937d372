"""graphstrap card: a run as a model folder that can be published, with a model card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphstrap.cli import _options as o
from graphstrap.errors import InputError
from graphstrap.evaluate import evaluate, has_published_splits, has_seen_test_labels
from graphstrap.report.card import write_model_folder
from graphstrap.report.scores import has_classes
from graphstrap.run import Run


def card(
    folder: o.RunFolder,
    to: Annotated[Path, typer.Option(help="The folder to make.")],
    device: o.Device = "auto",
    quiet: o.Quiet = False,
) -> None:
    """Write config.json, model.safetensors and a README.md that says what it is and how good, in the Hub's layout."""
    if (to / "run.json").exists():
        raise InputError(f"{to} is a run folder: choose another --to")
    model, graph = o.open_run(folder, device=device, quiet=quiet)
    able = ["paper"] + (["public"] if has_published_splits(graph) else [])
    honest = [one for one in able if not has_seen_test_labels(model.recipe_, graph, protocol=one)]
    scores = [evaluate(model.embed(graph), graph, protocol=one) for one in honest[:1] if has_classes(graph)]
    write_model_folder(Run.open(folder), model.model_, to, evaluations=scores)
    print(f"{to}: config.json, model.safetensors, README.md")
