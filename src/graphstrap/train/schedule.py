"""The learning rate, a pure function of the step."""

from __future__ import annotations

import math


def learning_rate_at(step: int, *, base: float, warmup_steps: int, total_steps: int, schedule: str = "cosine") -> float:
    """Linear from 0 to `base` over the warm-up, then along a half cosine down to 0 at `total_steps` (the paper's
    appendix), or constant (most baselines)."""
    if step < warmup_steps:
        return base * step / warmup_steps
    if schedule == "constant":
        return base
    progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
    return base * (1.0 + math.cos(math.pi * min(1.0, progress))) / 2.0
