"""graphstrap report: one HTML file that says whether a run is healthy, and lets one walk through the embedding."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Option

from graphstrap.cli import _options as o
from graphstrap.errors import InputError


def report(
    folder: o.RunFolder,
    to: Annotated[Path | None, Option(help="Where to write [default: report.html in the run folder].")] = None,
    protocol: Annotated[
        list[str] | None,
        Option(
            help=f"Protocols to evaluate by, of {o.PROTOCOL_NAMES} [default: paper, knn, clustering, and public "
            "where there is a split; without labels links by the run's encoder]."
        ),
    ] = None,
    runs: Annotated[
        int | None,
        Option(help="Random splits of each evaluation [default: 2; with few labels 10].", min=1, show_default=False),
    ] = None,
    device: o.Device = "auto",
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
) -> None:
    """Write one self-contained HTML file: health, charts, scores and a map of all nodes. It needs no network."""
    from graphstrap.api.ensemble import seed_folders
    from graphstrap.api.estimator import Embedder
    from graphstrap.evaluation.registry import find_protocol
    from graphstrap.io.files import check_folder
    from graphstrap.report.build import write_report
    from graphstrap.run.folder import Run

    for name in protocol or ():
        find_protocol(name)
    path = to or folder / "report.html"
    check_folder(path)
    folders = seed_folders(folder)
    if not folders:
        o.check_one_run(folder)
    found = [Run.open(one) for one in folders or [folder]]
    found.sort(key=lambda run: not run.is_finished)  # the map is that of the first that has a model
    with_models = [(run, Embedder.load(run.folder, device=device) if run.is_finished else None) for run in found]
    if not found[0].is_finished and found[0].readable_model is not None:
        with_models[0] = found[0], o.load_instantly(found[0], device=device)
    if protocol and not found[0].is_finished:
        raise InputError(f"{folder} has no model to evaluate by --protocol yet: finish it with `graphstrap resume`")
    graph = o.load_graph_of(found[0], quiet=quiet) if with_models[0][1] is not None else None
    say = partial(o.note, quiet=quiet)
    health = write_report(with_models, path, graph=graph, protocols=protocol or None, num_runs=runs, say=say)
    if as_json:
        findings = [{"kind": one.kind, "text": one.text, "advice": one.advice} for one in health.findings]
        o.print_json({"report": str(path), "verdict": health.verdict, "text": health.headline, "findings": findings})
        return
    print(health.headline)
    print(f"{path}: open it in a browser")
