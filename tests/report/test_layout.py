"""The map keeps neighbours together; its fast repulsion is the sum over all pairs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from graphstrap.ops.nearest import nearest_nodes
from graphstrap.report.layout import (
    _repulsion,
    _sample,
    draw_map,
    neighbour_layout,
    neighbours_kept,
    principal_components,
)


def make_points(num_nodes: int = 600, num_groups: int = 12) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    random = np.random.default_rng(0)
    return random.normal(size=(num_groups, 20))[np.arange(num_nodes) % num_groups] + 0.3 * random.normal(
        size=(num_nodes, 20)
    )


@pytest.mark.parametrize("extent", [3.0, 40.0, 3000.0])
def test_repulsion_by_the_grid_is_the_sum_over_all_pairs(extent: float) -> None:
    y = extent * torch.rand(300, 2, generator=torch.Generator().manual_seed(0))
    apart = y[:, None] - y[None, :]
    w = 1 / (1 + apart.square().sum(2))
    direct = (w.square()[:, :, None] * apart).sum(1) / (w.sum() - len(y))
    error = (_repulsion(y) - direct).norm() / direct.norm()
    assert error < 0.25  # the grid blurs near pairs a little


def test_groups_stay_together_and_better_than_by_components() -> None:
    h = make_points()
    nearest = nearest_nodes(h, k=15).nodes
    components = principal_components(h)
    positions = neighbour_layout(nearest, components)
    assert np.isfinite(positions).all()
    assert neighbours_kept(nearest, positions) > 0.4 > neighbours_kept(nearest, components)
    groups = np.arange(len(h)) % 12
    on_map = nearest_nodes_in_plane(positions)
    assert (groups[on_map] == groups[:, None]).mean() > 0.97


def nearest_nodes_in_plane(
    positions: np.ndarray[tuple[int, ...], np.dtype[np.float32]],
) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    apart = np.linalg.norm(positions[:, None] - positions[None], axis=2)
    np.fill_diagonal(apart, np.inf)
    order: np.ndarray[tuple[int, ...], np.dtype[np.int64]] = apart.argsort(1)
    return order[:, :5]


def test_the_same_input_gives_the_same_map() -> None:
    h = make_points(200)
    nearest, start = nearest_nodes(h, k=15).nodes, principal_components(h)
    assert np.array_equal(neighbour_layout(nearest, start), neighbour_layout(nearest, start))


@pytest.mark.parametrize("h", [np.ones((2, 3)), np.zeros((50, 4)), np.ones((50, 1)), np.eye(3)])
def test_degenerate_embeddings_get_a_map_too(h: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> None:
    start = principal_components(h)
    positions = neighbour_layout(nearest_nodes(h, k=15).nodes, start, early_steps=5, late_steps=5)
    assert positions.shape == (len(h), 2)
    assert np.isfinite(positions).all()


def test_components_are_those_of_a_singular_value_decomposition() -> None:
    h = make_points()
    unit = h / np.linalg.norm(h, axis=1, keepdims=True)
    left, singular, _ = np.linalg.svd(unit - unit.mean(0), full_matrices=False)
    expected = left[:, :2] * singular[:2]
    assert np.abs(principal_components(h)) == pytest.approx(np.abs(expected), abs=1e-4)


def test_a_picture_is_drawn_of_the_largest_classes(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2, -1], [40, 30, 5, 10])
    h = random.normal(size=(85, 6)) + 4 * labels[:, None]
    chosen = _sample(labels, num_classes=2, num_nodes_per_class=20)
    assert len(chosen) == 40
    assert set(labels[chosen].tolist()) == {0, 1}
    path = tmp_path / "map.png"
    draw_map(h, labels, ("a", "b <c>", "$d$"), path, title="A map")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [p.name for p in tmp_path.iterdir()] == ["map.png"]
