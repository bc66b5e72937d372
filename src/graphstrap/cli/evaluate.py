"""graphstrap evaluate: how good the embeddings are, by a named protocol, beside raw features and an untrained
encoder."""

from __future__ import annotations

from typing import Annotated

import typer

from graphstrap.cli import _options as o
from graphstrap.errors import InputError
from graphstrap.estimator import random_init
from graphstrap.evaluate import PROTOCOLS
from graphstrap.evaluate import evaluate as evaluate_embeddings
from graphstrap.seeds import evaluate_runs, over_seeds, seed_folders


def evaluate(
    folder: o.RunFolder,
    protocol: Annotated[str, typer.Option(help=f"One of {', '.join(PROTOCOLS)}.")] = "paper",
    runs: Annotated[int, typer.Option(help="Number of random splits.", min=1)] = 5,
    baselines: Annotated[bool, typer.Option(help="Also evaluate raw features and an untrained encoder.")] = True,
    device: o.Device = "auto",
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
) -> None:
    """Evaluate a run from its graph's labels. The protocol is always named."""
    folders = seed_folders(folder) or [folder]
    model, graph = o.open_run(folders[0], device=device, quiet=quiet)
    if graph.labels is None:
        raise InputError("the graph has no labels to evaluate with: give the node table a label column and fit again")
    by_seed = evaluate_runs(folders, graph, protocol=protocol, num_runs=runs, device=device)
    result = over_seeds(list(by_seed.values()))
    if as_json:
        several = {"seeds": [{"seed": seed, **one.to_dict()} for seed, one in by_seed.items()]}
        o.print_json({**result.to_dict(), **(several if len(by_seed) > 1 else {})})
        return
    rows = {}
    if baselines and len(graph.features) == 1 and graph.x is not None:
        rows["raw features"] = evaluate_embeddings(graph.x, graph, protocol=protocol, num_runs=runs)
    if baselines:
        untrained = random_init(graph, model.recipe_, seed=model.seed, device=device)
        rows["random init"] = evaluate_embeddings(untrained, graph, protocol=protocol, num_runs=runs)
    appended = model.recipe_.encoder.own_features
    rows[model.recipe_.method.name + (" + own" if appended else "")] = result
    if len(by_seed) > 1:
        for seed, one in by_seed.items():
            print(f"seed {seed:<9d} {one.mean:6.2f} ± {one.std:.2f}")
    for name, row in rows.items():
        print(f"{name:14s} {row.mean:6.2f} ± {row.std:.2f}")
    print(f"{result.metric}; {result.protocol}: {result.detail}")
    if model.recipe_.method.name == "semi-supervised":
        o.note(
            "note: this model has learned from labels that the splits above test on: trust `predict` on held-out nodes"
        )
    if appended:
        print(f"+ own: {appended} columns of the node's own features stand beside the embedding")
