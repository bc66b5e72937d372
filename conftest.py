"""Graphs that tests share."""

from __future__ import annotations

import importlib.util
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before PyTorch is imported: see graphstrap/__init__.py

import numpy as np
import pytest
import scipy.sparse
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before Triton is imported: its kernels then run on a CPU

from graphstrap.graph import Graph, View, ViewSpec
from graphstrap.nn.methods import Method
from graphstrap.ops._triton import chunks
from graphstrap.run.recipe import ENCODERS, METHODS, Recipe
from graphstrap.train.loop import TrainingJob, train_together
from graphstrap.train.step import draw_seeds

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in a shell's background, where children would ignore it, too
    signal.signal(signal.SIGINT, signal.default_int_handler)
torch.set_num_threads(1 if "PYTEST_XDIST_WORKER" in os.environ else 2)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that start processes come first: they take longest, and none is to be left for the end. Tests marked
    `extras` are skipped without their packages, those marked `gpu` without a CUDA device; where they are what was asked
    for, they fail."""
    items.sort(key=lambda item: item.get_closest_marker("distributed") is None)
    asked_for = config.getoption("markexpr")
    for item in items:
        if asked_for != "gpu" and item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="there is no CUDA device"))
        for marker in item.iter_markers("extras"):
            missing = [name for name in marker.args if importlib.util.find_spec(name) is None]
            if missing and asked_for != "extras":
                item.add_marker(pytest.mark.skip(reason=f"{', '.join(missing)} is not installed: make test-extras"))


@pytest.fixture
def data_folder() -> Path:
    """The folder of real graphs; the test is skipped where there is none."""
    folder = os.environ.get("GRAPHSTRAP_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("GRAPHSTRAP_DATA does not name a folder of real graphs")
    return Path(folder)


@pytest.fixture
def forget_added_encoders() -> Iterator[None]:
    """Encoders and methods that a test adds are gone after it."""
    yield
    for registry in (ENCODERS, METHODS):
        for name in [name for name in registry if not registry.is_own(name)]:
            registry.forget(name)


@pytest.fixture
def poisoned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh memory is full of NaN, or of -1: whatever a kernel forgets to write shows."""
    fresh = torch.empty

    def poison(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor.fill_(-1)

    monkeypatch.setattr(torch, "empty", lambda *a, **k: poison(fresh(*a, **k)))
    monkeypatch.setattr(
        torch.Tensor,
        "new_empty",
        lambda self, *a, **k: poison(fresh(*a, **{"dtype": self.dtype, "device": self.device, **k})),
    )


@pytest.fixture
def narrow_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 16 entries, so that small graphs have rows of several."""
    monkeypatch.setattr(chunks, "CHUNK", 16)


@pytest.fixture
def communities() -> Graph:
    """120 nodes in three communities, sparse bag-of-words features that hint at them, labels that name them."""
    return make_communities(num_nodes=120, num_classes=3, seed=0)


def draw_views(specs: Sequence[ViewSpec], *, seed: int, step: int) -> list[View]:
    """One view of each spec for a training step."""
    seeds = draw_seeds(len(specs), seed=seed, step=step)
    return [View(spec, view_seed) for spec, view_seed in zip(specs, seeds, strict=True)]


def train(method: Method, graph: Graph, *, recipe: Recipe, seed: int, **job: Any) -> list[dict[str, Any]]:
    """Train one method; what it logged."""
    return train_together([TrainingJob(method, seed, **job)], graph, recipe=recipe)[0]


def make_communities(*, num_nodes: int, num_classes: int, seed: int) -> Graph:
    random = np.random.default_rng(seed)
    labels = np.arange(num_nodes) % num_classes
    same = labels[:, None] == labels[None, :]
    linked = np.triu(random.random((num_nodes, num_nodes)) < np.where(same, 0.12, 0.01), 1)
    source, target = np.nonzero(linked)
    words = random.random((num_nodes, 10 * num_classes)) < 0.05
    words |= (random.random(words.shape) < 0.15) & (np.arange(words.shape[1])[None, :] // 10 == labels[:, None])
    x = scipy.sparse.csr_matrix(words.astype(np.float32))
    return Graph.from_edges(source, target, num_nodes=num_nodes, x=x, labels=labels, name="communities")


def make_random_graph(
    *, num_nodes: int, num_edges: int, seed: int, num_features: int = 12, weighted: bool = False
) -> Graph:
    """Directed, with hubs, isolated nodes and sparse features."""
    generator = torch.Generator().manual_seed(seed)
    active = max(1, num_nodes * 3 // 4)  # the rest stay isolated
    source = torch.randint(0, active, (num_edges,), generator=generator)
    skew = torch.rand(num_edges, generator=generator) ** 3
    target = (skew * active).long()
    x = torch.rand(num_nodes, num_features, generator=generator)
    x = x * (torch.rand(x.shape, generator=generator) < 0.2)
    return Graph.from_edges(
        source,
        target,
        num_nodes=num_nodes,
        directed=True,
        x=scipy.sparse.csr_matrix(x.numpy()),
        edge_weights=torch.rand(num_edges, generator=generator) if weighted else None,
    )
