"""A run folder to one HTML file: gathers what the page shows, and says what it is doing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import torch

from graphstrap.api.estimator import Embedder
from graphstrap.evaluation.task import Array
from graphstrap.graph import Graph
from graphstrap.io.files import atomic_write
from graphstrap.io.source import Source
from graphstrap.io.tables import read_ignored_columns
from graphstrap.nn.model import class_names
from graphstrap.report import embedding_map as maps
from graphstrap.report import page as html
from graphstrap.report.health import Gain, Health, check_health, join_health, praise
from graphstrap.report.scores import Confusion, Scores, find_out, has_classes
from graphstrap.report.series import join_charts, training_series
from graphstrap.run.folder import Run
from graphstrap.run.recipe import Recipe


def write_report(
    runs: Sequence[tuple[Run, Embedder | None]],
    path: Path,
    *,
    graph: Graph | None = None,
    protocols: Sequence[str] | None = None,
    num_runs: int | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Health:
    """Write the report of a run and return the verdict. Without a model, as of a cut run, there is no map.

    Several runs are of the same recipe and graph by other seeds: curves and scores then show the spread over all of
    them. The map is that of the first. `protocols` and `num_runs`: see `find_out`.
    """
    run, model = runs[0]
    models = {int(one.info["seed"]): other for one, other in runs if other is not None}
    scores, confusion, header, block = Scores({}), None, None, ""
    if model is not None and graph is not None:
        say("embedding all nodes")
        embeddings = [one.embed(graph) for one in models.values()]
        say("evaluating, finding nearest nodes and drawing the map")
        with side_by_side() as executor:
            waiting = executor.submit(maps.lay_out, embeddings[0])
            scores, confusion = find_out(
                list(models.values()), graph, embeddings, executor=executor, protocols=protocols, num_runs=num_runs
            )
            layout = waiting.result()
        header, block = maps.pack_map(graph, layout, columns=_columns(run, graph, embeddings[0], confusion))
        if len(runs) > 1:
            header["notes"].insert(0, f"The map shows seed {run.info['seed']}.")
    logs = dict(sorted((int(one.info["seed"]), one.metrics()) for one, _ in runs))
    finished = [int(one.info["seed"]) for one, _ in runs if one.is_finished]
    healths, health = _check(run.recipe, logs, finished, dict(zip(models, scores.gains, strict=False)))
    score_of = dict(zip(models, scores.by_seed, strict=False))
    best, is_alone, folder = scores.best, len(logs) == 1, run.folder.resolve()
    seed = None if is_alone else run.info["seed"]  # one of several is named
    sections = {
        "title": html.escape(_title(run)),
        "folder": html.escape(folder.name if is_alone else f"{folder.parent.name}, {len(logs)} seeds"),
        "method": html.escape(run.recipe.method.name.upper()),
        "headline": html.headline(health),
        "tiles": html.tiles(run, logs, best),
        "seeds": "" if is_alone else html.seed_table(logs, healths, best, score_of),
        "no_map": "" if header is not None else html.NO_MAP,
        "scores": html.score_tables(scores.tables, scores.note),
        "confusion": "" if confusion is None else html.confusion_matrix(confusion, seed=seed),
        "recipe": html.recipe_settings(run, seeds=list(logs)),
        "statistics": html.data_statistics(run, None if header is None else graph),
        "environment": html.environment(run),
    }
    charts = join_charts([training_series(records, run.recipe) for records in logs.values()])
    page = html.fill_page(sections, data={"series": charts, "map": header, "num_seeds": len(logs)}, block=block)
    with atomic_write(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return health


def _check(
    recipe: Recipe, logs: html.Logs, finished: Collection[int], gains: Mapping[int, Gain]
) -> tuple[dict[int, Health], Health]:
    """The verdict of every seed, and of all together."""
    size, gained, all_logs = recipe.encoder.embedding_size, list(gains.values()), list(logs.values())
    healths = {
        seed: check_health(
            records, steps=recipe.train.steps, embedding_size=size, finished=seed in finished, gain=gains.get(seed)
        )
        for seed, records in logs.items()
    }
    average = replace(gained[0], points=sum(one.points for one in gained) / len(gained)) if gained else None
    every = f"All {len(logs)} seeds are healthy, on average"
    return healths, join_health(healths, praise(all_logs, size, average, of=every))


def _columns(run: Run, graph: Graph, h: Array, confusion: Confusion | None) -> list[maps.Column]:
    """What the map can be coloured by."""
    found = maps.graph_columns(graph)
    num_clusters = min(graph.num_classes, 40) if has_classes(graph) else maps.NUM_CLUSTERS
    found.insert(1 if found[0].title == "label" else 0, maps.cluster_column(h, num_clusters=num_clusters))
    if confusion is not None:
        predicted = confusion.predicted.astype(np.int32)
        found.insert(2, maps.Column("predicted label", predicted, class_names(graph)))
    saved = run.info["source"]
    if saved.get("nodes") and saved.get("options", {}).get("ignore_columns"):  # which training did not read
        options, limit = Source.from_dict(saved).options, maps.MAX_FEATURE_COLUMNS
        texts = read_ignored_columns(saved["nodes"], graph.external_ids, options=options, limit=limit)
        found += [maps.text_column(title, column) for title, column in texts.items()]
    return found


def _title(run: Run) -> str:
    """The graph's name; tables have none, so that their run's name stands for it."""
    name, folder = run.info["graph"].get("name"), run.folder.resolve()
    if name and name != "graph":
        return str(name)
    return folder.parent.name if (folder.parent / "seeds.json").exists() else folder.name


@contextmanager
def side_by_side() -> Iterator[Executor]:
    """Takes functions by `submit` and runs two at a time, each on half of the processor's cores: evaluation and layout
    are many small steps, of which a second core makes each hardly faster. With one core they run one after the other.
    """
    # Two threads that enter a package by different doors can each find a module of it half made: what both import
    # where they need it is imported first.
    from threadpoolctl import threadpool_limits

    for name in ("cluster", "linear_model", "metrics", "multiclass", "preprocessing"):
        import_module(f"sklearn.{name}")

    def limit_threads() -> None:  # of PyTorch, and of scikit-learn, which counts threads for itself
        torch.set_num_threads(share)
        threadpool_limits(share)

    num_threads = torch.get_num_threads()
    num_at_once = min(2, num_threads)
    share = num_threads // num_at_once
    torch.set_num_threads(share)
    executor = ThreadPoolExecutor(num_at_once, initializer=limit_threads)
    try:
        yield executor
    finally:
        executor.shutdown(cancel_futures=True)
        torch.set_num_threads(num_threads)
