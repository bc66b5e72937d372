"""Numbers as text: means, tables at the terminal, in Markdown and as CSV; and what every picture starts from."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from graphstrap.io.files import atomic_write

if TYPE_CHECKING:
    from rich.console import Console

Values = Sequence[float] | NDArray[Any]
OURS, THEIRS = "#2a6f97", "#c9ada7"  # the colours of what is ours, and of what it is compared with


@dataclass(frozen=True)
class Grid:
    """A table of text.

    Args:
        header: the names of the columns.
        lines: a text for each column.
        caption: stands above it.
        note: stands below it.
        num_texts: leading columns that hold words, the others numbers; None where all are words.
    """

    header: Sequence[str]
    lines: Sequence[Sequence[str]]
    caption: str = ""
    note: str = ""
    num_texts: int | None = None

    def to_markdown(self) -> str:
        """The table alone."""
        rule = ["---" if self._is_text(column) else "---:" for column in range(len(self.header))]
        return "\n".join("| " + " | ".join(line) + " |" for line in [self.header, rule, *self.lines])

    def print(self, *, width: int = 200) -> None:
        """On stdout with its caption and its note."""
        from rich.table import Table

        view = Table()
        for column, title in enumerate(self.header):
            view.add_column(title, justify="left" if self._is_text(column) else "right")
        for line in self.lines:
            view.add_row(*line)
        console = make_console(width)
        if self.caption:
            console.print(self.caption, markup=False, highlight=False)  # as the table's title it would be cut
        console.print(view)
        if self.note:
            console.print(self.note, markup=False, highlight=False)

    def _is_text(self, column: int) -> bool:
        return self.num_texts is None or column < self.num_texts


def make_console(width: int = 200) -> Console:
    """Of stdout, so wide where that is no terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else width)


def mean_text(values: Values, *, digits: int = 2, sign: str = "") -> str:
    """`93.44 ± 0.09`: mean and standard deviation of a sample; a single value has none."""
    spread = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):{sign}.{digits}f}{spread}"


def paired_p_value(differences: Values) -> float | None:
    """Of no difference on average, by a two-sided t-test; None where fewer than two say nothing, or all say the
    same."""
    if len(differences) < 2 or np.std(differences) == 0:
        return None
    from scipy.stats import ttest_1samp

    return float(ttest_1samp(differences, 0.0).pvalue)


def difference_text(differences: Sequence[float]) -> str:
    """`+0.12 ± 0.20!`: ! where a paired t-test at 1 % calls it significant; "" where there is nothing."""
    if not differences:
        return ""
    p_value = paired_p_value(differences)
    return mean_text(differences, sign="+") + "!" * (p_value is not None and p_value < 0.01)


def size_text(num_bytes: float) -> str:
    """`1.58 GiB`, or `681 MiB`."""
    return f"{num_bytes / 2**30:.2f} GiB" if num_bytes >= 2**30 else f"{num_bytes / 2**20:.0f} MiB"


def to_csv(header: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """The table as CSV."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(lines)
    return buffer.getvalue()


def make_panels(num_rows: int, num_columns: int, *, width: float, height: float) -> tuple[Any, list[list[Any]]]:
    """A figure of so many inches, and its panels row by row."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    grid = [list(row) for row in figure.subplots(num_rows, num_columns, squeeze=False)]
    for axes in (axes for row in grid for axes in row):
        axes.spines[["top", "right"]].set_visible(False)
    return figure, grid


def save_figure(figure: Any, path: Path) -> None:
    """A PNG or an SVG, by the name of the file; the same numbers give the same bytes."""
    import matplotlib as mpl

    kind = path.suffix.removeprefix(".")
    metadata = {"Software": None} if kind == "png" else {"Date": None}
    with mpl.rc_context({"svg.hashsalt": "graphstrap"}), atomic_write(path) as temporary:
        figure.savefig(temporary, format=kind, metadata=metadata)
