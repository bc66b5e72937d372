"""An encoder of PyTorch Geometric, trained by BGRL.

    python examples/pyg_encoder.py [dataset]

Any module that is called as `module(x, edge_index)` will do. It gets the edges and features that a view keeps, as
arrays; Graphstrap's own encoders never make those, which is why they are faster.
"""

from __future__ import annotations

import sys
import time

from torch import nn

import graphstrap as gs
from graphstrap.api.estimator import random_init
from graphstrap.io.pyg import import_pyg


def make_sage(num_features: int, embedding_size: int) -> nn.Module:
    pyg = import_pyg("nn")  # `import torch_geometric.nn`, without its warnings
    sage: nn.Module = pyg.GraphSAGE(num_features, 256, num_layers=2, out_channels=embedding_size, norm="batch_norm")
    return sage


def main(dataset: str = "digits", *, steps: int = 300) -> dict[str, float]:
    gs.add_encoder("sage", make_sage)
    graph = gs.load(dataset)
    assert graph.x is not None
    settings = {"train.steps": steps, "encoder.own_features": 0}
    scores = {"raw features": gs.evaluate(graph.x, graph).mean}
    for encoder in ("sage", "gcn"):
        start = time.perf_counter()
        model = gs.BGRL(seed=0, settings={**settings, "encoder.name": encoder}).fit(graph)
        print(f"{encoder}: {time.perf_counter() - start:.1f} s for {steps} steps")
        scores[f"{encoder}, untrained"] = gs.evaluate(random_init(graph, model.recipe_, seed=0), graph).mean
        scores[encoder] = gs.evaluate(model.embed(graph), graph).mean
    for name, score in scores.items():
        print(f"{name:16} accuracy {score:.1f} % (protocol paper)")
    return scores


if __name__ == "__main__":
    main(*sys.argv[1:2])
