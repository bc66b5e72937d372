"""Published graphs from where they are published, through the downloads of PyTorch Geometric and OGB.

A download goes to a folder of its own that is gone afterwards: no half of one stays behind, and what is unpickled on
the way (PyG's reader of Planetoid does that) was downloaded a moment ago, never a file that lay there.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.graph.graph import splits_from_masks
from graphstrap.io.npz import read_npz, write_npz
from graphstrap.io.published import read_ppi, read_wikics
from graphstrap.io.pyg import from_pyg, import_pyg

# Graphs kept in the user's cache folder, so that what was built or downloaded once is there the next time.
#
# The folder is `$GRAPHSTRAP_CACHE`, or `graphstrap` in `$XDG_CACHE_HOME`, or `~/.cache/graphstrap`. It is a
# convenience: a damaged file is built anew, and where nothing can be written nothing is kept.


def cache_folder() -> Path:
    """The user's cache folder, which may not exist yet."""
    if own := os.environ.get("GRAPHSTRAP_CACHE"):
        return Path(own).expanduser()
    general = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(general) if general else Path.home() / ".cache") / "graphstrap"
    except RuntimeError:  # a user without a home
        return Path(tempfile.gettempdir()) / "graphstrap"


def kept_path(stem: str) -> Path:
    return cache_folder() / f"{stem}.npz"


def read_or_build(stem: str, build: Callable[[], Graph]) -> Graph:
    """The graph kept under a name; else it is built, and kept if that is possible."""
    if (kept := read_kept(stem)) is not None:
        return kept
    graph = build()
    path = kept_path(stem)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_npz(path, graph)
    except (OSError, InputError):
        return graph  # a cache that cannot be written is no error
    return graph


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder that is gone afterwards, whatever happens: inside the cache folder, or else the system's."""
    parent: Path | None
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        parent = cache_folder() if os.access(cache_folder(), os.W_OK) else None
    except OSError:
        parent = None
    with tempfile.TemporaryDirectory(prefix="download-", dir=parent, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def read_kept(stem: str) -> Graph | None:
    """The graph kept under a name, or None where there is none that can be read."""
    try:
        return read_npz(kept_path(stem))
    except (OSError, InputError):
        return None


ANSWER_SECONDS = 10
STALL_SECONDS = 60


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
            with scratch_folder() as folder, _stall_limit():
                return self.fetch(folder)
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


@contextmanager
def _stall_limit() -> Iterator[None]:
    """Give up on a connection that stands still."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(STALL_SECONDS)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def through_pyg(dataset: str, **arguments: Any) -> Download:
    """A bag-of-words graph of torch_geometric.datasets, undirected, its features sparse."""

    def fetch(folder: Path) -> Graph:
        data = getattr(import_pyg("datasets"), dataset)(root=str(folder), **arguments)[0]
        graph = from_pyg(data, directed=False)
        return graph.with_features(_as_sparse(graph.x))

    return Download("github.com", fetch)


def wikics() -> Download:
    def fetch(folder: Path) -> Graph:
        url = import_pyg("datasets").WikiCS.url
        return read_wikics(import_pyg().download_url(f"{url}/data.json", str(folder)))

    return Download("github.com", fetch)


def ppi() -> Download:
    def fetch(folder: Path) -> Graph:
        path = import_pyg().download_url(import_pyg("datasets").PPI.url, str(folder))
        import_pyg().extract_zip(path, str(folder))
        return read_ppi(folder)

    return Download("data.dgl.ai", fetch)


def through_ogb(name: str) -> Download:
    """A node-property graph of the Open Graph Benchmark, undirected, with its split and the years of its nodes."""

    def fetch(folder: Path) -> Graph:
        from ogb.nodeproppred import NodePropPredDataset

        dataset = NodePropPredDataset(name=name, root=str(folder))
        graph, labels = dataset[0]
        return _from_ogb(graph, labels, dataset.get_idx_split())

    return Download("snap.stanford.edu", fetch, package="ogb")


def _from_ogb(graph: dict[str, Any], labels: Any, split: dict[str, Any]) -> Graph:
    num_nodes = int(graph["num_nodes"])
    masks = {part: torch.zeros(num_nodes, dtype=torch.bool) for part in ("train", "valid", "test")}
    for part, mask in masks.items():
        mask[torch.as_tensor(split[part])] = True
    years = graph.get("node_year")
    return Graph.from_edges(
        graph["edge_index"][0],
        graph["edge_index"][1],
        num_nodes=num_nodes,
        x=graph["node_feat"],
        labels=torch.as_tensor(labels).reshape(-1).long(),
        splits=splits_from_masks(*masks.values(), num_nodes=num_nodes),
        node_times=None if years is None else torch.as_tensor(years).reshape(-1),
    )


def _as_sparse(block: Any) -> SparseMatrix:
    from scipy.sparse import csr_matrix

    return block if isinstance(block, SparseMatrix) else SparseMatrix.from_scipy(csr_matrix(block.numpy()))
