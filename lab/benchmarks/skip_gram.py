"""DeepWalk's skip-gram in PyTorch beside gensim's, on the same number of walks, on a CPU.

    pip install gensim
    python lab/benchmarks/skip_gram.py    # GRAPHSTRAP_DATA names the folder of graphs

Both get the walks of table 3's row: as many, as long, with the same window, number of negatives and columns, in one
pass. Ours draws walks and learns in one loop; gensim is given walks that were drawn before, and the time for that and
for turning them into lists of words stands apart. Accuracies by protocol `paper`, 5 splits, one seed: gensim has its
own rates, which nobody tuned here. Writes results/skip_gram.json.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import torch

import graphstrap as gs
from graphstrap.graph import Graph
from graphstrap.nn.methods.skip_gram import Roads, draw_walks
from graphstrap.run.recipe import Recipe
from graphstrap_lab.bench.record import write_record
from graphstrap_lab.reproduce.variants import recipe_of

RESULTS = Path(__file__).parent / "results" / "skip_gram.json"


def ours(graph: Graph, recipe: Recipe) -> dict[str, Any]:
    started = time.perf_counter()
    model = gs.Embedder(recipe=recipe, device="cpu").fit(graph, progress=False)
    seconds = time.perf_counter() - started
    accuracy = gs.evaluate(model.embed(graph), graph).mean
    return {"side": "graphstrap", "train_seconds": round(seconds, 2), "accuracy": round(accuracy, 2)}


def of_gensim(graph: Graph, recipe: Recipe) -> dict[str, Any]:
    import gensim

    method, started = recipe.method, time.perf_counter()
    starts = torch.arange(graph.num_nodes).repeat(method.walks_per_node)
    walks = draw_walks(Roads.of(graph), starts, length=method.walk_length, seed=0)
    lists = [[str(node) for node in walk] for walk in walks.tolist()]
    drawn = time.perf_counter()
    model = gensim.models.Word2Vec(
        lists,
        vector_size=recipe.encoder.embedding_size,
        window=method.window_size,
        negative=method.num_negatives or 5,
        sg=1,
        min_count=1,
        epochs=1,
        workers=torch.get_num_threads(),
        seed=0,
    )
    seconds = time.perf_counter() - drawn
    h = torch.zeros(graph.num_nodes, recipe.encoder.embedding_size)
    h[torch.tensor([int(word) for word in model.wv.index_to_key])] = torch.from_numpy(model.wv.vectors.copy())
    return {
        "side": f"gensim {gensim.__version__}",
        "walk_seconds": round(drawn - started, 2),
        "train_seconds": round(seconds, 2),
        "accuracy": round(gs.evaluate(h.numpy(), graph).mean, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", default=["amazon-photo", "amazon-computers"])
    parser.add_argument("--to", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    rows = []
    for name in arguments.graphs:
        graph, recipe = gs.load(name), recipe_of("deepwalk", name)
        method = recipe.method
        shape = {"walks": graph.num_nodes * method.walks_per_node, "walk_length": method.walk_length}
        shape |= {"window": method.window_size, "columns": recipe.encoder.embedding_size}
        for measure in (ours, of_gensim):
            row = {"graph": name, **shape, "threads": torch.get_num_threads(), **measure(graph, recipe)}
            print(row, flush=True)
            rows.append(row)
    command = shlex.join(["python", *sys.argv])
    write_record(arguments.to, bench="skip_gram", command=command, rows=rows, cores=os.cpu_count())


if __name__ == "__main__":
    main()
