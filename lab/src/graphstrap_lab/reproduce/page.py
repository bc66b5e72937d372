"""docs/results.md: the text is written by hand, every number between its markers comes from a ledger.

    <!-- results: table-3 -->          everything up to the next line is replaced
    <!-- end of results -->

Plots go to a folder beside the page.
"""

from __future__ import annotations

import re
from pathlib import Path

from graphstrap.io.files import atomic_write
from graphstrap_lab.reproduce.blind import UNTOUCHED
from graphstrap_lab.reproduce.cells import summarize
from graphstrap_lab.reproduce.ledger import Ledger
from graphstrap_lab.reproduce.paper import copied_note
from graphstrap_lab.reproduce.render import Report, body_to_markdown
from graphstrap_lab.reproduce.reports import make_report
from graphstrap_lab.reproduce.tables import Table, find_rows, find_table, make_cell
from graphstrap_lab.reproduce.variants import VARIANTS, changed_settings, recipe_of, settings_id

MEMORY_LIMIT = 16 * 10**9  # the paper's V100
_BLOCK = re.compile(r"(<!-- results: ([\w-]+) -->\n).*?(<!-- end of results -->)", flags=re.DOTALL)


def update_page(page: Path, *, ledger: Path, images: Path) -> None:
    """Draw the plots and write the page anew."""
    kept, text = Ledger(ledger), page.read_text(encoding="utf-8")
    images.mkdir(exist_ok=True)
    for name in tables_of(text):
        report = page_report(find_table(name), kept)
        if report.draw is not None:
            report.draw(images / f"results-{name}.png")
    with atomic_write(page) as temporary:
        temporary.write_text(render_page(text, kept, images=images.name), encoding="utf-8")


def tables_of(text: str) -> list[str]:
    """The tables that a page has room for."""
    return [match[2] for match in _BLOCK.finditer(text)]


def render_page(text: str, ledger: Ledger, *, images: str) -> str:
    """The text with every block between markers made from the ledger."""

    def fill(match: re.Match[str]) -> str:
        begin, name, end = match.groups()
        table = find_table(name)
        return f"{begin}\n{render_table(table, ledger, images=images)}\n\n{end}"

    return _BLOCK.sub(fill, text)


def page_report(table: Table, ledger: Ledger) -> Report:
    """Table 1 as measured on a GPU, if it was, and under the limit of the paper's; the others under no limit."""
    on_cuda = any(str(row["settings"]).startswith("memory-cuda-") for row in ledger.rows)
    limit = MEMORY_LIMIT if table.kind == "memory" else None
    return make_report(table, ledger, device="cuda" if on_cuda else "cpu", memory_limit=limit)


def render_table(table: Table, ledger: Ledger, *, images: str) -> str:
    """The report, sentences about rows that the paper took from elsewhere, and the recipes."""
    report = page_report(table, ledger)
    picture = f"{images}/results-{table.name}.png" if report.draw is not None else ""
    parts = [body_to_markdown(report, picture=picture)]
    copied = [line for variant in table.variants if (line := _copied_line(table, ledger, variant))]
    if copied:
        parts.append(
            "Rows that the paper took from other papers, with our differences from it under `reference`:\n\n"
            + "\n".join(copied)
        )
    tuned = [line for variant in table.variants if (line := _tuned_line(table, ledger, variant))]
    if tuned:
        parts.append(
            "Rows whose settings were chosen by the labels of a fixed half of the nodes, tested as under `reference`, "
            "but on the other half alone:\n\n" + "\n".join(tuned)
        )
    if table.kind == "accuracy":
        parts.append(_recipes(table, ledger))
    return "\n\n".join(part for part in parts if part)


def _copied_line(table: Table, ledger: Ledger, variant: str) -> str:
    note = copied_note(table.name, variant)
    if not note:
        return ""
    cells = [make_cell(table, ledger, variant, name, "reference", quick=False) for name in table.datasets]
    found = [f"{cell.dataset} {cell.difference:+.2f}" for cell in cells if cell.difference is not None]
    return f"- **{VARIANTS[variant].title}** ({', '.join(found) or 'not computed yet'}): {note}"


def _tuned_line(table: Table, ledger: Ledger, variant: str) -> str:
    if table.kind != "accuracy":
        return ""
    found = []
    for dataset in (name for name in VARIANTS[variant].tuned_on if name in table.datasets):
        rows = find_rows(ledger, variant, dataset, quick=False)
        if (one := summarize(rows, protocol=UNTOUCHED)) is not None:
            found.append(f"{dataset} {one[0]:.2f} ± {one[1]:.2f} ({one[2]})")
    return f"- **{VARIANTS[variant].title}**: {', '.join(found)}" if found else ""


def _recipes(table: Table, ledger: Ledger) -> str:
    """The settings of every cell that was computed, folded away."""
    lines = []
    for variant in (name for name in table.variants if VARIANTS[name].kind == "trained"):
        for dataset in table.datasets:
            if find_rows(ledger, variant, dataset, quick=False):
                wanted = settings_id(variant, dataset, quick=False)
                changed = changed_settings(recipe_of(variant, dataset))
                text = ", ".join(f"{key}={_plain(value)}" for key, value in changed.items())
                lines.append(f"- {VARIANTS[variant].title}, {dataset} (`{wanted}`): {text or 'nothing changed'}")
    if not lines:
        return ""
    title = "Recipes, as far as they differ from what a recipe has by default"
    return f"<details><summary>{title}</summary>\n\n" + "\n".join(lines) + "\n\n</details>"


def _plain(value: object) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple | list) else str(value)
