"""From a graph to parts on disk, with what training on them needs to know of the whole."""

from __future__ import annotations

import os

from graphstrap.graph import Graph
from graphstrap.io.partition import Cut, partition, write_parts
from graphstrap.io.store_format import Report
from graphstrap.nn.methods.semi_supervised import training_labels
from graphstrap.train.sampling.draw import node_times, num_relations_of


def partition_graph(
    graph: Graph,
    to: str | os.PathLike[str],
    num_parts: int,
    *,
    how: str = "auto",
    overwrite: bool = False,
    report: Report = lambda stage, fraction: None,
) -> Cut:
    """Cut a graph, which may be a store larger than memory, and write its parts."""
    part_of, cut = partition(graph, num_parts, how=how, report=report)
    has_one_label = graph.labels is not None and graph.labels.dim() == 1
    write_parts(
        graph,
        part_of,
        to,
        cut=cut.to_dict(),
        num_relations=num_relations_of(graph),
        training_labels=training_labels(graph) if has_one_label else None,
        times=None if graph.node_times is None else node_times(graph),
        overwrite=overwrite,
        report=report,
    )
    return cut
