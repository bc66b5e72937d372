"""The picture of the embedding space."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from graphstrap.report.picture import _sample, draw_map


def test_a_picture_is_drawn_of_the_largest_classes(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2, -1], [40, 30, 5, 10])
    h = random.normal(size=(85, 6)) + 4 * labels[:, None]
    chosen = _sample(labels, num_classes=2, num_nodes_per_class=20, seed=0)
    assert len(chosen) == 40
    assert set(labels[chosen].tolist()) == {0, 1}
    path = tmp_path / "map.png"
    draw_map(h, labels, ("a", "b <c>", "$d$"), path, title="A map")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [p.name for p in tmp_path.iterdir()] == ["map.png"]
