"""A run folder to one HTML file: gathers what the page shows, and says what it is doing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphstrap.estimator import BGRL, random_init
from graphstrap.graph import Graph
from graphstrap.io.atomic import atomic_write
from graphstrap.io.other_columns import read_other_columns
from graphstrap.report import columns as c
from graphstrap.report import sections as s
from graphstrap.report.embedding_map import choose_nodes, pack_map
from graphstrap.report.health import Health, check_health
from graphstrap.report.layout import NUM_NEIGHBOURS, neighbour_layout, neighbours_kept, principal_components
from graphstrap.report.nearest import Nearest, nearest_nodes
from graphstrap.report.page import escape, fill_page
from graphstrap.report.scores import Confusion, Scores, confuse, has_classes, score
from graphstrap.report.series import elapsed_seconds, training_series
from graphstrap.report.side_by_side import side_by_side
from graphstrap.run import Run
from graphstrap.source import Source

Array = np.ndarray[Any, Any]
Say = Callable[[str], None]

PROTOCOLS = ("paper", "knn", "clustering")
NUM_RUNS = 2


@dataclass(frozen=True, eq=False)
class _Knowledge:
    """What was found out about the embeddings `h`."""

    graph: Graph
    h: Array
    scores: Scores | None
    confusion: Confusion | None


def write_report(
    run: Run,
    path: Path,
    *,
    model: BGRL | None = None,
    graph: Graph | None = None,
    protocols: Sequence[str] = PROTOCOLS,
    num_runs: int = NUM_RUNS,
    say: Say = lambda text: None,
) -> Health:
    """Write the report of a run and return the verdict. Without a model, as of a cut run, there is no map."""
    known = None
    if model is not None and graph is not None:
        say("embedding all nodes")
        h = model.embed(graph)
        say("evaluating, finding nearest nodes and drawing the map")
        with side_by_side() as executor:
            layout = executor.submit(_lay_out, h)
            known = _evaluate(model, graph, h, executor, protocols, num_runs)
            laid_out = layout.result()
    records = run.metrics()
    health = check_health(
        records,
        steps=run.recipe.train.steps,
        embedding_size=run.recipe.encoder.embedding_size,
        finished=run.is_finished,
        gain=None if known is None or known.scores is None else known.scores.gain,
    )
    header, block = (None, "") if known is None else _make_map(run, known, laid_out)
    page = _page(run, records, health, known, header, block)
    with atomic_write(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return health


def _evaluate(
    model: BGRL, graph: Graph, h: Array, executor: Executor, protocols: Sequence[str], num_runs: int
) -> _Knowledge:
    if not has_classes(graph):
        return _Knowledge(graph, h, None, None)
    candidates: dict[str, Any] = {}
    if len(graph.features) == 1 and graph.x is not None:
        candidates["raw features"] = graph.x
    candidates["random init"] = random_init(graph, model.recipe_, seed=model.seed, device=model.device)
    candidates[model.recipe_.method.name] = h
    if graph.splits is not None and "public" not in protocols:
        protocols = ("public", *protocols)
    scores = score(candidates, graph, executor=executor, protocols=protocols, num_runs=num_runs)
    return _Knowledge(graph, h, scores, confuse(h, graph))


@dataclass(frozen=True, eq=False)
class _Layout:
    """Where the chosen `nodes` stand, and which are near each other."""

    nodes: Array
    nearest: Nearest
    layouts: dict[str, Array]
    kept: dict[str, float]


def _lay_out(h: Array) -> _Layout:
    nodes = choose_nodes(len(h))
    h = h[nodes]
    nearest = nearest_nodes(h, k=NUM_NEIGHBOURS)
    components = principal_components(h)
    layouts = {"neighbours": neighbour_layout(nearest.nodes, components), "pca": components}
    kept = {name: neighbours_kept(nearest.nodes, positions) for name, positions in layouts.items()}
    return _Layout(nodes, nearest, layouts, kept)


def _make_map(run: Run, known: _Knowledge, laid_out: _Layout) -> tuple[dict[str, Any], str]:
    header, block = pack_map(
        known.graph,
        laid_out.nodes,
        layouts=laid_out.layouts,
        columns=_columns(run, known),
        nearest=laid_out.nearest,
        traits=c.traits(known.graph),
    )
    return {**header, "kept": laid_out.kept}, block


def _columns(run: Run, known: _Knowledge) -> list[c.Column]:
    graph = known.graph
    found = c.graph_columns(graph)
    num_clusters = graph.num_classes if has_classes(graph) else c.NUM_CLUSTERS
    found.insert(1 if found[0].title == "label" else 0, c.cluster_column(known.h, num_clusters=min(num_clusters, 40)))
    if known.confusion is not None:
        names = graph.class_names or tuple(str(number) for number in range(graph.num_classes))
        found.insert(2, c.Column("predicted label", known.confusion.predicted.astype(np.int32), names))
    return found + _other_columns(run, graph)


def _other_columns(run: Run, graph: Graph) -> list[c.Column]:
    """Columns of the user's nodes table that training did not read."""
    saved = run.info["source"]
    if not saved.get("nodes") or not saved.get("options", {}).get("ignore_columns"):
        return []
    source = Source.from_dict(saved)
    texts = read_other_columns(saved["nodes"], graph.external_ids, options=source.options, limit=c.MAX_FEATURE_COLUMNS)
    return [c.text_column(title, column) for title, column in texts.items()]


def _title(run: Run) -> str:
    """The graph's name; tables have none, so that their run's name stands for it."""
    name = run.info["graph"].get("name")
    return name if name and name != "graph" else run.folder.resolve().name


def _page(
    run: Run,
    records: list[dict[str, Any]],
    health: Health,
    known: _Knowledge | None,
    header: dict[str, Any] | None,
    block: str,
) -> str:
    scores = None if known is None else known.scores
    confusion = None if known is None else known.confusion
    seconds = elapsed_seconds(records)
    parts = {
        "title": escape(_title(run)),
        "folder": escape(run.folder.resolve().name),
        "method": escape(run.recipe.method.name.upper()),
        "headline": s.headline(health),
        "tiles": s.tiles(run, records, scores, seconds[-1] if seconds else 0.0),
        "scores": "" if scores is None else s.score_tables(scores),
        "confusion": "" if confusion is None else s.confusion_matrix(confusion),
        "recipe": s.recipe_settings(run),
        "statistics": s.data_statistics(run, None if known is None else known.graph),
        "environment": s.environment(run),
    }
    data = {"series": training_series(records, run.recipe), "map": header}
    return fill_page(parts, data=data, block=block)
