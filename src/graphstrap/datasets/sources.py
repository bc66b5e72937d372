"""Where a dataset comes from: made on the spot, or published."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from graphstrap.datasets._cache import kept_path, read_kept, read_or_build
from graphstrap.datasets._downloads import Download, DownloadError
from graphstrap.datasets._folder import data_folder, find_file
from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.io.npz import read_npz


@dataclass(frozen=True)
class DatasetInfo:
    """A line of the list of datasets. Edges are undirected; a size that takes building the graph to know is None."""

    name: str
    nodes: int | None
    edges: int | None
    features: int | None
    classes: int | None
    origin: str
    on_disk: bool


@dataclass(frozen=True)
class Builtin:
    """A graph that is made on the spot."""

    build: Callable[[], Graph]
    origin: str
    stem: Callable[[], str] | None = None  # under which it is kept in the cache, if building takes long
    sizes: tuple[int, int, int, int] | None = None  # nodes, edges, features, classes, where they are known beforehand

    def load(self, name: str) -> Graph:
        graph = self.build() if self.stem is None else read_or_build(self.stem(), self.build)
        return replace(graph, name=name)

    def describe(self, name: str) -> DatasetInfo:
        if self.sizes is not None:
            return DatasetInfo(name, *self.sizes, self.origin, on_disk=True)
        try:
            graph = self.build() if self.stem is None else read_kept(self.stem())
        except InputError:  # a Python without the source of its standard library
            return DatasetInfo(name, None, None, None, None, self.origin, on_disk=False)
        return describe_graph(name, graph, self.origin)


@dataclass(frozen=True)
class Published:
    """A graph of the literature: the stem of its file, its published sizes, and where to get it."""

    stem: str
    sizes: tuple[int, int, int, int]  # nodes, edges, features, classes, as published
    origin: str
    download: Download
    binarize: bool = False
    raw_file: str = ""  # in a folder named like the stem: the source's own format
    read_raw: Callable[[Path], Graph] | None = None
    class_of_unlabelled: int = -1

    def load(self, name: str) -> Graph:
        graph = self._read_local()
        if graph is None:
            try:
                graph = read_or_build(name, self.download.run)
            except DownloadError as error:
                raise InputError(_not_found(name, self.stem, str(error))) from error
        return replace(self._completed(graph), name=name)

    def describe(self, name: str) -> DatasetInfo:
        on_disk = find_file(self.stem) is not None or self._raw_folder() is not None or kept_path(name).is_file()
        return DatasetInfo(name, *self.sizes, self.origin, on_disk)

    def _read_local(self) -> Graph | None:
        path, folder = find_file(self.stem), self._raw_folder()
        if path is not None:
            return read_npz(path, binarize=self.binarize)
        return self.read_raw(folder) if folder is not None and self.read_raw is not None else None

    def _raw_folder(self) -> Path | None:
        folder = data_folder()
        if folder is None or not self.raw_file:
            return None
        places = (folder / self.stem, folder / self.stem / "raw")
        return next((place for place in places if (place / self.raw_file).is_file()), None)

    def _completed(self, graph: Graph) -> Graph:
        if self.class_of_unlabelled < 0 or graph.labels is None:
            return graph
        return replace(graph, labels=graph.labels.masked_fill(graph.labels < 0, self.class_of_unlabelled))


def describe_graph(name: str, graph: Graph | None, origin: str) -> DatasetInfo:
    if graph is None:
        return DatasetInfo(name, None, None, None, None, origin, on_disk=True)
    num_features = max(graph.num_features)
    return DatasetInfo(
        name, graph.num_nodes, graph.num_edges // 2, num_features, graph.num_classes, origin, on_disk=True
    )


def _not_found(name: str, stem: str, why: str) -> str:
    folder = data_folder()
    if folder is None:
        where, fix = "$GRAPHSTRAP_DATA (which is not set)", f"set it to a folder with {stem}.npz, or connect"
    else:
        where, fix = f"$GRAPHSTRAP_DATA ({folder})", f"put {stem}.npz there or connect"
    return f"{name} is not in {where} and could not be downloaded ({why}): {fix}"
