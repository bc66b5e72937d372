"""Drawing views: which seed each view of each step gets."""

from __future__ import annotations

from collections.abc import Sequence

from graphstrap.keep import child_seed
from graphstrap.view import View, ViewSpec

# Views draw from their own branch of a run's seed, apart from the initial weights.
_VIEW_BRANCH = 1_000_003


def draw_views(specs: Sequence[ViewSpec], *, seed: int, step: int) -> list[View]:
    """One view of each spec for a training step. The same (seed, step) gives the same views, resumed or not."""
    return [View(spec, child_seed(seed, _VIEW_BRANCH, step, index)) for index, spec in enumerate(specs)]
