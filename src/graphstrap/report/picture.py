"""A picture of the embedding space: nodes near each other are alike, colours are labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from graphstrap.io.files import atomic_write

Array = np.ndarray[Any, Any]


def draw_map(
    h: Array,
    labels: Array,
    names: tuple[str, ...],
    path: Path,
    *,
    title: str,
    num_classes_shown: int = 12,
    num_nodes_per_class: int = 120,
    seed: int = 0,
) -> None:
    """Lay out a sample of the largest classes in the plane (t-SNE on cosine distances) and write a PNG."""
    nodes = _sample(labels, num_classes_shown, num_nodes_per_class, seed)
    positions = _layout(h[nodes], seed)
    with atomic_write(path) as temporary:
        _draw(positions, labels[nodes], names, temporary, title)


def _sample(labels: Array, num_classes: int, num_nodes_per_class: int, seed: int) -> Array:
    random = np.random.default_rng(seed)
    sizes = np.bincount(labels[labels >= 0])
    chosen = []
    for label in np.argsort(-sizes, kind="stable")[:num_classes]:
        members = np.flatnonzero(labels == label)
        chosen.append(random.permutation(members)[:num_nodes_per_class])
    return np.concatenate(chosen)


def _layout(h: Array, seed: int) -> Array:
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    unit = h / np.maximum(np.linalg.norm(h, axis=1, keepdims=True), 1e-12)
    reduced = PCA(min(32, *unit.shape), random_state=seed).fit_transform(unit)
    perplexity = min(25.0, (len(h) - 1) / 3)
    positions: Array = TSNE(init="pca", perplexity=perplexity, max_iter=400, random_state=seed).fit_transform(reduced)
    return positions


def _draw(positions: Array, labels: Array, names: tuple[str, ...], path: Path, title: str) -> None:
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 7.2), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    colours = colormaps["tab20"].colors  # type: ignore[attr-defined]
    for index, label in enumerate(dict.fromkeys(labels.tolist())):
        members = labels == label
        axes.scatter(
            positions[members, 0],
            positions[members, 1],
            s=9,
            color=colours[index % 20],
            linewidths=0,
            label=names[label],
        )
        x, y = np.median(positions[members], axis=0)
        axes.text(x, y, names[label], fontsize=9, weight="bold", ha="center", va="center", **_halo())
    axes.set_title(title, fontsize=11, loc="left")
    axes.set_axis_off()
    figure.savefig(path, format="png")


def _halo() -> dict[str, Any]:
    from matplotlib.patheffects import withStroke

    return {"path_effects": [withStroke(linewidth=3, foreground="white")]}
