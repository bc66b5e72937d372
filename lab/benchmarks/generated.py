"""The statistics of the MAG-like generator beside MAG240M's published ones.

    python lab/benchmarks/generated.py                # scale 0.01 on a CPU, a minute or two
    python lab/benchmarks/generated.py --scale 1 --device cuda --to lab/benchmarks/results/generated_full.json

Writes the result as JSON and, at the default place, docs/generated.md. The graph is synthetic.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from graphstrap.graph import Graph
from graphstrap.graph.csr import neighbour_means
from graphstrap.io.generate import mag
from graphstrap.io.generate import mag_plan as published
from graphstrap.io.generate.mag import RELATIONS
from graphstrap_lab.bench.record import read_record
from harness import REPOSITORY, RESULTS, Record, Row, now, peak_bytes, run

COUNTS = {
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


def count(graph: Graph) -> dict[str, int]:
    assert graph.splits is not None
    kinds = [end - begin for begin, end in zip(graph.type_offsets, graph.type_offsets[1:], strict=False)]
    edges = [count_edges(graph, RELATIONS.index(name)) for name in ("cites", "writes", "affiliated_with")]
    parts = [int(mask.sum()) for mask in (graph.splits.train, graph.splits.val, graph.splits.test)]
    return dict(zip(COUNTS, [*kinds, *edges, *parts, graph.num_classes], strict=True))


def count_edges(graph: Graph, relation: int) -> int:
    assert graph.edge_types is not None
    step = 1 << 28
    parts = [graph.edge_types[begin : begin + step] for begin in range(0, graph.num_edges, step)]
    return int(sum((part == relation).sum() for part in parts))


def degrees(graph: Graph, relation: str, kind: int) -> dict[str, float]:
    """Of the nodes of a type, by one relation: mean, largest, the part of all edges that the first per cent has."""
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
    own = graph.features[0]
    assert isinstance(own, Tensor)
    incoming = [(graph.indptr, graph.indices)]

    def around(nodes: Tensor) -> Tensor:
        spans = [(node, node + 1) for node in nodes.tolist()]
        return torch.cat(
            [next(neighbour_means(incoming, own, rows=rows, first=0, max_edges=1 << 20)) for rows in spans]
        )

    labels, answer = graph.labels[train], graph.labels[val]
    alone = [own[nodes].float() for nodes in (train, val)]
    both = [torch.cat([x, around(nodes)], 1) for x, nodes in zip(alone, (train, val), strict=True)]
    return {
        "features": ridge(alone[0], labels, alone[1], answer),
        "features_and_papers_around": ridge(both[0], labels, both[1], answer),
        **vote(graph, train, val),
    }


def ridge(x: Tensor, labels: Tensor, x_val: Tensor, answer: Tensor) -> float:
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


def page(row: Row, command: str) -> str:
    counts = [
        (name, wanted, row["counts"][name] / (1 if name == "classes" else row["scale"]))
        for name, wanted in COUNTS.items()
    ]
    count_lines = [f"| {name} | {wanted:,} | {found:,.0f} | {found / wanted:.3f} |" for name, wanted, found in counts]
    degree_lines = [
        f"| {name} | {d['mean']} | {d['median']} | {d['largest']:,} | {100 * d['none']:.1f} % "
        f"| {100 * d['first_per_cent']:.1f} % |"
        for name, d in row["degrees"].items()
    ]
    a, newline = row["accuracy"], "\n"
    return f"""# The generated MAG-like graph

`graphstrap.io.generate.mag(scale)` makes a **synthetic** graph in the shape of MAG240M, as described in
`src/graphstrap/io/generate/mag.py`. It was fixed before any method was tuned on it. This page is written by

    {command}

| | MAG240M, published | generated at scale {row["scale"]:g}, divided by it | ratio |
| --- | ---: | ---: | ---: |
{newline.join(count_lines)}

At small scales fewer papers share a (year, topic), so that more references meet twice and are merged.

| degrees | mean | median | largest | none | the first per cent of nodes has |
| --- | ---: | ---: | ---: | ---: | ---: |
{newline.join(degree_lines)}

Accuracy on validation labels in %, for orientation: ridge regression on a paper's features {a["features"]}, with the
mean of the papers around it {a["features_and_papers_around"]}; the most frequent train label around it
{a["labels_around"]} ({a["has_labels_around"]} have one). A fifth of the labels is drawn from the whole field, which no
method can know.

{row["seconds"]} s on {row["device"]}; largest memory {row["peak_bytes"] / 1e9:.1f} GB.
"""


def measure(scale: float, device: torch.device) -> Row:
    start = now(device)
    graph = mag(scale, device=device)
    seconds = round(now(device) - start, 1)
    return {
        "scale": scale,
        "device": device.type,
        "seconds": seconds,
        "peak_bytes": peak_bytes(device),
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
        "counts": count(graph),
        "degrees": {
            "citations of a paper": degrees(graph, "cites", 0),
            "references of a paper": degrees(graph, "reverse_cites", 0),
            "authors of a paper": degrees(graph, "writes", 0),
            "papers of an author": degrees(graph, "reverse_writes", 1),
            "institutions of an author": degrees(graph, "reverse_affiliated_with", 1),
            "authors of an institution": degrees(graph, "affiliated_with", 2),
        },
        "accuracy": accuracy(graph) if scale <= 0.1 else {},
    }


def main(*, scale: float = 0.01, device: str = "cpu", to: Path = RESULTS / "generated.json") -> None:
    Record(to, "generated").add(measure(scale, torch.device(device)))
    if to == RESULTS / "generated.json":
        record = read_record(to)
        text = page(record["rows"][0], record["command"])
        (REPOSITORY / "docs" / "generated.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    run(main)
