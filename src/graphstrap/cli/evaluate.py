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
    model, graph = o.open_run(folder, device=device, quiet=quiet)
    if graph.labels is None:
        raise InputError("the graph has no labels to evaluate with: give the node table a label column and fit again")
    result = evaluate_embeddings(model.embed(graph), graph, protocol=protocol, num_runs=runs)
    if as_json:
        o.print_json(result.to_dict())
        return
    rows = {}
    if baselines and len(graph.features) == 1 and graph.x is not None:
        rows["raw features"] = evaluate_embeddings(graph.x, graph, protocol=protocol, num_runs=runs)
    if baselines:
        untrained = random_init(graph, model.recipe_, seed=model.seed, device=device)
        rows["random init"] = evaluate_embeddings(untrained, graph, protocol=protocol, num_runs=runs)
    appended = model.recipe_.encoder.own_features
    rows[model.recipe_.method.name + (" + own" if appended else "")] = result
    for name, row in rows.items():
        print(f"{name:14s} {row.mean:6.2f} ± {row.std:.2f}")
    print(f"{result.metric}; {result.protocol}: {result.detail}")
    if appended:
        print(f"+ own: {appended} columns of the node's own features stand beside the embedding")
