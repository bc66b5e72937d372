"""One row against another of ours: seed by seed, on the same splits.

difference = mean over seeds of (accuracy of one - accuracy of the other),      paired two-sided t-test over seeds
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphstrap_lab.reproduce.cells import protocols_of
from graphstrap_lab.reproduce.ledger import Ledger
from graphstrap_lab.reproduce.render import Grid
from graphstrap_lab.reproduce.tables import find_rows
from graphstrap_lab.reproduce.variants import VARIANTS


def compare_rows(ledger: Ledger, one: str, other: str, *, datasets: Sequence[str], quick: bool) -> Grid:
    """A line for each protocol: `+0.12 ± 0.20!`, mean and deviation of the differences, ! where they are significant
    at 1 %."""
    protocols = list(dict.fromkeys(protocol for dataset in datasets for protocol in protocols_of(dataset)))
    lines = [
        [
            protocol,
            *(difference_text(_differences(ledger, one, other, dataset, protocol, quick)) for dataset in datasets),
        ]
        for protocol in protocols
    ]
    titles = VARIANTS[one].title, VARIANTS[other].title
    caption = (
        f"{titles[0]} less {titles[1]}, in points: mean ± standard deviation over seeds; ! by a paired t-test at 1 %"
    )
    return Grid(caption, ["protocol", *datasets], lines)


def paired_p_value(differences: Sequence[float]) -> float | None:
    """Of no difference on average; None where fewer than two seeds say nothing, or all say the same."""
    if len(differences) < 2 or np.std(differences) == 0:
        return None
    from scipy.stats import ttest_1samp

    return float(ttest_1samp(differences, 0.0).pvalue)


def _differences(ledger: Ledger, one: str, other: str, dataset: str, protocol: str, quick: bool) -> list[float]:
    found = []
    for variant in (one, other):
        rows = find_rows(ledger, variant, dataset, quick=quick)
        found.append({row["seed"]: row["accuracy"][protocol] for row in rows if protocol in row.get("accuracy", {})})
    return [found[0][seed] - found[1][seed] for seed in found[0] if seed in found[1]]


def difference_text(differences: Sequence[float]) -> str:
    """`+0.12 ± 0.20!`."""
    if not differences:
        return "not computed"
    spread = f" ± {np.std(differences, ddof=1):.2f}" if len(differences) > 1 else ""
    p_value = paired_p_value(differences)
    return f"{np.mean(differences):+.2f}{spread}{'!' if p_value is not None and p_value < 0.01 else ''}"
