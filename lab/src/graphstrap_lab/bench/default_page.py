"""docs/default-recipe.md: its table comes from results/defaults.json, the text around it is written by hand.

    <!-- defaults -->            everything up to the next line is replaced
    <!-- end of defaults -->

Whether `default` is above the better of its two baselines is asked by a paired t-test over seeds, which share their
splits: two-sided, at 5 %. What has the value of one seed alone, as raw features of many columns do, is taken to have it
for each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphstrap.io.files import atomic_write
from graphstrap_lab.bench.record import read_record

Row = Mapping[str, Any]
_BLOCK = re.compile(r"(<!-- defaults -->\n).*?(<!-- end of defaults -->)", flags=re.DOTALL)
_LEVEL = 0.05


def update_default_page(page: Path, *, results: Path) -> None:
    text = render_default_page(page.read_text(encoding="utf-8"), read_record(results)["rows"])
    with atomic_write(page) as temporary:
        temporary.write_text(text, encoding="utf-8")


def render_default_page(text: str, rows: Sequence[Row]) -> str:
    """The text with the table between its markers made from the rows."""
    return _BLOCK.sub(lambda match: f"{match[1]}\n{render_defaults(rows)}\n\n{match[2]}", text)


def render_defaults(rows: Sequence[Row]) -> str:
    header = "| graph | raw features | random init | `default` | over the better | verdict |"
    lines = [header, "| --- | --- | --- | --- | --- | --- |", *(_line(row) for row in rows)]
    found = [verdict_of(row)[1] for row in rows]
    counts = [f"{found.count(word)} {word}" for word in ("above both", "within noise of the better", "below")]
    seeds = sorted({len(row["bgrl"]) for row in rows})
    note = (
        f"Mean ± standard deviation over {' or '.join(map(str, seeds))} seeds; {', '.join(counts)}, by a paired t-test "
        f"over seeds at {_LEVEL:.0%}. Random init has the same own features beside it as `default`."
    )
    if any(row["raw"] is not None and np.size(row["raw"]) == 1 for row in rows) and seeds != [1]:
        note += " Raw features without a deviation have many columns and are of the first seed's splits alone."
    return "\n".join([*lines, "", note])


def verdict_of(row: Row) -> tuple[float, str]:
    """How far `default` is over the better of raw features and random init, and what the test says of it."""
    baselines = [values for key in ("raw", "random_init") if (values := _values(row[key])) is not None]
    better = max(baselines, key=lambda values: float(values.mean()))
    differences = np.asarray(row["bgrl"], dtype=float) - better
    mean = float(differences.mean())
    if not _is_significant(differences):
        return mean, "within noise of the better"
    return mean, "above both" if mean > 0 else "below"


def _is_significant(differences: np.ndarray[Any, Any]) -> bool:
    from scipy.stats import ttest_1samp

    if len(differences) < 2:
        return False
    if differences.std() == 0:
        return bool(differences[0] != 0)
    return bool(ttest_1samp(differences, 0.0).pvalue < _LEVEL)


def _line(row: Row) -> str:
    difference, verdict = verdict_of(row)
    cells = [_cell(_values(row[key])) for key in ("raw", "random_init", "bgrl")]
    return f"| {row['graph']} | {' | '.join(cells)} | {difference:+.2f} | {verdict} |"


def _values(found: Any) -> np.ndarray[Any, Any] | None:
    return None if found is None else np.atleast_1d(np.asarray(found, dtype=float))


def _cell(values: np.ndarray[Any, Any] | None) -> str:
    if values is None:
        return "none"
    spread = f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else ""
    return f"{values.mean():.2f}{spread}"
