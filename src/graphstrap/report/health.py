"""Whether a run is healthy, in words: collapse, divergence and under-training, read from what training logged.

    diverged      the loss stopped being a number, or ends above where it began, or lengths explode
    collapsed     spread below 0.05: nodes are all alike; or an effective rank below 2 or 3 % of the columns
    shrinking     the effective rank ends below a third of its highest value after the first quarter of the log
    undertrained  a quarter or more of the loss's whole fall came in the last third of the steps; or hardly any fall
    nothing added an untrained encoder does as well by the labels, or as well as so few test nodes can tell
    unfinished    the run was cut

Pure functions of the records; thresholds are constants below.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Records = Sequence[Mapping[str, Any]]

MIN_SPREAD = 0.05
MIN_RANK, MIN_RANK_SHARE = 2.0, 0.03
SHRUNK_TO = 1 / 3
LATE_FALL_SHARE = 0.25
LEAST_FALL = 0.02  # of the first loss
MAX_GROWTH = 100.0  # of the mean length
LEAST_GAIN = 0.5  # points above an untrained encoder
NUM_ERRORS = 2.0  # standard errors that a gain must exceed to be told from chance

_ORDER = ("bad", "warning")


@dataclass(frozen=True)
class Gain:
    """Points by which embeddings beat an untrained encoder.

        error = sqrt(100^2 p (1 - p) / n + s^2)    p: the mean of both accuracies, n: test nodes, s: over splits

    the standard error of a proportion, and how much the difference varies from one split to the next: which few nodes
    are fitted on decides where labels are few. The error of a difference on the same nodes is about as large as that of
    a proportion where half of the mistakes are made by both.
    """

    points: float
    error: float
    num_tested: int

    @property
    def is_chance(self) -> bool:
        return abs(self.points) <= NUM_ERRORS * self.error


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: `severity` is "bad" or "warning"."""

    kind: str
    severity: str
    text: str
    advice: str


@dataclass(frozen=True)
class Health:
    """`verdict` is "healthy", "warning" or "bad"; `headline` is one sentence."""

    verdict: str
    headline: str
    findings: tuple[Finding, ...]


def check_health(
    records: Records,
    *,
    steps: int,
    embedding_size: int,
    finished: bool,
    gain: Gain | None = None,
) -> Health:
    """Judge a run.

    Args:
        records: the metrics log.
        steps: how many the recipe asks for.
        embedding_size: columns of the encoder's output.
        finished: whether the run has left a model.
        gain: over an untrained encoder, where labels allow to say so.
    """
    found = [
        find_divergence(records),
        find_collapse(records, embedding_size=embedding_size),
        find_undertraining(records) if finished else None,
        find_no_gain(gain),
        None if finished else _unfinished(records, steps),
    ]
    findings = [one for one in found if one is not None]
    findings.sort(key=lambda one: _ORDER.index(one.severity))
    if not findings:
        return Health("healthy", praise(records, embedding_size, gain), ())
    return Health(findings[0].severity, findings[0].text, tuple(findings))


def find_divergence(records: Records) -> Finding | None:
    advice = "Lower train.learning_rate by a factor of three to ten, or set encoder.norm=batch, and fit again."
    for record in records:
        loss = record.get("loss")
        if record.get("diverged") or (loss is not None and not math.isfinite(loss)):
            step = record.get("step", 0)
            return Finding(
                "diverged", "bad", f"The training diverged: the loss was no number at step {step:,}.", advice
            )
    losses = _values(records, "loss")
    if len(losses) >= 3 and _mean(losses[-2:]) > losses[0] + 0.1 * abs(losses[0]):
        text = f"The training diverged: the loss rose from {losses[0]:.3g} to {losses[-1]:.3g}."
        return Finding("diverged", "bad", text, advice)
    lengths = _values(records, "mean_norm")
    if len(lengths) >= 2 and lengths[-1] > MAX_GROWTH * max(lengths[0], 1e-12):
        text = f"The training diverged: embeddings grew {lengths[-1] / max(lengths[0], 1e-12):.0f} times longer."
        return Finding("diverged", "bad", text, advice)
    return None


def find_collapse(records: Records, *, embedding_size: int) -> Finding | None:
    advice = (
        "Check that train.steps is not so large that the target stands still, keep encoder.norm=batch, "
        "mask less (views.feature_mask_probs, views.edge_drop_probs), and try another seed."
    )
    spreads, ranks = _values(records, "spread"), _values(records, "effective_rank")
    if spreads and spreads[-1] < MIN_SPREAD:
        text = f"The embedding collapsed: all nodes have almost the same vector (spread {spreads[-1]:.3f})."
        return Finding("collapsed", "bad", text, advice)
    if ranks and embedding_size > 2 and ranks[-1] < max(MIN_RANK, MIN_RANK_SHARE * embedding_size):
        used = f"{ranks[-1]:.1f} of its {embedding_size} dimensions"
        text = f"The embedding collapsed onto a few directions: it uses {used}."
        return Finding("collapsed", "bad", text, advice)
    later = ranks[len(ranks) // 4 :]  # what random weights had is always lost, and at once
    if len(later) >= 3 and ranks[-1] < SHRUNK_TO * max(later):
        text = f"The embedding is losing dimensions: its effective rank fell from {max(later):.0f} to {ranks[-1]:.0f}."
        return Finding("shrinking", "warning", text, advice)
    return None


def find_undertraining(records: Records) -> Finding | None:
    points = [(r["step"], r["loss"]) for r in records if _is_number(r.get("loss")) and "step" in r]
    if len(points) < 4:
        return None
    first, last, step = points[0][1], _mean([loss for _, loss in points[-2:]]), points[-1][0]
    advice = f"Train longer: --set train.steps={2 * step}."
    fall = first - last
    if fall < LEAST_FALL * abs(first):
        text = f"The training hardly learned: the loss went from {first:.3g} to {last:.3g}."
        return Finding("undertrained", "warning", text, advice + " Or raise train.learning_rate.")
    late = _loss_at(points, step * 2 / 3) - last
    if late > LATE_FALL_SHARE * fall:
        text = f"The training stopped early: {100 * late / fall:.0f} % of the loss's fall came in the last third."
        return Finding("undertrained", "warning", text, advice)
    return None


def find_no_gain(gain: Gain | None) -> Finding | None:
    if gain is None or gain.points >= LEAST_GAIN:
        return None
    text = f"Training added nothing that the labels can see: {_signed(gain.points)} points against an untrained encoder"
    text += f", which {_on(gain)} cannot be told from none." if gain.is_chance else "."
    advice = (
        "The labels may not follow the graph, or an untrained encoder finds them already: compare with raw features "
        "below. Where those are better, let a node's own columns count more: --set encoder.own_weight=4. Otherwise try "
        "a lower train.learning_rate, or another recipe."
    )
    return Finding("nothing added", "warning", text, advice)


def _on(gain: Gain) -> str:
    return f"on {gain.num_tested:,} test nodes"


def _signed(points: float) -> str:
    return f"{points:+.1f}".replace("-", "\u2212")


def _unfinished(records: Records, steps: int) -> Finding:
    done = max((int(record.get("step", 0)) for record in records), default=0)
    text = f"The run is unfinished: {done:,} of {steps:,} steps are logged."
    return Finding("unfinished", "warning", text, "Go on where it was cut with `graphstrap resume`.")


def praise(records: Records, embedding_size: int, gain: Gain | None, *, of: str = "The run is healthy") -> str:
    """One sentence about a run in which nothing is wrong."""
    losses, ranks = _values(records, "loss"), _values(records, "effective_rank")
    parts = []
    if len(losses) >= 2:
        parts.append(f"the loss fell from {losses[0]:.2f} to {losses[-1]:.2f}")
    if ranks:
        parts.append(f"the embedding uses {ranks[-1]:.0f} of its {embedding_size} dimensions")
    if gain is not None:
        parts.append(
            f"{_on(gain)} it cannot be told apart from an untrained encoder ({_signed(gain.points)} points)"
            if gain.is_chance
            else f"it beats an untrained encoder by {gain.points:.1f} points"
        )
    return f"{of}: {_join(parts)}." if parts else "The run is finished; it logged nothing to judge it by."


def _join(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _loss_at(points: Sequence[tuple[float, float]], step: float) -> float:
    """The mean of the two logged losses around a step."""
    after = next(index for index, (at, _) in enumerate(points) if at >= step)
    return _mean([loss for _, loss in points[max(0, after - 1) : after + 1]])


def _values(records: Records, name: str) -> list[float]:
    return [float(record[name]) for record in records if _is_number(record.get(name))]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
