"""docs/performance.md and docs/encoders.md: text by hand, numbers between their markers from result files.

    <!-- results: step -->          everything up to the next line is replaced
    <!-- end of results -->

A result file is what `graphstrap bench ... --to FILE` wrote. Plots go to a folder beside the page.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from graphstrap.io.files import atomic_write
from graphstrap_lab.bench.cells import CELLS, Cells, Record
from graphstrap_lab.bench.plots import PLOTS

_BLOCK = re.compile(r"(<!-- results: ([\w-]+) -->\n).*?(<!-- end of results -->)", flags=re.DOTALL)
_NOTHING_YET = "*Not measured yet.*"


def update_page(page: Path, *, results: Path, images: Path) -> None:
    """Draw the plots and write the page anew."""
    records = read_results(results)
    images.mkdir(exist_ok=True)
    for name, record in records.items():
        if record["bench"] in PLOTS:
            PLOTS[record["bench"]](record, images / f"{name}.png")
    text = render_page(page.read_text(encoding="utf-8"), records, images=images.name)
    with atomic_write(page) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_results(folder: Path) -> dict[str, Record]:
    """By the stem of their file; files of other scripts are left out."""
    found = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    return {name: record for name, record in found.items() if record.get("bench") in CELLS}


def render_page(text: str, records: dict[str, Record], *, images: str) -> str:
    """The text with every block between markers made from the records of that kind."""

    def fill(match: re.Match[str]) -> str:
        begin, bench, end = match.groups()
        chosen = {name: record for name, record in records.items() if record["bench"] == bench}
        sections = [_section(name, record, images) for name, record in chosen.items()] or [_NOTHING_YET]
        return f"{begin}\n" + "\n\n".join(sections) + f"\n\n{end}"

    return _BLOCK.sub(fill, text)


def _section(name: str, record: Record, images: str) -> str:
    """Hardware and command, then the table, then the plot."""
    parts = [f"**{_machine(record)}.** `{record['command']}`"]
    cells = CELLS[record["bench"]](record)
    if record["bench"] == "ops":
        parts += [_markdown(_only_whole_steps(cells)), "<details><summary>Every part</summary>", _markdown(cells)]
        parts += ["</details>"]
    else:
        parts.append(_markdown(cells))
    if cells.note:
        parts.append(cells.note)
    if record["bench"] in PLOTS:
        parts.append(f"![{record['bench']}]({images}/{name}.png)")
    return "\n\n".join(parts)


def _machine(record: Record) -> str:
    environment: dict[str, Any] = record["environment"]
    on_gpu = record.get("options", {}).get("device") == "cuda"
    on_gpu = on_gpu or any(row.get("device") == "cuda" or row.get("peak_gpu_bytes") for row in record["rows"])
    place = environment["gpu"] if on_gpu else f"{environment['processor']}, {environment['num_threads']} threads"
    git = record.get("git") or {}
    source = f", source {git['sha'][:7]}{' with changes' if git['changed'] else ''}" if git else ""
    return f"{place}, PyTorch {environment['torch']}{source}"


def _only_whole_steps(cells: Cells) -> Cells:
    rows = [row for row in cells.rows if row[1] == "whole step"]
    return Cells(cells.headers, rows, num_texts=cells.num_texts)


def _markdown(cells: Cells) -> str:
    rule = ["---" if index < cells.num_texts else "---:" for index in range(len(cells.headers))]
    return "\n".join("| " + " | ".join(line) + " |" for line in [cells.headers, rule, *cells.rows])
