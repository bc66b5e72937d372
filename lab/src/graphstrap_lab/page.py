"""Pages of docs/: text by hand, and between markers what is made from the files of one folder of results.

    <!-- results: NAME -->          everything up to the next line is replaced
    <!-- end of results -->

NAME is a table of `graphstrap reproduce`, made from `ledger.jsonl`, or what a record of that folder measured, as
`graphstrap bench step --to FILE` or a script writes it: a section for each record. Plots go to a folder beside the
page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from graphstrap.io.files import atomic_write
from graphstrap_lab.bench.show import GRIDS, PLOTS, Record
from graphstrap_lab.grid import Grid, mean_text
from graphstrap_lab.reproduce.accuracies import find_rows, make_cell
from graphstrap_lab.reproduce.blind import UNTOUCHED
from graphstrap_lab.reproduce.ledger import KEY, Ledger, values_of
from graphstrap_lab.reproduce.render import Asked, body_to_markdown
from graphstrap_lab.reproduce.reports import make_report
from graphstrap_lab.reproduce.tables import TABLES, Table, copied_note
from graphstrap_lab.reproduce.variants import VARIANTS, changed_settings, recipe_of, settings_id

MEMORY_LIMIT = 16 * 10**9  # the paper's V100
_BLOCK = re.compile(r"(<!-- results: ([\w-]+) -->\n).*?(<!-- end of results -->)", flags=re.DOTALL)


@dataclass(frozen=True)
class Block:
    """What stands between two markers, and the pictures in it by the names of their files."""

    text: str
    pictures: Mapping[str, Callable[[Path], None]] = field(default_factory=dict)


def update_page(page: Path, *, results: Path, images: Path) -> None:
    """Draw the plots and write the page anew."""
    text = page.read_text(encoding="utf-8")
    blocks = make_blocks(text, results=results, images=images.name)
    images.mkdir(exist_ok=True)
    for block in blocks.values():
        for name, draw in block.pictures.items():
            draw(images / name)
    with atomic_write(page) as temporary:
        temporary.write_text(render_page(text, blocks), encoding="utf-8")


def blocks_of(text: str) -> list[str]:
    """What a page has room for."""
    return [match[2] for match in _BLOCK.finditer(text)]


def render_page(text: str, blocks: Mapping[str, Block]) -> str:
    """The text with everything between markers replaced."""
    return _BLOCK.sub(lambda match: f"{match[1]}\n{blocks[match[2]].text}\n\n{match[3]}", text)


def make_blocks(text: str, *, results: Path, images: str) -> dict[str, Block]:
    """Those that a page has room for, from a folder of results."""
    ledger = Ledger(results / "ledger.jsonl")
    records = read_records(results) | measured_in(ledger)
    names = blocks_of(text)
    return {
        name: table_block(TABLES[name], ledger, images=images)
        if name in TABLES
        else _measured_block({stem: one for stem, one in records.items() if one["bench"] == name}, images)
        for name in names
    }


def read_records(folder: Path) -> dict[str, Record]:
    """By the stem of their file; files of other scripts are left out."""
    found = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    return {name: record for name, record in found.items() if record.get("bench") in GRIDS}


def measured_in(ledger: Ledger) -> dict[str, Record]:
    """Cells that `graphstrap bench table` has measured, the newest of each, as a record for each command."""
    found: dict[str, Record] = {}
    newest = {tuple(row[name] for name in KEY): row for row in ledger.rows if "measured_by" in row}
    for row in newest.values():
        command, environment = row["measured_by"], {"gpu": row["hardware"], "processor": row["hardware"]}
        about = {"bench": "table", "command": command, "environment": environment | row["versions"], "git": row["git"]}
        found.setdefault(command, {**about, "rows": []})["rows"].append(row)
    return found


def _measured_block(records: Mapping[str, Record], images: str) -> Block:
    """Hardware and command, then the table, then the plot, of each record."""
    parts: list[str] = []
    pictures: dict[str, Callable[[Path], None]] = {}
    for name, record in records.items():
        bench, grid = record["bench"], GRIDS[record["bench"]](record)
        if bench != "defaults":  # several commands, over which its page says more
            parts.append(f"**{_machine(record)}.** `{record['command']}`")
        if bench == "ops":
            whole = Grid(grid.header, [line for line in grid.lines if line[1] == "whole step"], num_texts=2)
            parts += [whole.to_markdown(), "<details><summary>Every part</summary>", grid.to_markdown(), "</details>"]
        else:
            parts.append(grid.to_markdown())
        if grid.note:
            parts.append(grid.note)
        if bench in PLOTS:
            parts.append(f"![{bench}]({images}/{name}.png)")
            pictures[f"{name}.png"] = partial(PLOTS[bench], record)
    return Block("\n\n".join(parts) or "*Not measured yet.*", pictures)


def _machine(record: Record) -> str:
    environment: dict[str, Any] = record["environment"]
    on_gpu = record.get("options", {}).get("device") == "cuda"
    on_gpu = on_gpu or any(row.get("device") == "cuda" for row in record["rows"])
    threads = f", {environment['num_threads']} threads" if "num_threads" in environment else ""
    place = environment["gpu"] if on_gpu else f"{environment['processor']}{threads}"
    git = record.get("git") or {}
    source = f", source {git['sha'][:7]}{' with changes' if git['changed'] else ''}" if git else ""
    return f"{place}, PyTorch {environment['torch']}{source}"


def table_block(table: Table, ledger: Ledger, *, images: str) -> Block:
    """The report, sentences about rows that the paper took from elsewhere, and the recipes. Table 1 as measured on a
    GPU, if it was, and under the limit of the paper's; the others under no limit."""
    on_cuda = any(str(row["settings"]).startswith("memory-cuda-") for row in ledger.rows)
    limit = MEMORY_LIMIT if table.kind == "memory" else None
    report = make_report(table, ledger, device="cuda" if on_cuda else "cpu", memory_limit=limit)
    pictures = {} if report.draw is None else {f"results-{table.name}.png": report.draw}
    parts = [body_to_markdown(report, picture=next((f"{images}/{name}" for name in pictures), ""))]
    if copied := list(_copied_lines(table, ledger)):
        intro = "Rows that the paper took from other papers, with our differences from it under `reference`:"
        parts += [intro, "\n".join(copied)]
    if table.kind == "accuracy":
        if tuned := list(_tuned_lines(table, ledger)):
            intro = (
                "Rows whose settings were chosen by the labels of a fixed half of the nodes, tested as under "
                "`reference`, but on the other half alone:"
            )
            parts += [intro, "\n".join(tuned)]
        if recipes := list(_recipe_lines(table, ledger)):
            title = "Recipes, as far as they differ from what a recipe has by default"
            parts += [f"<details><summary>{title}</summary>", "\n".join(recipes), "</details>"]
    return Block("\n\n".join(parts), pictures)


def _copied_lines(table: Table, ledger: Ledger) -> Iterator[str]:
    asked = Asked(table, ledger, table.variants, table.datasets)
    for variant in table.variants:
        if note := copied_note(table.name, variant):
            cells = [make_cell(asked, variant, name, "reference") for name in table.datasets]
            found = [f"{cell.dataset} {cell.difference:+.2f}" for cell in cells if cell.difference is not None]
            yield f"- **{VARIANTS[variant].title}** ({', '.join(found) or 'not computed yet'}): {note}"


def _tuned_lines(table: Table, ledger: Ledger) -> Iterator[str]:
    for variant in table.variants:
        found = []
        for dataset in (name for name in VARIANTS[variant].tuned_on if name in table.datasets):
            values = list(values_of(find_rows(ledger, variant, dataset, quick=False), UNTOUCHED).values())
            found += [f"{dataset} {mean_text(values)} ({len(values)})"] if values else []
        if found:
            yield f"- **{VARIANTS[variant].title}**: {', '.join(found)}"


def _recipe_lines(table: Table, ledger: Ledger) -> Iterator[str]:
    """The settings of every cell that was computed."""
    for variant in (name for name in table.variants if VARIANTS[name].kind == "trained"):
        for dataset in table.datasets:
            if find_rows(ledger, variant, dataset, quick=False):
                changed = changed_settings(recipe_of(variant, dataset))
                text = ", ".join(f"{key}={_plain(value)}" for key, value in changed.items())
                wanted = settings_id(variant, dataset, quick=False)
                yield f"- {VARIANTS[variant].title}, {dataset} (`{wanted}`): {text or 'nothing changed'}"


def _plain(value: object) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple | list) else str(value)
