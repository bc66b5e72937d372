"""The statistics of the MAG-like generator beside MAG240M's published ones.

    python lab/benchmarks/generated.py                # scale 0.01 on a CPU, a minute or two
    python lab/benchmarks/generated.py --scale 1 --device cuda --to lab/benchmarks/results/generated_full.json

The tables of docs/generated.md are its record. The graph is synthetic.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from graphstrap.graph import Graph
from graphstrap.graph.csr import neighbour_means
from graphstrap.io.generate import mag
from graphstrap.io.generate import mag_plan as published
from graphstrap.io.generate.mag import RELATIONS
from harness import RESULTS, Record, now, peak_bytes, run

PUBLISHED = {
    "papers": published.NUM_PAPERS,
    "authors": published.NUM_AUTHORS,
    "institutions": published.NUM_INSTITUTIONS,
    "cites": published.NUM_CITES,
    "writes": published.NUM_WRITES,
    "affiliated_with": published.NUM_AFFILIATED,
    "train": published.NUM_TRAIN,
    "validation": published.NUM_VAL,
    "test": published.NUM_TEST,
    "classes": published.NUM_CLASSES,
}
DEGREES = {  # relation, and type of the nodes that it leads to
    "citations of a paper": ("cites", 0),
    "references of a paper": ("reverse_cites", 0),
    "authors of a paper": ("writes", 0),
    "papers of an author": ("reverse_writes", 1),
    "institutions of an author": ("reverse_affiliated_with", 1),
    "authors of an institution": ("affiliated_with", 2),
}


def degrees(graph: Graph, relation: str, kind: int) -> dict[str, float]:
    """Of the nodes of a type, by one relation: how many, mean, largest, the part that the first per cent has."""
    assert graph.edge_types is not None
    first, last = graph.type_offsets[kind : kind + 2]
    counts = []
    for begin in range(first, last, 1 << 21):
        starts = graph.indptr[begin : min(last, begin + (1 << 21)) + 1]
        types = graph.edge_types[int(starts[0]) : int(starts[-1])]
        ends = torch.cumsum(torch.cat([types.new_zeros(1, dtype=torch.bool), types == RELATIONS.index(relation)]), 0)
        counts.append(ends[starts - starts[0]].diff().int())
    found = torch.cat(counts).sort(descending=True).values
    total, top = int(found.sum()), int(found[: max(1, len(found) // 100)].sum())
    return {
        "edges": total,
        "mean": round(total / len(found), 2),
        "median": int(found[len(found) // 2]),
        "largest": int(found[0]),
        "none": round(float((found == 0).double().mean()), 3),
        "first_per_cent": round(top / total, 3),
    }


def accuracy(graph: Graph) -> dict[str, float]:
    """Of validation labels: ridge regression on own features, on the mean of papers cited, and labels of neighbours."""
    assert graph.labels is not None
    assert graph.splits is not None
    train, val = graph.splits.train[:, 0].nonzero()[:, 0], graph.splits.val[:, 0].nonzero()[:, 0]
    own, incoming = graph.features[0], [(graph.indptr, graph.indices)]
    assert isinstance(own, Tensor)

    def around(node: int) -> Tensor:
        return next(neighbour_means(incoming, own, rows=(node, node + 1), first=0, max_edges=1 << 20))

    labels, alone = [graph.labels[nodes] for nodes in (train, val)], [own[nodes].float() for nodes in (train, val)]
    near = [torch.cat([around(node) for node in nodes.tolist()]) for nodes in (train, val)]
    both = [torch.cat(tables, dim=1) for tables in zip(alone, near, strict=True)]
    found = {"features": ridge(*alone, *labels), "features_and_papers_around": ridge(*both, *labels)}
    return {**found, **vote(graph, train, val)}


def ridge(x: Tensor, x_val: Tensor, labels: Tensor, answer: Tensor) -> float:
    mean, std = x.mean(0), x.std(0)
    x, x_val = ((torch.cat([(v - mean) / std, torch.ones(len(v), 1, device=v.device)], 1)).double() for v in (x, x_val))
    targets = torch.nn.functional.one_hot(labels, published.NUM_CLASSES).double()
    gram = x.T @ x + 0.01 * len(x) * torch.eye(x.shape[1], device=x.device)
    scores = x_val @ torch.linalg.solve(gram, x.T @ targets)
    return round(100 * float((scores.argmax(1) == answer).double().mean()), 2)


def vote(graph: Graph, train: Tensor, val: Tensor) -> dict[str, float]:
    """The label that most train neighbours have, and how often there is one."""
    assert graph.labels is not None
    known = torch.full_like(graph.labels, -1).index_copy(0, train, graph.labels[train])
    hits = reached = 0
    for node in val.tolist():
        around = known[graph.indices[graph.indptr[node] : graph.indptr[node + 1]].long()]
        around = around[around >= 0]
        reached += len(around) > 0
        hits += len(around) > 0 and int(torch.bincount(around).argmax()) == int(graph.labels[node])
    return {
        "labels_around": round(100 * hits / len(val), 2),
        "has_labels_around": round(100 * reached / len(val), 2),
    }


def main(*, scale: float = 0.01, device: str = "cpu", to: Path = RESULTS / "generated.json") -> None:
    place = torch.device(device)
    start = now(place)
    graph = mag(scale, device=place)
    made = {"scale": scale, "device": place.type, "seconds": round(now(place) - start, 1)}
    made |= {"peak_bytes": peak_bytes(place), "num_nodes": graph.num_nodes, "num_edges": graph.num_edges}
    assert graph.splits is not None
    found = {name: degrees(graph, *which) for name, which in DEGREES.items()}
    counts = [
        *(last - first for first, last in pairwise(graph.type_offsets)),
        *(found[name]["edges"] for name, (relation, _) in DEGREES.items() if relation in PUBLISHED),
        *(int(mask.sum()) for mask in (graph.splits.train, graph.splits.val, graph.splits.test)),
        graph.num_classes,
    ]
    facts = {"counts": dict(zip(PUBLISHED, counts, strict=True)), "published": PUBLISHED, "degrees": found}
    Record(to, "generated").add({**made, **facts, "accuracy": accuracy(graph) if scale <= 0.1 else {}})


if __name__ == "__main__":
    run(main)
