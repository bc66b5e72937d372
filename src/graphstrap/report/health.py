"""Whether a run is healthy, in words: collapse, divergence and under-training, read from what training logged.

    diverged      the loss stopped being a number, or ends above where it began, or lengths explode
    collapsed     spread below 0.05: nodes are all alike; or an effective rank below 2 or 3 % of the columns
    shrinking     the effective rank ends below a third of its highest value after the first quarter of the log
    undertrained  a quarter or more of the loss's whole fall came in the last third of the steps; or hardly any fall
    nothing added what needs no training does as well by the labels, or as well as so few test nodes can tell
    unfinished    the run was cut

Pure functions of the records; thresholds are constants below.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

Records = Sequence[Mapping[str, Any]]

MIN_SPREAD = 0.05
MIN_RANK, MIN_RANK_SHARE = 2.0, 0.03
SHRUNK_TO = 1 / 3
LATE_FALL_SHARE = 0.25
LEAST_FALL = 0.02  # of the first loss
MAX_GROWTH = 100.0  # of the mean length
LEAST_GAIN = 0.5  # points above what needs no training
NUM_ERRORS = 2.0  # standard errors that a gain must exceed to be told from chance


@dataclass(frozen=True)
class Gain:
    """Points by which embeddings beat the better of those that need no training, an untrained encoder's and instant's.

        error = sqrt(100^2 p (1 - p) / n + s^2)    p: the mean of both accuracies, n: test nodes, s: over splits

    the standard error of a proportion, and how much the difference varies from one split to the next: which few nodes
    are fitted on decides where labels are few. The error of a difference on the same nodes is about as large as that of
    a proportion where half of the mistakes are made by both.
    """

    points: float
    error: float
    num_tested: int
    over: str = "an untrained encoder"

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
    records: Records, *, steps: int, embedding_size: int, finished: bool, gain: Gain | None = None
) -> Health:
    """Judge a run by its log; `finished`: it has left a model; `gain`: where labels allow to say so."""
    found = [find_divergence(records), find_collapse(records, embedding_size=embedding_size), find_no_gain(gain)]
    if finished:
        found.insert(2, find_undertraining(records))
    else:
        done = max((int(record.get("step", 0)) for record in records), default=0)
        text = f"The run is unfinished: {done:,} of {steps:,} steps are logged."
        found.append(Finding("unfinished", "warning", text, "Go on where it was cut with `graphstrap resume`."))
    findings = [one for one in found if one is not None]
    findings.sort(key=lambda one: one.severity)  # "bad" comes before "warning"
    if not findings:
        return Health("healthy", praise([records], embedding_size, gain), ())
    return Health(findings[0].severity, findings[0].text, tuple(findings))


def find_divergence(records: Records) -> Finding | None:
    text, losses, lengths = "", finite_values(records, "loss"), finite_values(records, "mean_norm")
    cut = next((one for one in records if one.get("diverged") or not math.isfinite(one.get("loss") or 0.0)), None)
    if cut is not None:
        text = f"the loss was no number at step {cut.get('step', 0):,}"
    elif len(losses) >= 3 and mean(losses[-2:]) > losses[0] + 0.1 * abs(losses[0]):
        text = f"the loss rose from {losses[0]:.3g} to {losses[-1]:.3g}"
    elif len(lengths) >= 2 and lengths[-1] > MAX_GROWTH * max(lengths[0], 1e-12):
        text = f"embeddings grew {lengths[-1] / max(lengths[0], 1e-12):.0f} times longer"
    advice = "Lower train.learning_rate by a factor of three to ten, or set encoder.norm=batch, and fit again."
    return Finding("diverged", "bad", f"The training diverged: {text}.", advice) if text else None


def find_collapse(records: Records, *, embedding_size: int) -> Finding | None:
    advice = (
        "Check that train.steps is not so large that the target stands still, keep encoder.norm=batch, "
        "mask less (views.feature_mask_probs, views.edge_drop_probs), and try another seed."
    )
    spreads, ranks = finite_values(records, "spread"), finite_values(records, "effective_rank")
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
    points = [(r["step"], r["loss"]) for r in records if is_finite(r.get("loss")) and "step" in r]
    if len(points) < 4:
        return None
    first, last, step = points[0][1], mean([loss for _, loss in points[-2:]]), points[-1][0]
    advice = f"Train longer: --set train.steps={2 * step}."
    fall = first - last
    if fall < LEAST_FALL * abs(first):
        text = f"The training hardly learned: the loss went from {first:.3g} to {last:.3g}."
        return Finding("undertrained", "warning", text, advice + " Or raise train.learning_rate.")
    after = next(index for index, (at, _) in enumerate(points) if at >= step * 2 / 3)
    late = mean([loss for _, loss in points[max(0, after - 1) : after + 1]]) - last
    if late > LATE_FALL_SHARE * fall:
        text = f"The training stopped early: {100 * late / fall:.0f} % of the loss's fall came in the last third."
        return Finding("undertrained", "warning", text, advice)
    return None


def find_no_gain(gain: Gain | None) -> Finding | None:
    if gain is None or gain.points >= LEAST_GAIN:
        return None
    text = f"Training added nothing that the labels can see: {_signed(gain.points)} points against {gain.over}"
    text += f", which on {gain.num_tested:,} test nodes cannot be told from none." if gain.is_chance else "."
    advice = (
        "The labels may not follow the graph, or they can be found without training: compare with raw features "
        "below. Where those are better, let a node's own columns count more: --set encoder.own_weight=4. Otherwise try "
        "a lower train.learning_rate, or another recipe."
    )
    return Finding("nothing added", "warning", text, advice)


def praise(logs: Sequence[Records], embedding_size: int, gain: Gain | None, *, of: str = "The run is healthy") -> str:
    """One sentence about a run in which nothing is wrong, or about the mean of several."""
    columns = ([finite_values(records, name) for records in logs] for name in ("loss", "effective_rank"))
    losses, ranks = ([mean(values) for values in zip(*column, strict=False)] for column in columns)
    found = []
    if len(losses) >= 2:
        found.append(f"the loss fell from {losses[0]:.2f} to {losses[-1]:.2f}")
    if ranks:
        found.append(f"the embedding uses {ranks[-1]:.0f} of its {embedding_size} dimensions")
    if gain is not None and gain.is_chance:
        points = f"on {gain.num_tested:,} test nodes it cannot be told apart from {gain.over}"
        found.append(f"{points} ({_signed(gain.points)} points)")
    elif gain is not None:
        found.append(f"it beats {gain.over} by {gain.points:.1f} points")
    return f"{of}: {_enumerate(found)}." if found else "The run is finished; it logged nothing to judge it by."


def join_health(found: Mapping[int, Health], praise: str) -> Health:
    """The verdict over several seeds: the worst of theirs; each kind of finding once, with the seeds that have it.
    `praise` if there is none."""
    if len(found) == 1:
        return next(iter(found.values()))
    kinds: dict[str, list[tuple[int, Finding]]] = {}
    for seed, health in found.items():
        for finding in health.findings:
            kinds.setdefault(finding.kind, []).append((seed, finding))
    if not kinds:
        return Health("healthy", praise, ())
    findings = []
    for ones in kinds.values():
        (first, finding), is_one = ones[0], len(ones) == 1
        seeds = f"Seed{'' if is_one else 's'} {_enumerate([str(seed) for seed, _ in ones])}"
        example = "" if is_one else f" (figures of seed {first})"
        findings.append(replace(finding, text=f"{seeds}{example}: {finding.text}"))
    findings.sort(key=lambda one: one.severity)
    num_sick = sum(health.verdict != "healthy" for health in found.values())
    count = f"{num_sick} of {len(found)} seeds" if num_sick < len(found) else f"All {len(found)} seeds"
    headline = f"{count} {'needs' if num_sick == 1 else 'need'} a closer look. {findings[0].text}"
    return Health(findings[0].severity, headline, tuple(findings))


def finite_values(records: Records, name: str) -> list[float]:
    """The logged values of this name that are finite numbers."""
    return [float(record[name]) for record in records if is_finite(record.get(name))]


def is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _signed(points: float) -> str:
    return f"{points:+.1f}".replace("-", "\u2212")


def _enumerate(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
