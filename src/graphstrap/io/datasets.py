"""Graphs by name: `load("stdlib")`, `load("amazon-photo")`; `describe()` says which there are.

A published graph is taken from the folder `$GRAPHSTRAP_DATA` (an .npz, or WikiCS and PPI as their authors publish it),
else from the cache folder, else it is downloaded once. Either way it is what PyTorch Geometric's loader gives, so that
numbers compare: undirected, no self-loops, features of Amazon, Coauthor and CitationFull set to 1 where positive. They
are not normalised. Every other .npz file in `$GRAPHSTRAP_DATA` is a dataset too, by its name with - for _, and so is
every store there (`mag240m.store`). `mag-like-0.001` is a synthetic graph of MAG240M's shape at that scale.
"""

from __future__ import annotations

import difflib
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.io import published
from graphstrap.io.callgraph import stdlib_graph, stdlib_version
from graphstrap.io.database import is_called_as_a_table
from graphstrap.io.generate.arxiv import arxiv_like
from graphstrap.io.generate.mag import mag
from graphstrap.io.npz import read_npz
from graphstrap.io.readers import READERS, find_reader, read_graph
from graphstrap.io.store_format import is_store

MAG_LIKE = "mag-like-"


def load(name: str | os.PathLike[str], *, device: str = "cpu") -> Graph:
    """A graph by name, or from a file or folder that a reader knows.

    Args:
        name: the name of a dataset (see `graphstrap datasets`), or the path of an .npz file, a store, a graph in
            parts (which is put together in memory), or a file with an ending that an installed reader knows.
        device: where a synthetic graph is made.

    Returns:
        The graph.

    Example:
        graph = gs.load("stdlib")
    """
    text = os.fspath(name)
    if (reader := find_reader(text)) is not None:
        return read_graph(text, reader=reader)
    known_as = find_name(text)
    if known_as in DATASETS:
        return DATASETS[known_as].load(known_as)
    if known_as.startswith(MAG_LIKE):
        return replace(mag(_scale(known_as), device=device), name=known_as)
    return replace(load((_data_stores() | _other_files())[known_as]), name=known_as)


def find_name(text: str) -> str:
    """The name under which a graph is known, and which it has when it is loaded; refused where there is none."""
    aliases = {as_name(source.stem): known for known, source in DATASETS.items() if isinstance(source, Published)}
    name = aliases.get(as_name(text), as_name(text))
    if name.startswith(MAG_LIKE):
        _scale(name)
        return name
    known = [*DATASETS, *_other_files(), *_data_stores()]
    if name in known:
        return name
    if is_called_as_a_table(text):
        raise InputError(
            f"{text} is a table, not a dataset: on the command line give tables with --edges and --nodes, in Python "
            "read them with gs.read_tables(edges, nodes)"
        )
    if os.path.isfile(text):
        endings = ", ".join(name for name in READERS if name.startswith("."))
        raise InputError(f"there is no reader for {text}: readers are known for {endings}")
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"did you mean {nearest[0]}?" if nearest else "see `graphstrap datasets` for their names"
    raise InputError(f"there is no dataset called {text!r}: {hint}")


def describe() -> list[DatasetInfo]:
    """Every dataset that can be loaded by name: the known ones, then other files in `$GRAPHSTRAP_DATA`."""
    infos = [source.describe(name) for name, source in DATASETS.items()]
    for name, path in _other_files().items():
        try:
            infos.append(_describe_graph(name, read_npz(path), str(path)))
        except InputError:
            infos.append(_describe_graph(name, None, f"{path} (cannot be read)"))
    return infos


def as_name(text: str) -> str:
    return text.lower().replace("_", "-")


def _scale(name: str) -> float:
    """The scale in the name of a synthetic graph."""
    try:
        return float(name.removeprefix(MAG_LIKE))
    except ValueError as error:
        raise InputError(f"{name!r} has no scale: take one such as {MAG_LIKE}0.001") from error


# ---- the folder $GRAPHSTRAP_DATA -------------------------------------------------------------------------------------


def _data_folder() -> Path | None:
    folder = os.environ.get("GRAPHSTRAP_DATA")
    return Path(folder).expanduser() if folder else None


def _data_files(pattern: str) -> dict[str, Path]:
    folder = _data_folder()
    paths = [] if folder is None else sorted(folder.glob(pattern), reverse=True)  # of two names alike the first wins
    return {as_name(path.stem): path for path in paths}


def _data_stores() -> dict[str, Path]:
    return {name: path for name, path in _data_files("*.store").items() if is_store(path)}


def _other_files() -> dict[str, Path]:
    """The files that are no known dataset, in order."""
    known = {as_name(source.stem) for source in DATASETS.values() if isinstance(source, Published)} | set(DATASETS)
    return {name: path for name, path in sorted(_data_files("*.npz").items()) if name not in known}


# ---- where a dataset comes from: made on the spot, or published ------------------------------------------------------


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
        graph = self.build() if self.stem is None else published.read_or_build(self.stem(), self.build)
        return replace(graph, name=name)

    def describe(self, name: str) -> DatasetInfo:
        if self.sizes is not None:
            return DatasetInfo(name, *self.sizes, self.origin, on_disk=True)
        try:
            graph = self.build() if self.stem is None else published.read_kept(self.stem())
        except InputError:  # a Python without the source of its standard library
            return _describe_graph(name, None, self.origin, on_disk=False)
        return _describe_graph(name, graph, self.origin)


@dataclass(frozen=True)
class Published:
    """A graph of the literature: the stem of its file, its published sizes, and where to get it."""

    stem: str
    sizes: tuple[int, int, int, int]  # nodes, edges, features, classes, as published
    origin: str
    download: published.Download
    binarize: bool = False
    raw_file: str = ""  # in a folder named like the stem: the source's own format
    read_raw: Callable[[Path], Graph] = read_npz
    class_of_unlabelled: int = -1

    def load(self, name: str) -> Graph:
        path = self._find()
        if path is not None:
            graph = read_npz(path, binarize=self.binarize) if path.is_file() else self.read_raw(path)
        else:
            try:
                graph = published.read_or_build(name, self.download.run)
            except published.DownloadError as error:
                raise InputError(_not_found(name, self.stem, str(error))) from error
        if self.class_of_unlabelled >= 0 and graph.labels is not None:
            graph = replace(graph, labels=graph.labels.masked_fill(graph.labels < 0, self.class_of_unlabelled))
        return replace(graph, name=name)

    def describe(self, name: str) -> DatasetInfo:
        on_disk = self._find() is not None or published.kept_path(name).is_file()
        return DatasetInfo(name, *self.sizes, self.origin, on_disk)

    def _find(self) -> Path | None:
        """The graph's file in the data folder, or the folder there that holds the source's own files."""
        folder, path = _data_folder(), _data_files("*.npz").get(as_name(self.stem))
        if path is not None or folder is None or not self.raw_file:
            return path
        places = (folder / self.stem, folder / self.stem / "raw")
        return next((place for place in places if (place / self.raw_file).is_file()), None)


def _describe_graph(name: str, graph: Graph | None, origin: str, *, on_disk: bool = True) -> DatasetInfo:
    if graph is None:
        return DatasetInfo(name, None, None, None, None, origin, on_disk)
    sizes = (graph.num_nodes, graph.num_edges // 2, max(graph.num_features), graph.num_classes)
    return DatasetInfo(name, *sizes, origin, on_disk)


def _not_found(name: str, stem: str, why: str) -> str:
    folder = _data_folder()
    if folder is None:
        where, fix = "$GRAPHSTRAP_DATA (which is not set)", f"set it to a folder with {stem}.npz, or connect"
    else:
        where, fix = f"$GRAPHSTRAP_DATA ({folder})", f"put {stem}.npz there or connect"
    return f"{name} is not in {where} and could not be downloaded ({why}): {fix}"


def make_digits() -> Graph:
    """scikit-learn's 8x8 digits, each linked with the 10 nearest by Euclidean distance (of equal ones the first)."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)  # whole numbers: distances are exact, and so the same everywhere
    squares, numbers = (pixels**2).sum(axis=1), np.arange(len(pixels))
    distances = squares[:, None] + squares[None, :] - 2 * pixels @ pixels.T
    np.fill_diagonal(distances, np.inf)
    nearest = np.argpartition(distances * len(pixels) + numbers, 10, axis=1)[:, :10]
    source = np.repeat(numbers, 10)
    names = tuple(str(digit) for digit in range(10))
    return Graph.from_edges(source, nearest.ravel(), x=pixels, labels=labels, class_names=names, name="digits")


_ORIGINS = {
    "Amazon": "Amazon co-purchases",
    "Coauthor": "Microsoft Academic co-authors",
    "Planetoid": "Planetoid citations",
    "CitationFull": "CitationFull citations",
}


def _of_pyg(dataset: str, part: str, sizes: tuple[int, int, int, int], *, class_of_unlabelled: int = -1) -> Published:
    return Published(
        f"{dataset}_{part}".lower(),
        sizes,
        f"{_ORIGINS[dataset]}, through PyG",
        published.through_pyg(dataset, name=part),
        binarize=dataset != "Planetoid",
        class_of_unlabelled=class_of_unlabelled,
    )


DATASETS: dict[str, Builtin | Published] = {
    "stdlib": Builtin(
        stdlib_graph,
        f"calls in the standard library of Python {platform.python_version()}",
        stem=lambda: f"stdlib-{stdlib_version()}",
    ),
    "digits": Builtin(make_digits, "nearest neighbours of scikit-learn's digits"),
    "arxiv-like": Builtin(
        arxiv_like, "generated: planted communities in the shape of ogbn-arxiv", sizes=(169343, 1166243, 128, 40)
    ),
    "wikics": Published(
        "wikics",
        (11701, 216123, 300, 10),
        "Wikipedia links, through PyG",
        published.WIKICS,
        raw_file="data.json",
        read_raw=published.read_wikics,
    ),
    "amazon-computers": _of_pyg("Amazon", "Computers", (13752, 245861, 767, 10)),
    "amazon-photo": _of_pyg("Amazon", "Photo", (7650, 119081, 745, 8)),
    "coauthor-cs": _of_pyg("Coauthor", "CS", (18333, 81894, 6805, 15)),
    "coauthor-physics": _of_pyg("Coauthor", "Physics", (34493, 247962, 8415, 5)),
    "ogbn-arxiv": Published(
        "ogbn_arxiv", (169343, 1166243, 128, 40), "arXiv citations, through OGB", published.through_ogb("ogbn-arxiv")
    ),
    "ppi": Published(
        "ppi",
        (56944, 818716, 50, 121),
        "protein interactions in 24 tissues, through PyG",
        published.PPI,
        raw_file="train_graph.json",
        read_raw=published.read_ppi,
    ),
    "cora": _of_pyg("Planetoid", "Cora", (2708, 5278, 1433, 7)),
    # As PyG does with CiteSeer's 15 nodes that have no label.
    "citeseer": _of_pyg("Planetoid", "CiteSeer", (3327, 4552, 3703, 6), class_of_unlabelled=0),
    "pubmed": _of_pyg("Planetoid", "PubMed", (19717, 44324, 500, 3)),
    "dblp": _of_pyg("CitationFull", "DBLP", (17716, 52867, 1639, 4)),
    "citationfull-cora-ml": _of_pyg("CitationFull", "Cora_ML", (2995, 8158, 2879, 7)),
}
