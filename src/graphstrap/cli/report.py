"""graphstrap report: one HTML file that says whether a run is healthy, and lets one walk through the embedding."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphstrap.cli import _options as o
from graphstrap.errors import InputError
from graphstrap.evaluate import PROTOCOLS
from graphstrap.io.atomic import check_folder
from graphstrap.report import build
from graphstrap.run import Run
from graphstrap.seeds import seed_folders


def report(
    folder: o.RunFolder,
    to: Annotated[Path | None, typer.Option(help="Where to write [default: report.html in the run folder].")] = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option(help=f"Protocols to evaluate by, of {', '.join(PROTOCOLS)} [default: paper, knn, clustering]."),
    ] = None,
    runs: Annotated[int, typer.Option(help="Random splits of each evaluation.", min=1)] = build.NUM_RUNS,
    device: o.Device = "auto",
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
) -> None:
    """Write one self-contained HTML file: health, charts, scores and a map of all nodes. It needs no network."""
    several = seed_folders(folder)
    if several:
        raise InputError(f"{folder} holds {len(several)} runs, one for each seed: name one, such as {several[0]}")
    unknown = [name for name in protocol or () if name not in PROTOCOLS]
    if unknown:
        raise InputError(f"protocol must be one of {', '.join(PROTOCOLS)}, got {unknown[0]!r}")
    run = Run.open(folder)
    path = to or folder / "report.html"
    check_folder(path)
    model, graph = o.open_run(folder, device=device, quiet=quiet) if run.is_finished else (None, None)
    health = build.write_report(
        run,
        path,
        model=model,
        graph=graph,
        protocols=tuple(protocol or build.PROTOCOLS),
        num_runs=runs,
        say=lambda text: o.note(text, quiet=quiet),
    )
    if as_json:
        findings = [{"kind": one.kind, "text": one.text, "advice": one.advice} for one in health.findings]
        o.print_json({"report": str(path), "verdict": health.verdict, "text": health.headline, "findings": findings})
        return
    print(health.headline)
    print(f"{path}: open it in a browser")
