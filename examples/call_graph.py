"""The call graph of any installed package: what its functions are like, and how well sub-packages can be told apart.

    python examples/call_graph.py sklearn

The source is read, never imported. Labels are sub-packages; training does not see them.
"""

from __future__ import annotations

import sys

import graphstrap as gs
from graphstrap.api.estimator import random_init
from graphstrap.api.neighbors import find_neighbors
from graphstrap.io.callgraph import call_graph


def main(package: str = "sklearn", *, steps: int = 300, min_functions_per_class: int = 80) -> dict[str, float]:
    graph = call_graph(package, label_depth=2, min_functions_per_class=min_functions_per_class)
    print(f"{package}: {graph.num_nodes} functions, {graph.num_edges // 2} calls, {graph.num_classes} sub-packages")

    model = gs.BGRL(seed=0, settings={"train.steps": steps}).fit(graph)
    h = model.embed(graph)
    node = int(graph.in_degrees.argmax())  # the function with the most callers and callees
    print(f"like {graph.external_ids[node]}:")
    for other, similarity in find_neighbors(h, node, k=5):
        print(f"  {similarity:.3f}  {graph.external_ids[other]}")

    assert graph.x is not None
    ways = {
        "words alone": graph.x,
        "untrained encoder": random_init(graph, model.recipe_, seed=0),
        "BGRL": h,
    }
    scores = {name: gs.evaluate(rows, graph, protocol="paper").mean for name, rows in ways.items()}
    for name, score in scores.items():
        print(f"{name:18} {score:.1f} % of functions in the right sub-package (protocol paper)")
    return scores


if __name__ == "__main__":
    main(*sys.argv[1:2])
