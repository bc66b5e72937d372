"""graphstrap evaluate: how good the embeddings are, by a named protocol, beside raw features and an untrained
encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Option

from graphstrap.cli import _options as o
from graphstrap.errors import InputError

if TYPE_CHECKING:
    from graphstrap.evaluation.registry import Evaluation

_ONE_IS_RARE = 80.0  # the other class has more percent than this: where the report takes auc by itself


def evaluate(
    folder: o.RunFolder,
    protocol: Annotated[str, Option(help=f"One of {o.PROTOCOL_NAMES}.")] = "paper",
    runs: Annotated[
        int | None, Option(help="Number of random splits [default: 5; links: 1].", min=1, show_default=False)
    ] = None,
    baselines: Annotated[bool, Option(help="Also evaluate raw features, an untrained encoder and instant.")] = True,
    refit: Annotated[
        bool, Option(help="links: train anew without the hidden edges, or use the run's encoder, which saw them.")
    ] = True,
    device: o.Device = "auto",
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
) -> None:
    """Evaluate a run from its graph's labels, or from hidden edges (links). The protocol is always named."""
    from graphstrap.api.ensemble import evaluate_runs, seed_folders
    from graphstrap.api.estimator import baselines_of
    from graphstrap.evaluation.protocols import SAW_LABELS, has_seen_test_labels
    from graphstrap.evaluation.protocols import evaluate as evaluate_embeddings
    from graphstrap.evaluation.registry import find_protocol, pool_evaluations

    chosen = find_protocol(protocol)
    folders = seed_folders(folder) or [folder]
    model, graph = o.open_run(folders[0], device=device, quiet=quiet)
    if chosen.trains_anew:
        if len(folders) > 1:
            o.note(f"note: of {len(folders)} seeds, {protocol} takes the first", quiet=quiet)
        found = chosen.score(model, graph, num_runs=runs or 1, refit=refit, baselines=baselines, progress=not quiet)
        if as_json:
            o.print_json(found[model.recipe_.method.name].to_dict())
        else:
            _print_rows(found)
        return
    runs = runs or 5
    if graph.labels is None:
        raise InputError(
            "the graph has no labels to evaluate with: take --protocol links, which needs none, or give the node table "
            "a label column and fit again"
        )
    by_seed = evaluate_runs(folders, graph, protocol=protocol, num_runs=runs, device=device)
    result = pool_evaluations(list(by_seed.values()))
    saw_labels = has_seen_test_labels(model.recipe_, graph, protocol=protocol)
    if saw_labels:
        o.note(SAW_LABELS)
    if as_json:
        several = {"seeds": [{"seed": seed, **one.to_dict()} for seed, one in by_seed.items()]}
        warning = {"learned_from_test_labels": True} if saw_labels else {}
        o.print_json({**result.to_dict(), **warning, **(several if len(by_seed) > 1 else {})})
        return
    if baselines and result.metric == "accuracy":
        known = graph.labels[graph.labels >= 0]
        largest = 100.0 * int(known.bincount().max()) / len(known)  # where every node is called by it
        print(f"{'largest class':14s} {largest:6.2f}")
        if graph.num_classes == 2 and largest > _ONE_IS_RARE:
            o.note("note: one of two classes is rare, and accuracy hardly asks for it: see --protocol auc", quiet=quiet)
    others = baselines_of(graph, model.recipe_, seed=model.seed, device=device) if baselines else {}
    rows = {name: evaluate_embeddings(h, graph, protocol=protocol, num_runs=runs) for name, h in others.items()}
    appended = model.recipe_.encoder.own_features
    rows[model.recipe_.method.name + (" + own" if appended else "")] = result
    if len(by_seed) > 1:
        for seed, one in by_seed.items():
            print(f"seed {seed:<9d} {one.mean:6.2f} ± {one.std:.2f}")
    _print_rows(rows)
    raw_row = rows.get("raw features")
    if appended and raw_row is not None and raw_row.mean > result.mean + result.std:
        setting = f"--set encoder.own_weight={4 * model.recipe_.encoder.own_weight:g}"
        o.note(f"note: raw features are better: fit again, own columns counting more: {setting}", quiet=quiet)
    if appended:
        print(f"+ own: {model.model_.num_own_columns} columns of the node's own features stand beside the embedding")


def _print_rows(rows: dict[str, Evaluation]) -> None:
    """One line for each candidate, the trained one last, and what was done."""
    for name, row in rows.items():
        print(f"{name:14s} {row.mean:6.2f} ± {row.std:.2f}")
    last = list(rows.values())[-1]
    print(f"{last.metric}; {last.protocol}: {last.detail}")
