"""graphstrap info: versions, devices, and which backend runs and why; or how far a run is, and how often it was cut."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument

from graphstrap.cli import _options as o

if TYPE_CHECKING:
    from graphstrap.run.folder import Run


def info(
    folder: Annotated[Path | None, Argument(metavar="[DIR]", help="A run folder, to look at that.")] = None,
    as_json: o.AsJson = False,
) -> None:
    """Say what runs here, or how a run stands."""
    if folder is not None:
        from graphstrap.api.ensemble import member_folders
        from graphstrap.run.folder import Run

        runs = [describe_run(Run.open(one)) for one in member_folders([folder])]
        if as_json:
            o.print_json(runs[0] if len(runs) == 1 else runs)
            return
        for facts in runs:
            state = "finished" if facts["finished"] else "not finished"
            print(f"{facts['run']}: {state}, step {facts['step']:,} of {facts['steps']:,}")
            for restart in facts["restarts"]:
                print(f"  went on from step {restart['step']:,}, {restart.get('time')}, process {restart.get('pid')}")
        return
    import torch

    from graphstrap.ops import backend
    from graphstrap.run.environment import describe_environment
    from graphstrap.run.recipe import shipped_recipes

    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    backends = {device: backend(device)._asdict() for device in devices}
    facts = {**describe_environment(), "backends": backends, "recipes": ["default", *shipped_recipes()]}
    if as_json:
        o.print_json(facts)
        return
    shown = {name: value for name, value in facts.items() if value is not None and name not in ("backends", "recipes")}
    shown |= {f"backend ({device})": f"{chosen['name']}: {chosen['reason']}" for device, chosen in backends.items()}
    for name, value in {**shown, "recipes": ", ".join(facts["recipes"])}.items():
        print(f"{name:18s} {value}")


def describe_run(run: Run) -> dict[str, Any]:
    return {
        "run": str(run.folder),
        "finished": run.is_finished,
        "step": run.saved_step(),
        "steps": run.recipe.train.steps,
        "restarts": run.restarts(),
    }
