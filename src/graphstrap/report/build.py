"""A run folder to one HTML file: gathers what the page shows, and says what it is doing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphstrap.api.estimator import BGRL
from graphstrap.api.seeds import LIST_FILE
from graphstrap.graph import Graph
from graphstrap.io.files import atomic_write
from graphstrap.io.source import Source
from graphstrap.io.tables import read_ignored_columns
from graphstrap.report import embedding_map as c
from graphstrap.report import page as s
from graphstrap.report.embedding_map import choose_nodes, pack_map
from graphstrap.report.figures import seed_table, tiles
from graphstrap.report.health import Health, check_health, praise
from graphstrap.report.layout import NUM_NEIGHBOURS, neighbour_layout, neighbours_kept, principal_components
from graphstrap.report.nearest import Nearest, nearest_nodes
from graphstrap.report.page import escape, fill_page
from graphstrap.report.scores import Knowledge, find_out, has_classes
from graphstrap.report.series import join_charts, join_health, mean_records, training_series
from graphstrap.run.folder import Run

# Work that does not wait for other work, two at a time: each on half of the processor's cores.
#
# Evaluation and layout are many small steps, of which a second core makes each hardly faster; two of them at once are.


_NUM_AT_ONCE = 2


@contextmanager
def side_by_side() -> Iterator[Executor]:
    """Takes functions by `submit`. With one core, or where one was asked for, they run one after the other."""
    _import_for_all()
    num_threads = torch.get_num_threads()
    num_at_once = min(_NUM_AT_ONCE, num_threads)
    share = num_threads // num_at_once
    torch.set_num_threads(share)
    executor = ThreadPoolExecutor(num_at_once, initializer=_take, initargs=(share,))
    try:
        yield executor
    finally:
        executor.shutdown(cancel_futures=True)
        torch.set_num_threads(num_threads)


def _import_for_all() -> None:
    """What work imports where it needs it: two threads that enter a package by different doors can each find a module
    of it half made, so that one thread goes first."""
    import sklearn.cluster
    import sklearn.linear_model
    import sklearn.metrics
    import sklearn.multiclass
    import sklearn.preprocessing  # noqa: F401


def _take(num_threads: int) -> None:
    """For PyTorch, and for scikit-learn, which counts threads for itself."""
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(num_threads)
    threadpool_limits(num_threads)


Array = np.ndarray[Any, Any]
Say = Callable[[str], None]


def write_report(
    run: Run,
    path: Path,
    *,
    model: BGRL | None = None,
    graph: Graph | None = None,
    others: Sequence[tuple[Run, BGRL | None]] = (),
    protocols: Sequence[str] | None = None,
    num_runs: int | None = None,
    say: Say = lambda text: None,
) -> Health:
    """Write the report of a run and return the verdict. Without a model, as of a cut run, there is no map.

    `others` are runs of the same recipe and graph by other seeds: curves and scores then show the spread over all of
    them. The map is that of `run`. `protocols` and `num_runs`: see `find_out`.
    """
    known, laid_out = None, None
    if model is not None and graph is not None:
        models = [model, *(one for _, one in others if one is not None)]
        say("embedding all nodes")
        embeddings = [one.embed(graph) for one in models]
        say("evaluating, finding nearest nodes and drawing the map")
        with side_by_side() as executor:
            layout = executor.submit(_lay_out, embeddings[0])
            known = find_out(models, graph, embeddings, executor=executor, protocols=protocols, num_runs=num_runs)
            laid_out = layout.result()
    members = [_Member(run, run.metrics(), model is not None)]
    members += [_Member(one, one.metrics(), other is not None) for one, other in others]
    members.sort(key=lambda one: one.seed)
    scored = [run.info["seed"], *(one.info["seed"] for one, other in others if other is not None)]
    healths, health = _check(members, known, scored)
    header, block = (None, "") if known is None or laid_out is None else _make_map(run, known, laid_out)
    if header is not None and len(members) > 1:
        header["notes"].insert(0, f"The map shows seed {run.info['seed']}.")
    page = _page(run, members, healths, health, known, header, block, scored)
    with atomic_write(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return health


@dataclass(frozen=True, eq=False)
class _Member:
    """One seed."""

    run: Run
    records: list[dict[str, Any]]
    is_finished: bool

    @property
    def seed(self) -> int:
        return int(self.run.info["seed"])


def _check(
    members: Sequence[_Member], known: Knowledge | None, scored: Sequence[int]
) -> tuple[dict[int, Health], Health]:
    """The verdict of every seed, and of all together. `scored` are seeds in the order of their scores."""
    gains = () if known is None or known.scores is None else known.scores.gains
    gain_of = dict(zip(scored, gains, strict=False))
    recipe = members[0].run.recipe
    healths = {
        one.seed: check_health(
            one.records,
            steps=recipe.train.steps,
            embedding_size=recipe.encoder.embedding_size,
            finished=one.is_finished,
            gain=gain_of.get(one.seed),
        )
        for one in members
    }
    words = praise(
        mean_records([one.records for one in members]),
        recipe.encoder.embedding_size,
        replace(gains[0], points=sum(one.points for one in gains) / len(gains)) if gains else None,
        of=f"All {len(members)} seeds are healthy, on average",
    )
    return healths, join_health(healths, words)


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


def _make_map(run: Run, known: Knowledge, laid_out: _Layout) -> tuple[dict[str, Any], str]:
    header, block = pack_map(
        known.graph,
        laid_out.nodes,
        layouts=laid_out.layouts,
        columns=_columns(run, known),
        nearest=laid_out.nearest,
        traits=c.traits(known.graph),
    )
    return {**header, "kept": laid_out.kept}, block


def _columns(run: Run, known: Knowledge) -> list[c.Column]:
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
    texts = read_ignored_columns(
        saved["nodes"], graph.external_ids, options=source.options, limit=c.MAX_FEATURE_COLUMNS
    )
    return [c.text_column(title, column) for title, column in texts.items()]


def _title(run: Run) -> str:
    """The graph's name; tables have none, so that their run's name stands for it."""
    name, folder = run.info["graph"].get("name"), run.folder.resolve()
    if name and name != "graph":
        return str(name)
    return folder.parent.name if (folder.parent / LIST_FILE).exists() else folder.name


def _page(
    run: Run,
    members: Sequence[_Member],
    healths: dict[int, Health],
    health: Health,
    known: Knowledge | None,
    header: dict[str, Any] | None,
    block: str,
    scored: Sequence[int],
) -> str:
    scores = None if known is None else known.scores
    confusion = None if known is None else known.confusion
    logs = {one.seed: one.records for one in members}
    score_of = dict(zip(scored, () if scores is None else scores.by_seed, strict=False))
    folder, shown_seed = run.folder.resolve(), run.info["seed"] if len(members) > 1 else None
    parts = {
        "title": escape(_title(run)),
        "folder": escape(folder.name if len(members) == 1 else f"{folder.parent.name}, {len(members)} seeds"),
        "method": escape(run.recipe.method.name.upper()),
        "headline": s.headline(health),
        "tiles": tiles(run, logs, scores),
        "seeds": seed_table(logs, healths, scores, score_of) if len(members) > 1 else "",
        "no_map": "" if header is not None else s.NO_MAP,
        "scores": "" if scores is None else s.score_tables(scores),
        "confusion": "" if confusion is None else s.confusion_matrix(confusion, seed=shown_seed),
        "recipe": s.recipe_settings(run, seeds=list(logs)),
        "statistics": s.data_statistics(run, None if known is None else known.graph),
        "environment": s.environment(run),
    }
    charts = join_charts([training_series(records, run.recipe) for records in logs.values()])
    return fill_page(parts, data={"series": charts, "map": header, "num_seeds": len(members)}, block=block)
