"""Published graphs: downloaded through PyTorch Geometric and OGB, or read as their authors publish them.

A download goes to a folder of its own that is gone afterwards: no half of one stays behind, and what is unpickled on
the way (PyG's reader of Planetoid does that) was downloaded a moment ago, never a file that lay there. What was
downloaded is kept in the user's cache folder.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.graph.graph import splits_from_masks
from graphstrap.io.arrays import Array, damaged, load_npy
from graphstrap.io.files import read_bytes
from graphstrap.io.npz import read_npz, write_npz
from graphstrap.io.pyg import from_pyg, import_pyg

ANSWER_SECONDS = 10
STALL_SECONDS = 60
_WIKICS_KEYS = ("features", "labels", "links", "train_masks", "val_masks", "test_mask")
_PPI_SPLITS = ("train", "valid", "test")


# ---- the cache -------------------------------------------------------------------------------------------------------
# It is a convenience: a damaged file is built anew, and where nothing can be written nothing is kept.


def cache_folder() -> Path:
    """`$GRAPHSTRAP_CACHE`, or `graphstrap` in `$XDG_CACHE_HOME` or `~/.cache`. It may not exist yet."""
    if own := os.environ.get("GRAPHSTRAP_CACHE"):
        return Path(own).expanduser()
    general = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(general) if general else Path.home() / ".cache") / "graphstrap"
    except RuntimeError:  # a user without a home
        return Path(tempfile.gettempdir()) / "graphstrap"


def kept_path(stem: str) -> Path:
    return cache_folder() / f"{stem}.npz"


def read_kept(stem: str) -> Graph | None:
    """The graph kept under a name, or None where there is none that can be read."""
    try:
        return read_npz(kept_path(stem))
    except (OSError, InputError):
        return None


def read_or_build(stem: str, build: Callable[[], Graph]) -> Graph:
    """The graph kept under a name; else it is built, and kept if that is possible."""
    if (kept := read_kept(stem)) is not None:
        return kept
    graph, path = build(), kept_path(stem)
    with suppress(OSError, InputError):  # a cache that cannot be written is no error
        path.parent.mkdir(parents=True, exist_ok=True)
        write_npz(path, graph)
    return graph


# ---- downloads -------------------------------------------------------------------------------------------------------


class DownloadError(Exception):
    """The reason why there was no download, in a few words."""


@dataclass(frozen=True)
class Download:
    """How to get a graph: the host that must answer, a function that downloads into a folder, a package it needs."""

    host: str
    fetch: Callable[[Path], Graph]
    package: str | None = None

    def run(self) -> Graph:
        if self.package is not None and importlib.util.find_spec(self.package) is None:
            raise DownloadError(f"the package {self.package} is missing: pip install 'graphstrap[{self.package}]'")
        if (problem := connection_problem(self.host)) is not None:
            raise DownloadError(problem)
        try:
            cache = cache_folder()
            with suppress(OSError):
                cache.mkdir(parents=True, exist_ok=True)
            parent = cache if cache.is_dir() and os.access(cache, os.W_OK) else None  # else the system's folder
            with ExitStack() as stack:
                folder = tempfile.TemporaryDirectory(prefix="download-", dir=parent, ignore_cleanup_errors=True)
                stack.callback(socket.setdefaulttimeout, socket.getdefaulttimeout())
                socket.setdefaulttimeout(STALL_SECONDS)  # give up on a connection that stands still
                return self.fetch(Path(stack.enter_context(folder)))
        except Exception as error:  # whatever PyG, OGB and the network come up with
            first_line = (str(error).splitlines() or [""])[0]
            raise DownloadError(f"{type(error).__name__}: {first_line}") from error


def connection_problem(host: str) -> str | None:
    """Why a host cannot be reached, or None. Never takes longer than ANSWER_SECONDS, not even to find its address."""
    problem: list[str | None] = [f"no answer from {host}"]

    def knock() -> None:
        request = urllib.request.Request(f"https://{host}/", method="HEAD")
        try:
            urllib.request.build_opener().open(request, timeout=ANSWER_SECONDS).close()
            problem[0] = None
        except urllib.error.HTTPError as answer:  # an answer all the same
            answer.close()
            problem[0] = None
        except (OSError, ValueError) as error:
            problem[0] = f"no connection to {host}: {getattr(error, 'reason', error)}"

    thread = threading.Thread(target=knock, daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    return problem[0]


def through_pyg(dataset: str, **arguments: Any) -> Download:
    """A bag-of-words graph of torch_geometric.datasets, undirected, its features sparse."""

    def fetch(folder: Path) -> Graph:
        from scipy.sparse import csr_matrix

        graph = from_pyg(getattr(import_pyg("datasets"), dataset)(root=str(folder), **arguments)[0], directed=False)
        x: Any = graph.x
        return graph.with_features(x if isinstance(x, SparseMatrix) else SparseMatrix.from_scipy(csr_matrix(x.numpy())))

    return Download("github.com", fetch)


def through_ogb(name: str) -> Download:
    """A node-property graph of the Open Graph Benchmark, undirected, with its split and the years of its nodes."""

    def fetch(folder: Path) -> Graph:
        from ogb.nodeproppred import NodePropPredDataset

        dataset = NodePropPredDataset(name=name, root=str(folder))
        (graph, labels), split = dataset[0], dataset.get_idx_split()
        num_nodes, years = int(graph["num_nodes"]), graph.get("node_year")
        masks = [np.isin(np.arange(num_nodes), split[part]) for part in ("train", "valid", "test")]
        return Graph.from_edges(
            *graph["edge_index"],
            num_nodes=num_nodes,
            x=graph["node_feat"],
            labels=torch.as_tensor(labels).reshape(-1).long(),
            splits=splits_from_masks(*masks, num_nodes=num_nodes),
            node_times=None if years is None else torch.as_tensor(years).reshape(-1),
        )

    return Download("snap.stanford.edu", fetch, package="ogb")


# ---- WikiCS and PPI as they are published ----------------------------------------------------------------------------


def read_wikics(path: str | os.PathLike[str]) -> Graph:
    """WikiCS: one data.json with features, labels, links and 20 splits, or the folder that holds it.

    Links become undirected; `stopping_masks` are not used. Mernyei and Cangea, Wiki-CS: A Wikipedia-Based Benchmark for
    Graph Neural Networks, 2020.
    """
    path = Path(path) / "data.json" if Path(path).is_dir() else Path(path)
    data = _read_json(path)
    missing = [key for key in _WIKICS_KEYS if not isinstance(data, dict) or key not in data]
    if missing:
        raise InputError(f"{path}: {missing[0]} is missing: WikiCS's data.json has it")
    try:
        return _build_wikics(data)
    except (ValueError, TypeError, OverflowError) as error:
        raise damaged(path, error, expected="a consistent WikiCS graph", fix="download it again") from error


def _build_wikics(data: dict[str, Any]) -> Graph:
    labels = np.array(data["labels"], dtype=np.int64)
    targets = [np.array(row, dtype=np.int64).reshape(-1) for row in data["links"]]
    if len(targets) != len(labels):
        raise ValueError(f"links has {len(targets)} rows for {len(labels)} labels")
    with np.errstate(over="ignore"):
        x = np.array(data["features"], dtype=np.float64).astype(np.float32)
    if not np.isfinite(x).all():
        raise ValueError("a feature is NaN, infinite or too large")
    train, val = (np.array(data[key], dtype=bool).T for key in ("train_masks", "val_masks"))
    return Graph.from_edges(
        np.repeat(np.arange(len(targets)), [len(row) for row in targets]),
        np.concatenate([np.zeros(0, dtype=np.int64), *targets]),
        num_nodes=len(labels),
        x=x,
        labels=labels,
        splits=splits_from_masks(train, val, np.array(data["test_mask"], dtype=bool), num_nodes=len(labels)),
        name="wikics",
    )


def read_ppi(folder: str | os.PathLike[str]) -> Graph:
    """PPI: 24 graphs of protein interactions as one, block by block: undirected, many labels a node, split by graph.

    The folder holds four files for each split, as GraphSAGE, DGL and PyG (in its `raw` folder) publish them:

        {train,valid,test}_graph.json      nodes and links, node-link format; ids are row numbers
        {train,valid,test}_feats.npy       (N, 50)
        {train,valid,test}_labels.npy      (N, 121) of 0 and 1
        {train,valid,test}_graph_id.npy    (N,) the graph that each node belongs to

    Ids are "split-graph/node", such as "train-1/0". Zitnik and Leskovec, Predicting Multicellular Function through
    Multi-layer Tissue Networks, 2017.
    """
    splits = [_read_ppi_split(Path(folder), split) for split in _PPI_SPLITS]
    sizes = [len(features) for features, *_ in splits]
    offsets = np.cumsum([0, *sizes])
    num_nodes, member = int(offsets[-1]), np.repeat(np.arange(3), sizes)
    if len({features.shape[1:] + labels.shape[1:] for features, labels, *_ in splits}) > 1:
        raise InputError(f"{folder}: train, valid and test have different numbers of features or labels")
    features, labels, graph_ids, edges = zip(*splits, strict=True)
    graphs = [
        (f"{split}-{graph}", int(size))  # its nodes are side by side
        for split, ids in zip(_PPI_SPLITS, graph_ids, strict=True)
        for graph, size in zip(*np.unique(ids, return_counts=True), strict=True)
    ]
    return Graph.from_edges(
        *np.concatenate([links + offset for links, offset in zip(edges, offsets[:-1], strict=True)], axis=1),
        num_nodes=num_nodes,
        x=np.concatenate(features),
        labels=np.concatenate(labels),
        splits=splits_from_masks(member == 0, member == 1, member == 2, num_nodes=num_nodes),
        graph_offsets=tuple(accumulate((size for _, size in graphs), initial=0)),
        ids=np.array([f"{graph}/{place}" for graph, size in graphs for place in range(size)], dtype=np.str_),
        name="ppi",
    )


def _read_ppi_split(folder: Path, split: str) -> tuple[Array, Array, Array, Array]:
    """Features (N, F), labels (N, C), graph ids (N,), ascending, and edges (2, E) within graphs."""
    features = _read_numbers(folder / f"{split}_feats.npy", dimensions=2)
    labels = _read_numbers(folder / f"{split}_labels.npy", dimensions=2)
    graph_ids = _read_numbers(folder / f"{split}_graph_id.npy", dimensions=1)
    if not len(features) == len(labels) == len(graph_ids):
        sizes = f"{len(features)}, {len(labels)} and {len(graph_ids)}"
        raise InputError(
            f"{folder}: {split}_feats, {split}_labels and {split}_graph_id have {sizes} rows, expected the same"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        features = features.astype(np.float32)
    if not np.isfinite(features).all() or not np.isin(labels, (0, 1)).all() or graph_ids.dtype.kind not in "iu":
        raise InputError(
            f"{folder}: {split} needs finite features, labels of 0 and 1, whole graph ids: download it again"
        )
    labels, graph_ids = labels.astype(np.uint8), graph_ids.astype(np.int64)
    edges = _read_links(folder / f"{split}_graph.json", len(features))
    edges = edges[:, graph_ids[edges[0]] == graph_ids[edges[1]]]
    order = np.argsort(graph_ids, kind="stable")  # which they are in, in the files that are published
    return features[order], labels[order], graph_ids[order], np.argsort(order)[edges]


def _read_numbers(path: Path, *, dimensions: int) -> Array:
    array = load_npy(path)
    if array.ndim != dimensions or array.dtype.kind not in "buif":
        raise InputError(f"{path} does not hold numbers in {dimensions} dimensions: download it again")
    return array


def _read_links(path: Path, num_nodes: int) -> Array:
    """(2, E) of row numbers."""
    data = _read_json(path)
    try:
        edges = np.array([[link["source"], link["target"]] for link in data["links"]], dtype=np.int64)
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise damaged(path, error, expected="a graph in node-link format", fix="download it again") from error
    if edges.size and not 0 <= edges.min() <= edges.max() < num_nodes:
        raise InputError(f"{path}: links name a node outside 0 to {num_nodes - 1}")
    return edges.reshape(-1, 2).T


def _read_json(path: Path) -> Any:
    content = read_bytes(path)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise damaged(path, error, expected="a readable JSON file", fix="download it again") from error


def _fetch_wikics(folder: Path) -> Graph:
    url = import_pyg("datasets").WikiCS.url
    return read_wikics(import_pyg().download_url(f"{url}/data.json", str(folder)))


def _fetch_ppi(folder: Path) -> Graph:
    path = import_pyg().download_url(import_pyg("datasets").PPI.url, str(folder))
    import_pyg().extract_zip(path, str(folder))
    return read_ppi(folder)


WIKICS = Download("github.com", _fetch_wikics)
PPI = Download("data.dgl.ai", _fetch_ppi)
