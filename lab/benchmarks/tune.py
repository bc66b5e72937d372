"""How settings were chosen: declared candidates (`studies.py`) are trained, scored on validation nodes, and one chosen.

    python lab/benchmarks/tune.py best train --device cuda --minutes 9   # GRAPHSTRAP_DATA names the folder of graphs
    python lab/benchmarks/tune.py best train --device cuda --share 1/3   # every third candidate: three such at once
    python lab/benchmarks/tune.py best choose --write          # src/graphstrap/run/recipes/best-<graph>.toml
    python lab/benchmarks/tune.py grace train --steps 2 --to grace.jsonl    # whether it runs

Rows go to results/tune_<study>.jsonl as they come, one for each seed, and the same command goes on.

`best`: BGRL beyond the paper's settings on its four large graphs: ways of training and, on the embeddings of each,
which network embeds and how many own columns stand beside; scored within a fixed half of the labelled nodes
(`reproduce/blind.py`). `choose` takes network and columns by their mean over all ways of training, then the best way:
seventeen means are compared, not sixty-six.
`grace`: GRACE on Amazon Computers, where the settings of its authors' next paper miss the number; the same half. Taken:
batch norm, 0.1 below the best at a fifth of its steps, and one change from what stood before.
`mag`: how fast targets follow and what the auxiliary loss counts in MAG240M's figures on a synthetic graph. Trained for
half of their steps on a graph of another seed, scored on its validation papers.
`small-sets`: Cora, CiteSeer, PubMed and DBLP by one grid, one seed, 5 splits; the tables' splits of other seeds test on
these nodes too, so their numbers flatter the choice a little. Rate and recalibrated batch norm are `default`'s.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated

import numpy as np
import torch

import graphstrap as gs
import studies
from graphstrap.graph import Graph
from graphstrap.io.generate import mag
from graphstrap.ops import resolve_device
from graphstrap.run.recipe import Recipe, load_recipe
from graphstrap_lab.reproduce.blind import tuning_scores
from graphstrap_lab.reproduce.cells import where_from
from graphstrap_lab.reproduce.ledger import Ledger
from graphstrap_lab.reproduce.variants import changed_settings, settings_digest
from harness import REPOSITORY, RESULTS, Row, run, within

BEST = ("amazon-photo", "amazon-computers", "coauthor-cs", "coauthor-physics")


@dataclass(frozen=True)
class Study:
    """Graphs; candidates for each; what is found of their models; how one is chosen."""

    graphs: Sequence[str]
    candidates: Callable[[Graph], dict[str, Recipe]]
    score: Callable[[Graph, studies.Models, torch.device], list[Row]]
    choose: Callable[..., None]
    seeds: Sequence[int] = (0, 1)


def train(name: str, ledger: Ledger, *, graphs: Sequence[str], share: str, steps: int | None, device: str) -> None:
    """Rows of all candidates that the ledger lacks, as far as they are of this share."""
    study, place = STUDIES[name], resolve_device(device)
    first, shares = (int(part) for part in share.split("/"))
    numbers = count()
    for graph_name in graphs:
        graph = load_graph(graph_name, place)
        for label, recipe in study.candidates(graph).items():
            if steps is not None:
                recipe = recipe.with_settings({"train.steps": steps, "train.warmup_steps": steps // 10})
            key = {"dataset": graph_name, "variant": label, "settings": settings_digest(recipe, f"tune-{name}")}
            if next(numbers) % shares != first - 1 or len(ledger.find(**key)) == len(study.seeds):
                continue
            started = time.perf_counter()
            settings = {"train.log_every": recipe.train.steps}  # changes nothing but what is logged
            estimator = gs.Embedder(recipe=recipe, settings=settings, device=place.type)
            models = gs.fit_seeds(estimator, graph, seeds=study.seeds)
            seconds = round((time.perf_counter() - started) / len(models), 2)
            shared = {**key, "recipe": changed_settings(recipe), "train_seconds": seconds, **where_from(place)}
            found = study.score(graph, models, place)
            ledger.add([{**shared, "seed": seed, **row} for seed, row in zip(study.seeds, found, strict=True)])
            print(graph_name, label, seconds, found[0]["validation"], flush=True)


def newest_rows(ledger: Ledger, graph: str) -> dict[str, list[Row]]:
    """A graph's rows by candidate, those of the settings that it had last."""
    rows = ledger.find(dataset=graph)
    newest = {row["variant"]: row["settings"] for row in rows}
    return {
        label: [row for row in rows if (row["variant"], row["settings"]) == (label, settings)]
        for label, settings in newest.items()
    }


def choose_by_mean(ledger: Ledger, *, graphs: Sequence[str], write: bool) -> None:
    """The best mean over seeds."""
    for name in graphs:
        means = {label: validation_mean(rows) for label, rows in newest_rows(ledger, name).items()}
        print(name)
        for label in sorted(means, key=means.__getitem__, reverse=True):
            print(f"    {means[label]:6.2f}  {label}")


def validation_mean(rows: Sequence[Row], kind: str | None = None) -> float:
    return float(np.mean([row["validation"] if kind is None else row["validation"][kind] for row in rows]))


def choose_best(ledger: Ledger, *, graphs: Sequence[str], write: bool) -> None:
    for name in graphs:
        cells = newest_rows(ledger, name)
        kinds = next(iter(cells.values()))[0]["validation"]
        over_ways = {kind: validation_mean([row for rows in cells.values() for row in rows], kind) for kind in kinds}
        beside = max(over_ways, key=over_ways.__getitem__)
        means = {way: validation_mean(rows, beside) for way, rows in cells.items()}
        way = max(means, key=means.__getitem__)
        print(f"{name}: {way}; {beside}: {means[way]:.2f}")
        for kind, value in over_ways.items():
            print(f"    {kind:28s} {value:.2f}   mean over ways")
        for other, value in means.items():
            print(f"    {other:28s} {value:.2f}   {beside}")
        if write:
            write_recipe(name, way, beside)


def write_recipe(graph: str, way: str, beside: str) -> None:
    """As few settings as it takes: those that are not a recipe's usual ones."""
    network, _, size = beside.partition(", own ")
    recipe = studies.best_recipe(graph, way).with_settings(
        {"method.embed_with": network, "encoder.own_features": int(size)}
    )
    name, changed = f"best-{graph}", changed_settings(recipe)
    lines = [
        f"# Beyond the paper on {graph}: {way}; {beside}. Chosen on validation nodes by lab/benchmarks/tune.py.",
        f"# graphstrap fit {graph} --recipe {name} --run runs/{name}",
        f'name = "{name}"',
    ]
    for section in recipe.to_toml().split("\n[")[1:]:
        title, *settings = section.splitlines()
        kept = [line for line in settings if f"{title.strip(']')}.{line.split(' =')[0]}" in changed]
        lines += ["", f"[{title}", *kept] if kept else []
    path = REPOSITORY / "src" / "graphstrap" / "run" / "recipes" / f"{name}.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert load_recipe(name) == replace(recipe, name=name)
    print(f"    wrote {path.relative_to(REPOSITORY)}")


def load_graph(name: str, device: torch.device) -> Graph:
    """A dataset, or `mag-like-SCALE, seed SEED`."""
    scale, is_made, seed = name.removeprefix("mag-like-").partition(", seed ")
    return mag(float(scale), seed=int(seed), device=device) if is_made else gs.load(name)


STUDIES = {
    "best": Study(BEST, studies.best_candidates, studies.best_scores, choose_best),
    "grace": Study(
        ("amazon-computers",), studies.grace_candidates, studies.of_embeddings(tuning_scores), choose_by_mean
    ),
    "mag": Study(("mag-like-0.01, seed 1",), studies.mag_candidates, studies.mag_scores, choose_by_mean),
    "small-sets": Study(
        ("cora", "citeseer", "pubmed", "dblp"),
        studies.small_candidates,
        studies.of_embeddings(partial(studies.validation_scores, num_splits=5)),
        choose_by_mean,
        seeds=(0,),
    ),
}


def main(
    study: Annotated[str, STUDIES],
    what: Annotated[str, ("train", "choose")],
    *,
    graphs: Sequence[str] = (),
    share: str = "1/1",
    steps: int | None = None,
    minutes: float | None = None,
    write: bool = False,
    device: str = "auto",
    to: Path | None = None,
) -> None:
    """`steps`: fewer for all, to try the script."""
    ledger = Ledger(to or RESULTS / f"tune_{study.replace('-', '_')}.jsonl")
    names = graphs or STUDIES[study].graphs
    if what == "choose":
        STUDIES[study].choose(ledger, graphs=names, write=write)
        return
    with within(minutes):
        train(study, ledger, graphs=names, share=share, steps=steps, device=device)


if __name__ == "__main__":
    run(main)
