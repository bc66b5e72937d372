"""graphstrap card: a run as a model folder that can be published, with a model card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from graphstrap.cli import _options as o


def card(
    folder: o.RunFolder,
    to: Annotated[Path, Option(help="The folder to make; an earlier one is replaced.")],
    device: o.Device = "auto",
    quiet: o.Quiet = False,
) -> None:
    """Write config.json, model.safetensors and a README.md that says what it is and how good, in the Hub's layout."""
    from graphstrap.evaluation.protocols import evaluate, has_seen_test_labels
    from graphstrap.evaluation.task import has_published_splits
    from graphstrap.report.card import check_model_folder, write_model_folder
    from graphstrap.report.scores import why_no_classes
    from graphstrap.run.folder import Run

    check_model_folder(to)
    model, graph = o.open_run(folder, device=device, quiet=quiet)
    able = ["paper"] + (["public"] if has_published_splits(graph) else [])
    honest = [one for one in able if not has_seen_test_labels(model.recipe_, graph, protocol=one)]
    why_not = why_no_classes(graph) or ("" if honest else "it has learned from the labels at hand")
    scores = [] if why_not else [evaluate(model.embed(graph), graph, protocol=honest[0])]
    write_model_folder(Run.open(folder), model.model_, to, evaluations=scores, why_not=why_not)
    print(f"{to}: config.json, model.safetensors, README.md")
