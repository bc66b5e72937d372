"""Drawing views: which seed each view of each step gets."""

from __future__ import annotations

from collections.abc import Sequence

from graphstrap.keep import child_seed
from graphstrap.view import View, ViewSpec

# Views draw from their own branch of a run's seed, apart from the initial weights.
_VIEW_BRANCH = 1_000_003


def draw_seeds(num_views: int, *, seed: int, step: int) -> list[int]:
    """The seeds of a training step's views. The same (seed, step) gives the same ones, resumed or not."""
    return [child_seed(seed, _VIEW_BRANCH, step, index) for index in range(num_views)]


def draw_views(specs: Sequence[ViewSpec], *, seed: int, step: int) -> list[View]:
    """One view of each spec for a training step."""
    seeds = draw_seeds(len(specs), seed=seed, step=step)
    return [View(spec, view_seed) for spec, view_seed in zip(specs, seeds, strict=True)]
