"""Nodes in the plane: principal components at once, then t-SNE, which keeps neighbours together.

    p_ij   = 1 / (2 k N) for each of the directions in which i and j are among each other's k nearest
    w_ij   = 1 / (1 + |y_i - y_j|^2),   Z = sum of w_ij over i != j
    y_i   <- y_i - rate * 4 (sum_j a p_ij w_ij (y_i - y_j)  -  1 / Z sum_j w_ij^2 (y_i - y_j)),   with momentum

van der Maaten and Hinton, JMLR 2008; a = 12 in the first part ("early exaggeration"), 1 later. The second sum, over all
pairs, is the gradient of a potential: nodes are spread over a grid, the grid is convolved with 1 / (1 + d^2) and its
gradient by FFT, and each node reads the result where it stands (the idea of Linderman et al., Nature Methods 2019). The
report shows this layout, and `draw_map` makes a PNG of it.

Cost of a step: O(N k + G log G) for G grid points. Measured against openTSNE and UMAP in docs/LOG.md.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphstrap.io.files import atomic_write
from graphstrap.ops.nearest import nearest_nodes

Array = np.ndarray[Any, Any]

SPACING = 0.5  # of the grid; the kernel is 1 wide
EARLY_STEPS, LATE_STEPS = 100, 250
EXAGGERATION = 12.0
NUM_NEIGHBOURS = 15
_MAX_SIDE = 1024  # of the grid, in points; a wider map gets a coarser grid


def principal_components(h: Array) -> Array:
    """(N, 2): the directions in which unit rows differ most, signs fixed by the largest entry."""
    unit = h / np.maximum(np.linalg.norm(h, axis=1, keepdims=True), 1e-12)
    centred = unit - unit.mean(0)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    vectors = vectors[:, ::-1][:, :2]
    vectors = vectors * np.sign(vectors[np.abs(vectors).argmax(0), np.arange(vectors.shape[1])])
    found: Array = centred @ vectors
    if found.shape[1] < 2:
        found = np.pad(found, ((0, 0), (0, 1)))
    return found.astype(np.float32)


def neighbour_layout(
    nearest: Array, start: Array, *, early_steps: int = EARLY_STEPS, late_steps: int = LATE_STEPS
) -> Array:
    """(N, 2) t-SNE of a graph of nearest nodes (N, k), from the positions `start` (N, 2). The same input, the same map.

    `nearest` holds about 15 neighbours; all count alike.
    """
    num_nodes = len(nearest)
    if num_nodes < 4 or nearest.shape[1] == 0:
        return start.astype(np.float32)
    attraction = _attraction(nearest)
    y = torch.from_numpy((start / max(float(start.std()), 1e-12)).astype(np.float32))
    velocity, gains = torch.zeros_like(y), torch.ones_like(y)
    for step in range(early_steps + late_steps):
        early = step < early_steps
        exaggeration = EXAGGERATION if early else 1.0
        rate = num_nodes / exaggeration / 4.0
        gradient = 4.0 * (exaggeration * attraction(y) - _repulsion(y))
        same_way = (gradient > 0) == (velocity > 0)
        gains = torch.where(same_way, gains * 0.8, gains + 0.2).clamp_(min=0.01)
        velocity = ((0.5 if early else 0.8) * velocity - rate * gains * gradient).clamp_(-5.0, 5.0)
        y = y + velocity
        y = y - y.mean(0)
    return y.numpy()


def _attraction(nearest: Array) -> Callable[[Tensor], Tensor]:
    """y -> sum_j p_ij w_ij (y_i - y_j) over the neighbours, in both directions."""
    from scipy.sparse import csr_matrix

    num_nodes, k = nearest.shape
    ends, ones = np.arange(0, num_nodes * k + 1, k), np.ones(num_nodes * k, dtype=np.float32)
    graph = csr_matrix((ones, nearest.reshape(-1), ends), shape=(num_nodes, num_nodes))
    graph = (graph + graph.T).tocsr()
    columns = torch.from_numpy(graph.indices.astype(np.int32))
    offsets = torch.from_numpy(graph.indptr.astype(np.int32))[:-1]
    rows = torch.from_numpy(np.repeat(np.arange(num_nodes, dtype=np.int32), np.diff(graph.indptr)))
    p = torch.from_numpy(graph.data) / (2.0 * k * num_nodes)

    def attract(y: Tensor) -> Tensor:
        here = torch.cat([y, torch.ones(len(y), 1)], dim=1)
        way = _take(y, rows).sub_(_take(y, columns)).square_()
        weights = p / (way[:, 0] + way[:, 1]).add_(1.0)
        sums = torch.nn.functional.embedding_bag(columns, here, offsets, mode="sum", per_sample_weights=weights)
        return y * sums[:, 2:] - sums[:, :2]

    return attract


def _take(y: Tensor, rows: Tensor) -> Tensor:
    """Rows of (N, 2) float32, each taken as one number of eight bytes: four times as fast."""
    return y.view(torch.float64).view(-1).index_select(0, rows).view(torch.float32).view(-1, 2)


def _repulsion(y: Tensor) -> Tensor:
    """1 / Z sum_j w_ij^2 (y_i - y_j), by a grid."""
    low, extent = y.min(0).values, float((y.max(0).values - y.min(0).values).max())
    side = _side(extent)
    spacing = max(SPACING, extent / (side - 2))
    corners, shares = _corners(y, low, spacing, side)
    mass = torch.zeros(side * side).index_add_(0, corners.reshape(-1), shares.reshape(-1))
    fields = _convolve(mass.reshape(side, side), spacing)  # (side * side, 3)
    read = torch.nn.functional.embedding_bag(corners, fields, mode="sum", per_sample_weights=shares)  # (N, 3)
    total = float((read[:, 0] - _self_potential(shares, spacing)).double().sum())
    return read[:, 1:] / max(total, 1e-12)


def _side(extent: float) -> int:
    """Grid points a side: a number whose double transforms fast, growing in steps so that kernels are made rarely."""
    from scipy.fft import next_fast_len

    wanted = min(_MAX_SIDE, max(64, int(1.15 ** np.ceil(np.log(extent / SPACING + 4) / np.log(1.15)))))
    return int(next_fast_len(wanted, real=True))


def _corners(y: Tensor, low: Tensor, spacing: float, side: int) -> tuple[Tensor, Tensor]:
    """The four grid points around each node, and the share of it that each gets. Both (N, 4)."""
    place = (y - low) / spacing
    first = place.floor().clamp_(0, side - 2)
    right = place - first
    left = 1.0 - right
    corner = (first[:, 0] * side + first[:, 1]).long()
    corners = torch.stack([corner, corner + 1, corner + side, corner + side + 1], dim=1)
    shares = torch.stack(
        [left[:, 0] * left[:, 1], left[:, 0] * right[:, 1], right[:, 0] * left[:, 1], right[:, 0] * right[:, 1]], dim=1
    )
    return corners, shares


def _self_potential(shares: Tensor, spacing: float) -> Tensor:
    """What a node, spread over its four corners, reads of itself."""
    a, b, c, d = shares.unbind(1)
    side, diagonal = 1.0 / (1.0 + spacing**2), 1.0 / (1.0 + 2.0 * spacing**2)
    return shares.square().sum(1) + 2.0 * side * (a + d) * (b + c) + 2.0 * diagonal * (a * d + b * c)


def _convolve(mass: Tensor, spacing: float) -> Tensor:
    """Potential and force at every grid point: (side * side, 3). Rows that are empty, or not wanted, are not
    transformed; one field at a time stays in the processor's cache."""
    from scipy import fft

    side, workers = len(mass), torch.get_num_threads()
    rows = fft.rfft(mass.numpy(), n=2 * side, axis=1, workers=workers)
    spectrum = fft.fft(rows, n=2 * side, axis=0, workers=workers)
    fields = np.empty((side * side, 3), dtype=np.float32)
    for number, kernel in enumerate(_kernels(side, round(spacing, 6))):
        wanted = fft.ifft(spectrum * kernel, axis=0, workers=workers, overwrite_x=True)[:side]
        fields[:, number] = fft.irfft(wanted, n=2 * side, axis=1, workers=workers)[:, :side].reshape(-1)
    return torch.from_numpy(fields)


@lru_cache(maxsize=2)
def _kernels(side: int, spacing: float) -> Array:
    """Spectra of w and of w^2 times the two components of the distance."""
    from scipy import fft

    steps = (fft.fftfreq(2 * side, 1 / (2 * side)) * spacing).astype(np.float32)
    x, y = steps[:, None], steps[None, :]
    w = 1.0 / (1.0 + x * x + y * y)
    spectra: Array = fft.rfft2(np.stack([w, w * w * x, w * w * y]))
    return spectra


def neighbours_kept(nearest: Array, positions: Array) -> float:
    """The part of the 10 nearest nodes that are still among the 10 nearest on the map, over a sample of nodes."""
    from scipy.spatial import KDTree

    k = min(10, nearest.shape[1])
    if k == 0:
        return 1.0
    chosen = np.random.default_rng(0).permutation(len(nearest))[:1000]
    _, found = KDTree(positions).query(positions[chosen], k=k + 1)
    is_other = found != chosen[:, None]
    near = nearest[chosen, :k]
    return float(((found[:, :, None] == near[:, None, :]) & is_other[:, :, None]).any(1).mean())


def draw_map(h: Array, labels: Array, names: tuple[str, ...], path: Path, *, title: str) -> None:
    """Lay out a sample of the largest classes and write a PNG: nodes near each other are alike, colours are labels."""
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patheffects import withStroke

    nodes = _sample(labels)
    positions = neighbour_layout(nearest_nodes(h[nodes], k=NUM_NEIGHBOURS).nodes, principal_components(h[nodes]))
    figure = Figure(figsize=(9, 7.2), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    colours = colormaps["tab20"].colors  # type: ignore[attr-defined]
    for index, label in enumerate(dict.fromkeys(labels[nodes].tolist())):
        shown, name = positions[labels[nodes] == label], names[label]
        axes.scatter(shown[:, 0], shown[:, 1], s=9, color=colours[index % 20], linewidths=0, label=name)
        x, y = np.median(shown, axis=0)
        text = axes.text(x, y, name, fontsize=9, weight="bold", ha="center", va="center")
        text.set_path_effects([withStroke(linewidth=3, foreground="white")])  # a halo
    axes.set_title(title, fontsize=11, loc="left")
    axes.set_axis_off()
    with atomic_write(path) as temporary:
        figure.savefig(temporary, format="png")


def _sample(labels: Array, *, num_classes: int = 12, num_nodes_per_class: int = 120) -> Array:
    """Some nodes of each of the largest classes."""
    random, sizes = np.random.default_rng(0), np.bincount(labels[labels >= 0])
    largest = np.argsort(-sizes, kind="stable")[:num_classes]
    return np.concatenate([random.permutation(np.flatnonzero(labels == one))[:num_nodes_per_class] for one in largest])
