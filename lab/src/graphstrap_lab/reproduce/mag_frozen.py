"""MAG240M without labels in training: an MLP on frozen embeddings, and labels that travel along edges.

    MLP                 one hidden layer of 512 on columns of mean 0 and variance 1, trained on nine tenths of the
                        training labels and stopped by the last tenth
    label propagation   along all relations, its steps and restart chosen on that tenth, then from all training labels

Both are tested on validation papers, whose labels serve for nothing else. The paper's figure does not print its MLP's
settings; these were not tuned.
"""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from graphstrap.api.embed import prepare, sampled_inference
from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.graph.keep import child_seed
from graphstrap.nn.methods.label_propagation import propagate_labels
from graphstrap.nn.methods.supervised import SupervisedSettings, fit_supervised
from graphstrap.nn.model import Model

MLP = SupervisedSettings(hidden_size=512, dropout_prob=0.5, learning_rate=1e-3, weight_decay=1e-5)
QUICK_MLP = replace(MLP, max_steps=50)
NUMBERS_OF_STEPS, RESTARTS = (2, 5, 10), (0.0, 0.1, 0.5)
_MOST_SCORES = 1 << 27  # at once: of labels that travel


def frozen_accuracy(
    model: Model, graph: Graph, *, seed: int, device: torch.device, quick: bool = False
) -> dict[str, Any]:
    """In % of the validation papers."""
    started = time.perf_counter()
    train, stop, val = labelled_parts(graph, seed=seed)
    nodes = torch.cat([train, stop, val])
    h = sampled_inference(model, prepare(model, graph), model.method.embed, device=device, nodes=nodes).to(device)
    deviation, mean = torch.std_mean(h[: len(train)], dim=0)
    x = (h - mean) / deviation.clamp(min=1e-6)
    assert graph.labels is not None
    labels = graph.labels.to(device)[nodes.to(device)]
    table = Graph.from_edges([], [], num_nodes=len(nodes), x=x.cpu(), labels=labels.cpu(), name="embeddings").to(device)
    places = torch.split(torch.arange(len(nodes), device=device), [len(train), len(stop), len(val)])
    settings = QUICK_MLP if quick else MLP
    probe = fit_supervised(table, encoder="mlp", train=places[0], val=places[1], settings=settings, seed=seed)
    found = probe.predict(table)[places[2]].argmax(1)
    accuracy = 100.0 * float((found == labels[places[2]]).double().mean())
    seconds = round(time.perf_counter() - started, 1)
    return {"accuracy": {"validation": round(accuracy, 4)}, "evaluate_seconds": seconds}


def propagation_accuracy(graph: Graph, *, seed: int, device: torch.device) -> dict[str, Any]:
    """In % of the validation papers."""
    started = time.perf_counter()
    train, stop, val = labelled_parts(graph, seed=seed)
    assert graph.labels is not None
    labels = graph.labels.to(device)
    placed = replace(graph, features=(None,) * len(graph.features), labels=None, splits=None).to(device)

    def accuracy(known: Tensor, asked: Tensor, how: tuple[int, float]) -> float:
        found = _classes(placed, labels, known.to(device), asked.to(device), num_steps=how[0], restart=how[1])
        return 100.0 * float((found == labels[asked.to(device)]).double().mean())

    best = max(product(NUMBERS_OF_STEPS, RESTARTS), key=lambda how: accuracy(train, stop, how))
    value = accuracy(torch.cat([train, stop]), val, best)
    seconds = round(time.perf_counter() - started, 1)
    return {"accuracy": {"validation": round(value, 4)}, "chosen": best, "train_seconds": seconds}


def labelled_parts(graph: Graph, *, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Nine tenths of the training nodes, the last tenth, and the validation nodes, of those that have a label."""
    if graph.labels is None or graph.splits is None:
        raise InputError(f"{graph.name} needs labels and a split into train and val")
    has_label = graph.labels >= 0
    train, val = (
        (mask[:, 0] & has_label).nonzero().squeeze(1).cpu() for mask in (graph.splits.train, graph.splits.val)
    )
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(child_seed(seed, 6)))
    last = max(1, len(train) // 10)
    return train[order[last:]], train[order[:last]], val


def _classes(graph: Graph, labels: Tensor, known: Tensor, asked: Tensor, *, num_steps: int, restart: float) -> Tensor:
    """(M,) the classes of the nodes asked about, some classes at a time: each travels by itself. Where none arrives,
    the most frequent one."""
    num_classes, width = int(labels[known].max()) + 1, max(1, _MOST_SCORES // graph.num_nodes)
    parts = []
    for first in range(0, num_classes, width):
        here = (labels - first).clamp(-1, min(width, num_classes - first))
        others = min(width, num_classes - first)  # all classes beyond these count as one more
        scores = propagate_labels(
            graph, torch.where(here < 0, others, here), known, num_steps=num_steps, restart=restart
        )
        parts.append(scores[asked, :others])
    together = torch.cat(parts, dim=1)
    return torch.where(together.sum(1) > 0, together.argmax(1), labels[known].mode().values)
