"""graphstrap demo: learn the call graph of Python's standard library, compare, list neighbours, draw."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from typer import Option

from graphstrap.cli import _options as o

_NUM_SPLITS = 3
_SHOWN = ("statistics.mean", "json.dumps", "posixpath.join")


def demo(
    picture: Annotated[Path, Option(help="Where to draw the embedding space.")] = Path("graphstrap-demo.png"),
    seed: Annotated[int, Option(help="Fixes weights and views.", min=0)] = 0,
    steps: Annotated[int, Option(help="Training steps; `fit` takes 1000.", min=1)] = 300,
    as_json: o.AsJson = False,
    quiet: o.Quiet = False,
) -> None:
    """Learn the standard library's call graph without labels, then see what the embedding knows."""
    from graphstrap.api.estimator import Embedder, baselines_of
    from graphstrap.api.neighbors import find_neighbors, find_node
    from graphstrap.evaluation.protocols import evaluate
    from graphstrap.io.datasets import load
    from graphstrap.io.files import check_folder
    from graphstrap.report.layout import draw_map

    check_folder(picture)
    started = time.monotonic()
    quiet = quiet or as_json
    o.note("reading the call graph of Python's standard library", quiet=quiet)
    graph = load("stdlib")
    sizes = f"{graph.num_nodes:,} functions, {graph.num_edges // 2:,} calls, {graph.num_classes} modules"
    o.note(sizes, quiet=quiet)
    model = Embedder(seed=seed, device="cpu", settings={"train.steps": steps}).fit(graph, progress=not quiet)
    h = model.embed(graph)
    others = baselines_of(graph, model.recipe_, seed=seed, device="cpu")
    names = {"raw features": "raw", "random init": "random_init"}
    candidates = {**{names.get(name, name): one for name, one in others.items()}, "default": h}
    found = {name: evaluate(each, graph, num_runs=_NUM_SPLITS).mean for name, each in candidates.items()}
    assert graph.labels is not None
    title = "Functions of Python's standard library, by what they call and how they are written"
    draw_map(h, graph.labels.numpy(), graph.class_names or (), picture, title=title)
    seconds = round(time.monotonic() - started, 1)
    if as_json:
        o.print_json({"dataset": "stdlib", **{name: round(one, 2) for name, one in found.items()}, "seconds": seconds})
        return
    print(
        f"Which module is a function from? Protocol paper: linear probe, 10 % of the labels, {_NUM_SPLITS} splits, in %"
    )
    for name, mean in found.items():
        print(f"  {name.replace('_', ' '):12s} {mean:5.1f}")
    for name in _SHOWN:
        nearest = find_neighbors(h, find_node(graph, name), k=6)
        print(f"nearest to {name}: {', '.join(str(graph.external_ids[i]) for i, _ in nearest)}")
    print(f"picture: {picture}")
    print(f"{seconds} s")
