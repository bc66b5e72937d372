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
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from graphstrap.callgraph import stdlib_graph, stdlib_version
from graphstrap.datasets._downloads import ppi, through_ogb, through_pyg, wikics
from graphstrap.datasets._folder import as_name, data_files, data_stores
from graphstrap.datasets.sources import Builtin, DatasetInfo, Published, describe_graph
from graphstrap.errors import InputError
from graphstrap.generate import arxiv_like, mag
from graphstrap.graph import Graph
from graphstrap.io._files import is_called_as_a_table
from graphstrap.io._join_parts import join_parts
from graphstrap.io.npz import read_npz
from graphstrap.io.parts import is_parts
from graphstrap.io.ppi import read_ppi
from graphstrap.io.store import is_store, open_store
from graphstrap.io.wikics import read_wikics


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


AMAZON = partial(Published, origin="Amazon co-purchases, through PyG", binarize=True)
COAUTHOR = partial(Published, origin="Microsoft Academic co-authors, through PyG", binarize=True)
PLANETOID = partial(Published, origin="Planetoid citations, through PyG")
CITATION = partial(Published, origin="CitationFull citations, through PyG", binarize=True)

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
        wikics(),
        raw_file="data.json",
        read_raw=read_wikics,
    ),
    "amazon-computers": AMAZON(
        "amazon_computers", (13752, 245861, 767, 10), download=through_pyg("Amazon", name="Computers")
    ),
    "amazon-photo": AMAZON("amazon_photo", (7650, 119081, 745, 8), download=through_pyg("Amazon", name="Photo")),
    "coauthor-cs": COAUTHOR("coauthor_cs", (18333, 81894, 6805, 15), download=through_pyg("Coauthor", name="CS")),
    "coauthor-physics": COAUTHOR(
        "coauthor_physics", (34493, 247962, 8415, 5), download=through_pyg("Coauthor", name="Physics")
    ),
    "ogbn-arxiv": Published(
        "ogbn_arxiv", (169343, 1166243, 128, 40), "arXiv citations, through OGB", through_ogb("ogbn-arxiv")
    ),
    "ppi": Published(
        "ppi",
        (56944, 818716, 50, 121),
        "protein interactions in 24 tissues, through PyG",
        ppi(),
        raw_file="train_graph.json",
        read_raw=read_ppi,
    ),
    "cora": PLANETOID("planetoid_cora", (2708, 5278, 1433, 7), download=through_pyg("Planetoid", name="Cora")),
    "citeseer": PLANETOID(
        "planetoid_citeseer",
        (3327, 4552, 3703, 6),
        download=through_pyg("Planetoid", name="CiteSeer"),
        class_of_unlabelled=0,  # as PyG does with the 15 nodes that have no label
    ),
    "pubmed": PLANETOID("planetoid_pubmed", (19717, 44324, 500, 3), download=through_pyg("Planetoid", name="PubMed")),
    "dblp": CITATION("citationfull_dblp", (17716, 52867, 1639, 4), download=through_pyg("CitationFull", name="DBLP")),
    "citationfull-cora-ml": CITATION(
        "citationfull_cora_ml", (2995, 8158, 2879, 7), download=through_pyg("CitationFull", name="Cora_ML")
    ),
}


MAG_LIKE = "mag-like-"


def load(name: str | os.PathLike[str], *, device: str = "cpu") -> Graph:
    """A graph by name, from the path of an .npz file, or of a store; one in parts is put together in memory. One that
    is synthetic is made on the device."""
    text = os.fspath(name)
    if is_store(text):
        return open_store(text)
    if is_parts(text):
        return join_parts(text)
    if text.endswith(".npz"):
        return read_npz(text)
    wanted = find_name(text)
    if wanted in DATASETS:
        return DATASETS[wanted].load(wanted)
    if wanted.startswith(MAG_LIKE):
        return replace(mag(_scale(wanted), device=device), name=wanted)
    files = _other_files()
    return replace(read_npz(files[wanted]) if wanted in files else open_store(data_stores()[wanted]), name=wanted)


def find_name(text: str) -> str:
    """The name under which a graph is known, and which it has when it is loaded; refused where there is none."""
    aliases = {as_name(source.stem): known for known, source in DATASETS.items() if isinstance(source, Published)}
    wanted = aliases.get(as_name(text), as_name(text))
    if wanted.startswith(MAG_LIKE):
        _scale(wanted)
        return wanted
    known = [*DATASETS, *_other_files(), *data_stores()]
    if wanted not in known:
        raise InputError(_unknown(text, known))
    return wanted


def describe() -> list[DatasetInfo]:
    """Every dataset that can be loaded by name: the known ones, then other files in `$GRAPHSTRAP_DATA`."""
    known = [source.describe(name) for name, source in DATASETS.items()]
    return known + [_describe_file(name, path) for name, path in _other_files().items()]


def _describe_file(name: str, path: Path) -> DatasetInfo:
    try:
        return describe_graph(name, read_npz(path), str(path))
    except InputError:
        return describe_graph(name, None, f"{path} (cannot be read)")


def _other_files() -> dict[str, Path]:
    """The files that are no known dataset, in order."""
    known = {as_name(source.stem) for source in DATASETS.values() if isinstance(source, Published)}
    return {name: path for name, path in sorted(data_files().items()) if name not in known and name not in DATASETS}


def _scale(name: str) -> float:
    """The scale in the name of a synthetic graph."""
    try:
        return float(name.removeprefix(MAG_LIKE))
    except ValueError as error:
        raise InputError(f"{name!r} has no scale: take one such as {MAG_LIKE}0.001") from error


def _unknown(name: str, known: list[str]) -> str:
    if is_called_as_a_table(name):
        return (
            f"{name} is a table, not a dataset: on the command line give tables with --edges and --nodes, in Python "
            "read them with gs.read_tables(edges, nodes)"
        )
    nearest = difflib.get_close_matches(as_name(name), known, n=1, cutoff=0.4)
    hint = f"did you mean {nearest[0]}?" if nearest else "see `graphstrap datasets` for their names"
    return f"there is no dataset called {name!r}: {hint}"
