"""From a graph to parts on disk, and from parts to workers."""

from __future__ import annotations

import os

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.io.partition import Cut, partition, write_parts
from graphstrap.io.parts import is_parts, open_part, read_parts_info
from graphstrap.io.source import Source
from graphstrap.io.store_format import Report
from graphstrap.nn.methods.semi_supervised import training_labels
from graphstrap.train.parallel.workers import Workers
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


def load_for(source: Source, workers: Workers) -> Graph:
    """The graph that a worker is to train on: its own part, where the source is in parts."""
    path = source.dataset
    if path is None or not is_parts(path):
        return source.load()
    if source.fold is not None:
        raise InputError("a fold is of all labels, and no worker has all of a graph in parts: take the whole store")
    num_parts = read_parts_info(path).num_parts
    if num_parts != workers.size:
        raise InputError(
            f"{path} has {num_parts} parts, one for each worker, and there are {workers.size}: give --workers "
            f"{num_parts}, or partition it anew"
        )
    return open_part(path, workers.rank)
