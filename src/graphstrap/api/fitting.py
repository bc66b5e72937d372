"""Training on a graph: check it, place it on the device, train, freeze the encoders, save them.

graph -> check_trainable -> [recipe, model: the estimator] -> train_models: place -> train -> freeze -> save
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch

from graphstrap.api.embed import classify, embed, full_pass_fits, must_sample, with_labels_to_learn
from graphstrap.api.layerwise import has_layers, recalibrate_layers
from graphstrap.errors import InputError
from graphstrap.evaluation.protocols import check_labels_for, evaluate
from graphstrap.graph import Graph
from graphstrap.graph.blocks import SparseMatrix, sample_rows
from graphstrap.graph.graph import check_is_graph
from graphstrap.graph.many import training_graphs
from graphstrap.graph.views import child_seed
from graphstrap.io.parts import Part
from graphstrap.nn.encoders import recalibrate_batch_norm
from graphstrap.nn.methods import Method
from graphstrap.nn.model import Model
from graphstrap.run.folder import INSTANT_FILE, Run
from graphstrap.train.batches import BatchMaker
from graphstrap.train.console import can_be_watched
from graphstrap.train.log import MetricsSink
from graphstrap.train.loop import Evaluate, TrainingJob, train_together
from graphstrap.train.parallel.training import train_in_parallel
from graphstrap.train.parallel.workers import ALONE, Workers

logger = logging.getLogger(__name__)

Records = list[dict[str, Any]]
_CHECKED_AT_ONCE = 1 << 26
_CLEAN_BRANCH, _NUM_CLEAN_BATCHES = 1_000_081, 32


def check_trainable(graph: Graph) -> None:
    """Refuse a graph that cannot be trained on, in one sentence that says why."""
    check_is_graph(graph)
    if graph.num_nodes == 0:
        raise InputError("the graph is empty: give a table with at least one node")
    if graph.num_edges == 0:
        raise InputError("the graph has no edges: give at least one edge between two different nodes")
    check_numbers(graph)


def check_numbers(graph: Graph) -> None:
    """Refuse features, edge weights and edge columns that cannot be computed with."""
    for kind, block in zip(graph.node_types, graph.features, strict=True):
        if block is None:
            continue
        rows = sample_rows(block)  # of a large block, which comes from a store that was checked when it was made, some
        if not (rows.values if isinstance(rows, SparseMatrix) else rows).isfinite().all():
            raise InputError(f"a feature of a {kind} is NaN or infinite: replace it by a number")
    weights = [] if graph.edge_weights is None else torch.split(graph.edge_weights, _CHECKED_AT_ONCE)
    if not all(bool((chunk.isfinite() & (chunk >= 0)).all()) for chunk in weights):
        raise InputError("an edge weight is negative, NaN or infinite: weights are numbers from 0 up")
    columns = [] if graph.edge_columns is None else torch.split(graph.edge_columns, _CHECKED_AT_ONCE)
    if not all(bool(chunk.isfinite().all()) for chunk in columns):
        raise InputError("a number in an edge column is NaN or infinite: replace it, or leave the column out")


def check_labels(graph: Graph) -> None:
    """Refuse a graph whose labels cannot be learned from."""
    if graph.labels is None or graph.labels.dim() != 1:
        raise InputError("semi-supervised learning needs one label column: name it with --label-column, or take bgrl")
    known = graph.training_labels
    classes = torch.unique(known[known >= 0])
    if len(classes) < 2:
        raise InputError(
            f"semi-supervised learning needs training nodes of at least two classes, got {int((known >= 0).sum())} of "
            f"{len(classes)}: fill in the label column, and mark training nodes `train` if there is a split column"
        )


def train_models(
    models: Sequence[Model],
    graph: Graph,
    prepared: Graph,
    runs: Sequence[Run | None],
    *,
    device: torch.device,
    mirrors: Sequence[MetricsSink] = (),
    progress: bool | None = None,
    workers: Workers = ALONE,
) -> list[Records]:
    """Train models of one recipe side by side, or one by several workers. Return what each has logged, in all sessions
    of a run. `prepared` is the graph as their common transform makes it."""
    recipe = models[0].recipe
    if not recipe.method_class.is_trained:  # it was fitted when it was built
        for model, run in zip(models, runs, strict=True):
            if workers.is_first and run is not None:
                with run.locked():
                    model.save(run.folder)
        return [[] for _ in models]
    learned = with_labels_to_learn(training_graphs(prepared, recipe.data.training_graphs), models[0])
    placed = models[0].place(learned, device)
    jobs = []
    for model, run in zip(models, runs, strict=True):
        model.module.to(device)
        jobs.append(TrainingJob(model.method, model.seed, run, _evaluation(model, graph, placed), mirrors))
    progress = can_be_watched() if progress is None else progress
    with ExitStack() as at_exit:
        for run in runs:
            if workers.is_first and run is not None:
                at_exit.enter_context(run.locked())  # until the model is saved, not only until the last step
        if workers.is_alone:
            logs = train_together(jobs, placed, recipe=recipe, progress=progress)
        else:
            assert len(jobs) == 1
            logs = [train_in_parallel(jobs[0], placed, recipe=recipe, workers=workers, progress=progress)]
        for model, run in zip(models, runs, strict=True):
            if workers.is_first or isinstance(placed, Part):
                freeze(model, placed, workers=workers)
            if workers.is_first and run is not None:
                model.save(run.folder)
                (run.folder / INSTANT_FILE).unlink(missing_ok=True)
            workers.take_module_from_first(model.module)
    return [log if run is None else run.metrics() for log, run in zip(logs, runs, strict=True)]


def freeze(model: Model, prepared: Graph, *, workers: Workers = ALONE) -> None:
    """Turn trained weights into a frozen encoder: if the recipe says so, batch norm takes the statistics of the clean
    graph. Of a graph in parts, all workers call this and end with the same encoder."""
    if model.recipe.encoder.batch_norm_statistics != "recalibrated":
        return
    method, encoder = model.method, model.method.frozen
    if isinstance(prepared, Part):
        if has_layers(encoder):
            recalibrate_layers(encoder, prepared, workers=workers)
        return
    if method.learns_labels and not must_sample(model):
        prepared = method.inputs(prepared, whole_graph_labels=True)
    device = next(encoder.parameters()).device
    if must_sample(model):
        seed = child_seed(model.seed, _CLEAN_BRANCH)  # batches as training has them, with other roots
        make = BatchMaker(prepared, recipe=model.recipe, seed=seed, device=device)
        recalibrate_batch_norm(encoder, (method.inputs(make(step)) for step in range(1, _NUM_CLEAN_BATCHES + 1)))
    elif not full_pass_fits(encoder, prepared, device) and has_layers(encoder):
        recalibrate_layers(encoder, prepared, device=device)
    else:
        recalibrate_batch_norm(encoder, [prepared.to(device).with_readable_features()])


def _evaluation(model: Model, graph: Graph, prepared: Graph) -> Evaluate | None:
    """How a model is evaluated while it trains: by a protocol; of a method that learns from labels, by its accuracy on
    the validation nodes of the first split. None where there are no labels for that."""
    labels, splits = graph.labels, graph.splits
    if not model.recipe.train.evaluate_every or labels is None or isinstance(graph, Part):
        return None
    if labels.dim() == 2 and splits is None:
        return None
    if model.method.learns_labels:
        nodes = torch.empty(0) if splits is None else (splits.val[:, 0] & (labels >= 0)).nonzero().squeeze(1)
        if len(nodes) == 0:
            return None
        wanted = labels[nodes].cpu().numpy()

        def measure(device: torch.device) -> dict[str, float]:
            found = classify(model, graph, nodes, device=device).argmax(1)
            return {"accuracy": 100.0 * float((found == wanted).mean())}
    else:
        protocol = "paper" if labels.dim() == 1 else "adamw"
        try:
            check_labels_for(graph, protocol)
        except InputError as error:
            logger.warning("training is not evaluated: %s", error)
            return None

        def measure(device: torch.device) -> dict[str, float]:
            h = torch.from_numpy(embed(model, graph, device=device)).to(device)
            outcome = evaluate(h, graph, protocol=protocol, num_runs=1)
            return {outcome.metric.replace("-", "_"): outcome.mean}

    def evaluate_now(method: Method) -> dict[str, float]:
        """Of the model as it would be if training ended now; afterwards it is as it was."""
        encoder = model.method.frozen
        before = [buffer.clone() for buffer in encoder.buffers()]
        freeze(model, prepared)
        try:
            return measure(next(model.module.parameters()).device)
        finally:
            for buffer, saved in zip(encoder.buffers(), before, strict=True):
                buffer.copy_(saved)

    return evaluate_now
