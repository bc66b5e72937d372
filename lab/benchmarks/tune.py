"""How settings were chosen: candidates that were written down before any was trained, scored on validation nodes.

    python lab/benchmarks/tune.py default train --device cuda --minutes 9   # GRAPHSTRAP_DATA names the folder of graphs
    python lab/benchmarks/tune.py default train --device cuda --share 1/3   # every third candidate: three such at once
    python lab/benchmarks/tune.py default choose
    python lab/benchmarks/tune.py best choose --write          # src/graphstrap/run/recipes/best-<graph>.toml
    python lab/benchmarks/tune.py grace train --steps 2 --to grace.jsonl    # whether it runs

Rows go to results/tune_<study>.jsonl as they come, a row for each seed, and the same command goes on.

`default`: changes of the recipe that stood before, on every homogeneous graph at hand; what may be appended to an
embedding is tried on the same embedding. Probes are fitted on 10 % of the labelled nodes and scored on the next 10 %, 3
random splits of seed 0, whose test nodes are left alone. `choose` says, for each graph, which candidate and which rule
for appending is best on all the others, and what that rule scores on the graph that was left out. Beside it: how a
graph fares that takes the candidate whose embedding has the highest effective rank for its width. The best on all
graphs was taken but for two things (docs/LOG.md).

`best`: BGRL beyond the paper's settings on its four large graphs. Eleven ways of training and, on the embeddings of
each, which network embeds and how many of the node's own columns stand beside; scored within a fixed half of the
labelled nodes (`reproduce/blind.py`). `choose` takes what stands beside and which network by their mean over all ways
of training, then the best way of training: seventeen means are compared, not sixty-six.

`grace`: GRACE on Amazon Computers, where the settings of its authors' next paper miss the number; the same half. Taken:
batch norm, 0.1 below the best at a fifth of its steps, and one change from what stood before.

`mag`: how fast targets follow and what the auxiliary loss counts in MAG240M's figures on a synthetic graph (SYNTHETIC_*
of reproduce/mag_cells.py), where by the recipe a target hardly moves in 1,000 steps. Trained for half of them on a
graph of another seed, scored on its validation papers.

`small-sets`: Cora, CiteSeer, PubMed and DBLP by one grid, one seed, 5 splits; the tables' splits of other seeds test on
these nodes too, so their numbers flatter the choice a little. Rate and recalibrated batch norm are `default`'s.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import count, product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import graphstrap as gs
from graphstrap.api.embed import embed_seeds
from graphstrap.evaluation.protocols import probe_runs
from graphstrap.evaluation.task import Task, tenths
from graphstrap.graph import CLEAN, Graph
from graphstrap.graph.blocks import dense, is_bag, sample_rows, take_rows
from graphstrap.io.generate import mag
from graphstrap.nn.encoders import recalibrate_batch_norm
from graphstrap.nn.features import FeatureTransform, OwnFeatures
from graphstrap.nn.methods.bgrl import BGRL
from graphstrap.ops import propagate, resolve_device
from graphstrap.run.defaults import Statistics, choose_recipe
from graphstrap.run.recipe import Recipe, load_recipe
from graphstrap.train.log import describe_moments, embedding_moments
from graphstrap_lab.reproduce.blind import tuning_scores
from graphstrap_lab.reproduce.cells import where_from
from graphstrap_lab.reproduce.ledger import Ledger
from graphstrap_lab.reproduce.mag_cells import SYNTHETIC_STEPS, mag_recipe
from graphstrap_lab.reproduce.variants import changed_settings, recipe_of, settings_digest
from harness import REPOSITORY, RESULTS, Row, homogeneous_graphs, run, within

Models = Sequence[gs.Embedder]
Settings = dict[str, Any]


@dataclass(frozen=True)
class Study:
    """Candidates for each of some graphs, what is found of the models of one, and how one is chosen."""

    graphs: Callable[[], Sequence[str]]
    candidates: Callable[[Graph], dict[str, Recipe]]
    score: Callable[[Graph, Models, torch.device], list[Row]]
    choose: Callable[..., None]
    load: Callable[[str, torch.device], Graph] = lambda name, device: gs.load(name)
    seeds: Sequence[int] = (0, 1)


def train(name: str, ledger: Ledger, *, graphs: Sequence[str], share: str, steps: int | None, device: str) -> None:
    """Rows of all candidates that the ledger lacks, as far as they are of this share."""
    study, place = STUDIES[name], resolve_device(device)
    first, shares = (int(part) for part in share.split("/"))
    numbers = count()
    for graph_name in graphs or study.graphs():
        graph = study.load(graph_name, place)
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


def validation_scores(embeddings: Sequence[Tensor], graph: Graph, *, num_splits: int) -> list[float]:
    tasks = [Task.of(h, graph, num_runs=num_splits) for h in embeddings]
    splits = [task.random_splits(tenths) for task in tasks]
    blind = [[split._replace(test=split.val) for split in own] for own in splits]
    return [round(100.0 * float(np.mean(runs)), 4) for runs in probe_runs(tasks, blind)]


def scored(tables: Sequence[dict[str, Tensor]], score: Callable[[list[Tensor]], list[float]]) -> list[dict[str, float]]:
    """The score of each kind of table of each model, all worked out together."""
    values = iter(score([table for own in tables for table in own.values()]))
    return [{kind: next(values) for kind in own} for own in tables]


def of_embeddings(score: Callable[[list[Tensor], Graph], list[float]]) -> Callable[..., list[Row]]:
    """The score of each model's embedding as it is."""

    def found(graph: Graph, models: Models, device: torch.device) -> list[Row]:
        embeddings = embed_seeds([model.model_ for model in models], graph, device=device)
        return [{"validation": value} for value in score(embeddings, graph)]

    return found


def views(mask: float, drop: float) -> Settings:
    return {"views.feature_mask_probs": [mask, mask], "views.edge_drop_probs": [drop, drop]}


@lru_cache(maxsize=1)
def own_columns(graph: Graph, recipe: Recipe) -> tuple[Graph, Tensor]:
    """The graph as its encoder takes it, and 512 columns of its nodes' own features, compressed: leading ones first."""
    data = recipe.data
    transform = FeatureTransform.fit(graph, scaling=data.feature_scaling, structural_size=data.structural_size)
    prepared = transform(graph)
    own = OwnFeatures.fit(prepared, num_columns=512)
    return prepared, own.append_to(torch.zeros(graph.num_nodes, 0), prepared)


# ---- default

# The recipe that stood before, from which the candidates differ; masking, dropping and widths are scaled, not replaced.
BEFORE = {"train.steps": 300, "train.warmup_steps": 30, "train.log_every": 10_000}
CHANGES: dict[str, dict[str, Any]] = {
    "as it was": {},
    "mask x 0.5": {"mask": 0.5},
    "mask x 1.5": {"mask": 1.5},
    "drop x 0.5": {"drop": 0.5},
    "drop x 1.5": {"drop": 1.5},
    "mask and drop x 0.5": {"mask": 0.5, "drop": 0.5},
    "mask and drop x 1.5": {"mask": 1.5, "drop": 1.5},
    "1000 steps": {"settings": {"train.steps": 1000, "train.warmup_steps": 100}},
    "rate 0.003": {"settings": {"train.learning_rate": 3e-3}},
    "twice as wide": {"width": 2},
    "one layer": {"settings": {"encoder.hidden_sizes": []}},
    "layer norm": {"settings": {"encoder.norm": "layer"}},
    "structure": {},  # columns from the edges beside features that are few, or hardly alike in linked nodes
    "neighbours": {"settings": {"method.target_hops": 1}},
}
# Columns of a node's own features, and of features averaged over two hops, appended to the embedding.
APPENDED = {
    "nothing": (0, 0),
    "own 64": (64, 0),
    "own 256": (256, 0),
    "own 512": (512, 0),
    "own 64, hops 64": (64, 64),
}
THRESHOLDS = (0.02, 0.05, 0.1, 2.0)  # append where linked nodes are less alike than this
FEW_COLUMNS, HARDLY_ALIKE = 30, 0.05
SMALL_WIDTH = 256  # of embeddings below 5,000 nodes
BY_SIZE = "1000 steps from 5,000 nodes on"
SHIPPED = (BY_SIZE, "own 64", 2.0)


def default_candidates(graph: Graph) -> dict[str, Recipe]:
    base, num_columns = choose_recipe(graph)[0], Statistics.of(graph).num_columns
    is_vague = num_columns and (num_columns < FEW_COLUMNS or likeness_of_neighbours(graph) < HARDLY_ALIKE)
    found = {}
    for label, change in CHANGES.items():
        width = change.get("width", 1)
        settings = {
            "views.feature_mask_probs": [change.get("mask", 1.0) * p for p in base.views.feature_mask_probs],
            "views.edge_drop_probs": [change.get("drop", 1.0) * p for p in base.views.edge_drop_probs],
            "encoder.own_features": 0,
            "encoder.hidden_sizes": [width * size for size in base.encoder.hidden_sizes],
            "encoder.embedding_size": width * base.encoder.embedding_size,
            **BEFORE,
            **change.get("settings", {}),
            **({"data.structural_columns": "always"} if label == "structure" and is_vague else {}),
        }
        found[label] = base.with_settings(settings)
    return found


@lru_cache(maxsize=1)
def likeness_of_neighbours(graph: Graph) -> float:
    """How much more alike linked nodes are than random ones: the difference of their mean cosines, features centred.

    About 0.1 to 0.3 on citation and co-author graphs, below 0.03 where links say nothing about features.
    """
    if graph.x is None:
        return 1.0
    scaling = "row" if is_bag(graph.x) else "column"
    block = FeatureTransform.fit(graph, scaling=scaling, structural_size=1)(graph).features[0]
    assert block is not None
    random = np.random.default_rng(0)
    edges = torch.from_numpy(random.choice(graph.num_edges, min(10_000, graph.num_edges), replace=False))
    source, target = graph.indices[edges].long(), torch.searchsorted(graph.indptr, edges, right=True) - 1
    other = torch.from_numpy(random.permutation(target.numpy()))
    mean = F.normalize(dense(sample_rows(block))).mean(dim=0)

    def centred(rows: Tensor) -> Tensor:
        return F.normalize(dense(take_rows(block, rows))) - mean

    pairs = zip(*(torch.split(nodes, 1000) for nodes in (source, target, other)), strict=True)
    cosines = [
        F.cosine_similarity(centred(one), centred(near)) - F.cosine_similarity(centred(one), centred(far))
        for one, near, far in pairs
    ]
    return float(torch.cat(cosines).mean())


@lru_cache(maxsize=1)
def columns_to_append(graph: Graph) -> dict[str, list[Tensor]]:
    """For each kind, tables whose rows have length 1; none for a graph without features."""
    if graph.x is None:
        return {name: [] for name in APPENDED}
    prepared, own = own_columns(graph, choose_recipe(graph)[0])
    tables = (own, propagate(prepared, CLEAN, propagate(prepared, CLEAN, own)))
    return {
        name: [F.normalize(table[:, :size]) for table, size in zip(tables, sizes, strict=True) if size]
        for name, sizes in APPENDED.items()
    }


def default_scores(graph: Graph, models: Models, device: torch.device) -> list[Row]:
    embeddings = embed_seeds([model.model_ for model in models], graph, device=device)
    beside = {kind: [table.to(device) for table in own] for kind, own in columns_to_append(graph).items()}
    tables = [{kind: torch.cat([F.normalize(h), *own], dim=1) for kind, own in beside.items()} for h in embeddings]
    found = scored(tables, partial(validation_scores, graph=graph, num_splits=3))
    return [
        {
            "likeness": likeness_of_neighbours(graph),
            "loss": model.metrics_[-1]["loss"],
            "rank_of_width": round(describe_moments(*embedding_moments(h))["effective_rank"] / h.shape[1], 4),
            "validation": values,
        }
        for model, h, values in zip(models, embeddings, found, strict=True)
    ]


def choose_default(ledger: Ledger, *, graphs: Sequence[str], write: bool) -> None:
    cells = {name: newest_rows(ledger, name) for name in dict.fromkeys(row["dataset"] for row in ledger.rows)}
    whole = [name for name, rows in cells.items() if rows.keys() >= CHANGES.keys()]
    print(f"{len(whole)} graphs; left out, since candidates are missing: {sorted(set(cells) - set(whole)) or 'none'}")
    for name in whole:  # added after the trials were seen: more steps on larger graphs alone
        is_small = cells[name]["as it was"][0]["recipe"].get("encoder.embedding_size") == SMALL_WIDTH
        cells[name][BY_SIZE] = cells[name]["as it was" if is_small else "1000 steps"]
    ways = [("nothing", 0.0), *product([kind for kind in APPENDED if kind != "nothing"], THRESHOLDS)]
    rules = [(label, *way) for label in (*CHANGES, BY_SIZE) for way in ways]
    table = np.array(
        [[rule_score(cells[name][label], kind=kind, threshold=limit) for label, kind, limit in rules] for name in whole]
    )
    table -= table[:, [rules.index(("as it was", "own 64", 0.05))]]  # over the recipe that stands: graphs differ
    left_out = [int(np.delete(table, k, axis=0).mean(axis=0).argmax()) for k in range(len(whole))]
    for k, name in enumerate(whole):
        shipped = table[k, rules.index(SHIPPED)]
        print(f"{name:22s} {table[k, left_out[k]]:+.2f} by {rules[left_out[k]]}; {shipped:+.2f} by what ships")
    gains = [table[k, rule] for k, rule in enumerate(left_out)]
    print(f"{np.mean(gains):+.3f} on average over the recipe that stands, each graph by the choice of all others")
    print("best on all graphs:")
    for place in np.argsort(-table.mean(axis=0))[:12]:
        print(f"{table.mean(axis=0)[place]:+.3f} (worst {table[:, place].min():+.2f})  {rules[place]}")
    print("each candidate over the one that stands, own 64 below 0.05:")
    for label in CHANGES:
        gain = table[:, rules.index((label, "own 64", 0.05))]
        low, high = int(gain.argmin()), int(gain.argmax())
        ends = f"{whole[low]} {gain[low]:+.2f}, {whole[high]} {gain[high]:+.2f}"
        print(f"{gain.mean():+.3f}  {label:22s} from {ends}")
    gains = []
    for k, name in enumerate(whole):
        ranks = {label: np.mean([row["rank_of_width"] for row in cells[name][label]]) for label in CHANGES}
        gains.append(table[k, rules.index((max(ranks, key=ranks.__getitem__), "own 64", 0.05))])
    print(f"{np.mean(gains):+.3f} (worst {min(gains):+.2f})  the candidate whose embedding fills most of its columns")


def rule_score(rows: Sequence[Row], *, kind: str, threshold: float) -> float:
    return validation_mean(rows, kind if rows[0]["likeness"] < threshold else "nothing")


# ---- best

# A fifth of the paper's steps at a higher rate, batch-norm statistics of the clean graph; then what differs further.
SHARED = {
    "train.steps": 2000,
    "train.warmup_steps": 200,
    "train.learning_rate": 1e-3,
    "encoder.batch_norm_statistics": "recalibrated",
}
LONGER = {"train.steps": 5000, "train.warmup_steps": 500}
STRONG = views(0.5, 0.5)
WAYS: dict[str, Settings] = {
    "paper's views": {},
    "paper's views, neighbours": {"method.target_hops": 1},
    "paper's views, 5000 steps": LONGER,
    "strong views": STRONG,
    "mask 0.5, drop 0.25": views(0.5, 0.25),
    "mask 0.25, drop 0.5": views(0.25, 0.5),
    "strong views, neighbours": {**STRONG, "method.target_hops": 1},
    "strong views, wide": {**STRONG, "encoder.hidden_sizes": [1024], "encoder.embedding_size": 512},
    "strong views, one layer": {**STRONG, "encoder.hidden_sizes": [], "encoder.embedding_size": 512},
    "strong views, rate 0.005": {**STRONG, "train.learning_rate": 5e-3},
    "strong views, 5000 steps": {**STRONG, **LONGER},
}


def best_recipe(graph: str, way: str) -> Recipe:
    return load_recipe(graph).with_settings({**SHARED, **WAYS[way]})


def best_scores(graph: Graph, models: Models, device: torch.device) -> list[Row]:
    """Of each network's embedding, alone and beside so many columns of own features."""
    prepared = models[0].model_.transform(graph).to(device).with_readable_features()
    own = own_columns(graph, load_recipe(graph.name))[1].to(device)
    tables: list[dict[str, Tensor]] = []
    for model in models:
        method = model.model_.method
        assert isinstance(method, BGRL)
        tables.append({})
        for method.embed_with in ("online", "target"):
            recalibrate_batch_norm(method.frozen, [prepared])
            h = F.normalize(method.embed(prepared).float())
            for size in (0, 128, 512):
                beside = F.normalize(own[:, :size])
                tables[-1][f"{method.embed_with}, own {size}"] = torch.cat([h, beside], dim=1)
    return [{"validation": values} for values in scored(tables, partial(tuning_scores, graph=graph))]


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
    recipe = best_recipe(graph, way).with_settings({"method.embed_with": network, "encoder.own_features": int(size)})
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


# ---- grace, mag, small sets

WIDE = {"encoder.hidden_sizes": (512,), "encoder.embedding_size": 256}
GRACE: dict[str, Settings] = {
    "as in its authors' next paper": {},
    "rate 0.001": {"train.learning_rate": 1e-3},
    "batch norm": {"encoder.norm": "batch"},
    "batch norm, rate 0.001": {"encoder.norm": "batch", "train.learning_rate": 1e-3},
    "twice as wide": WIDE,
    "twice as wide, rate 0.001": {**WIDE, "train.learning_rate": 1e-3},
    "temperature 0.4": {"method.temperature": 0.4},
}
MAG_ROWS = {"bgrl": "mag-bgrl-0", "grace": "mag-grace-256"}
MAG = [  # target decay and weight
    *[("bgrl", *pair) for pair in ((0.999, 1.0), (0.99, 1.0), (0.9, 1.0), (0.99, 5.0), (0.9, 5.0), (0.99, 20.0))],
    *[("grace", *pair) for pair in ((0.999, 1.0), (0.999, 5.0))],
]
SMALL_SIZES = {"one layer": ([], 512), "two layers": ([512], 256)}  # hidden sizes, embedding size


def grace_candidates(graph: Graph) -> dict[str, Recipe]:
    """The last is what the paper says of all its own models: batch norm, 10,000 steps, its views for BGRL."""
    row, own = recipe_of("grace", graph.name).with_settings({"encoder.norm": "none"}), load_recipe(graph.name)
    method = {f"method.{name}": getattr(row.method, name) for name in ("name", "temperature")}
    return {
        **{label: row.with_settings(settings) for label, settings in GRACE.items()},
        "as BGRL in the paper": own.with_settings({**method, "method.projector_size": own.encoder.embedding_size}),
    }


def load_mag(name: str, device: torch.device) -> Graph:
    """`mag-like-SCALE, seed SEED`."""
    scale, seed = name.removeprefix("mag-like-").split(", seed ")
    return mag(float(scale), seed=int(seed), device=device)


def mag_candidates(graph: Graph) -> dict[str, Recipe]:
    found, steps = {}, SYNTHETIC_STEPS // 2
    for auxiliary, decay, weight in MAG:
        settings = {"method.target_decay": decay, "method.auxiliary_weight": weight, "train.steps": steps}
        settings |= {"train.warmup_steps": steps // 10, "train.log_every": steps, "train.evaluate_every": steps}
        recipe = mag_recipe(MAG_ROWS[auxiliary], graph.name).with_settings(settings)
        found[f"{auxiliary}, decay {decay}, weight {weight}"] = recipe
    return found


def mag_scores(graph: Graph, models: Models, device: torch.device) -> list[Row]:
    last = [model.metrics_[-1] for model in models]
    return [{"loss": round(one["loss"], 4), "validation": round(one["accuracy"], 4), "synthetic": True} for one in last]


def small_candidates(graph: Graph) -> dict[str, Recipe]:
    base, found = choose_recipe(graph)[0], {}
    for (layers, (hidden, size)), mask, drop in product(SMALL_SIZES.items(), (0.25, 0.5, 0.75), (0.25, 0.5, 0.75)):
        widths = {"encoder.hidden_sizes": hidden, "encoder.embedding_size": size, "method.predictor_hidden_size": size}
        settings = {**views(mask, drop), **widths, "train.steps": 400, "train.warmup_steps": 40}
        found[f"{layers}, mask {mask}, drop {drop}"] = base.with_settings(settings)
    return found


STUDIES = {
    "default": Study(homogeneous_graphs, default_candidates, default_scores, choose_default),
    "best": Study(
        lambda: ("amazon-photo", "amazon-computers", "coauthor-cs", "coauthor-physics"),
        lambda graph: {way: best_recipe(graph.name, way) for way in WAYS},
        best_scores,
        choose_best,
    ),
    "grace": Study(lambda: ("amazon-computers",), grace_candidates, of_embeddings(tuning_scores), choose_by_mean),
    "mag": Study(lambda: ("mag-like-0.01, seed 1",), mag_candidates, mag_scores, choose_by_mean, load=load_mag),
    "small-sets": Study(
        lambda: ("cora", "citeseer", "pubmed", "dblp"),
        small_candidates,
        of_embeddings(partial(validation_scores, num_splits=5)),
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
    if what == "choose":
        STUDIES[study].choose(ledger, graphs=graphs or STUDIES[study].graphs(), write=write)
        return
    with within(minutes):
        train(study, ledger, graphs=graphs, share=share, steps=steps, device=device)


if __name__ == "__main__":
    run(main)
