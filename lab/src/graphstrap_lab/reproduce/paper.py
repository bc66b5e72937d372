"""The numbers that the paper prints (`paper.toml`)."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class Printed:
    """A cell of the paper: a mean, perhaps a deviation, or a text such as OOM; starred where they measured it."""

    mean: float | None
    std: float | None
    text: str
    is_starred: bool


@cache
def _contents() -> dict[str, Any]:
    text = (resources.files("graphstrap_lab.reproduce") / "paper.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def table_title(table: str) -> str:
    return str(_contents()[table]["title"])


def has_printed(table: str) -> bool:
    return table in _contents()


def printed(table: str, variant: str, dataset: str) -> Printed | None:
    """What the paper prints for a cell, or for that of the row which ours stands against; None where it prints
    nothing."""
    contents = _contents().get(table, {})
    row = contents.get("against", {}).get(variant, variant)
    value = contents.get("values", {}).get(row, {}).get(dataset)
    if value is None:
        return None
    is_starred = row in contents.get("starred", [])
    if isinstance(value, str):
        return Printed(None, None, value, is_starred)
    mean, std = float(value[0]), (float(value[1]) if len(value) > 1 else None)
    text = f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:.2f}"
    return Printed(mean, std, text, is_starred)


def copied_note(table: str, variant: str) -> str:
    """What explains the difference in a row that the paper took from elsewhere; "" for its own rows."""
    return str(_contents().get(table, {}).get("notes", {}).get(variant, ""))
