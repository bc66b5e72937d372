"""The tables and figures that can be reproduced, and the numbers that the paper prints in them (`paper.toml`)."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from typing import Any

from graphstrap.errors import InputError
from graphstrap.io.datasets import DATASETS, Published, find_name
from graphstrap_lab.reproduce.variants import VARIANTS, find_variant, has_curve

OFTEN = ("random-init", "grace", "bgrl")  # rows of so many seeds as those that the authors measured themselves
SELDOM_AT_HAND = ("wikics", "ogbn-arxiv", "ppi", "mag240m")  # an empty column of these says so, and how to get them
_MAG240M = (
    "mag240m was not at hand, so its cells are empty: unpack OGB-LSC's folder and make a store of it in the folder "
    "$GRAPHSTRAP_DATA, `graphstrap prepare --ogb mag240m_kddcup2021 --pca 128 --feature-dtype fp16 --to mag240m.store`."
)


@dataclass(frozen=True)
class Printed:
    """A cell of the paper: a mean, perhaps a deviation, or a text such as OOM; starred where they measured it."""

    mean: float | None
    std: float | None
    text: str
    is_starred: bool


@dataclass(frozen=True)
class Table:
    """What a table shows.

    Args:
        num_seeds: of the rows that the paper measured itself, and of the others.
        kind: "accuracy", "memory" (table 1), "curves" (the course of training), "learning" (of the
            probe meanwhile), "entropy" (of attention) or "mag" (MAG240M's figures).
        quick_datasets: the graphs of `--quick`, where the table's own take too long for that.
        aliases: other names for it.
        in_the_paper: what its figure shows there, where that prints no numbers.
    """

    name: str
    variants: tuple[str, ...]
    datasets: tuple[str, ...]
    num_seeds: tuple[int, int] = (20, 5)
    kind: str = "accuracy"
    quick_datasets: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    title: str = ""
    in_the_paper: str = ""


@cache
def _contents() -> dict[str, Any]:
    text = (resources.files("graphstrap_lab.reproduce") / "paper.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _table(name: str, contents: dict[str, Any]) -> Table:
    known = {field.name for field in fields(Table)}
    options: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in contents.items() if key in known
    }
    return Table(name, **options)


TABLES = {name: _table(name, contents) for name, contents in _contents().items() if "variants" in contents}


def find_tables(name: str) -> list[Table]:
    """A table by its name or another one for it; all of them for `all`."""
    return list(TABLES.values()) if name == "all" else [find_table(name)]


def find_table(name: str) -> Table:
    names = TABLES | {alias: table for table in TABLES.values() for alias in table.aliases}
    if name not in names:
        raise InputError(f"there is no table {name!r}: take all, or one of {', '.join(names)}")
    return names[name]


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


def how_to_get(dataset: str) -> str:
    """What to do about a published graph that is not at hand."""
    if dataset == "mag240m":
        return _MAG240M
    source = DATASETS[dataset]
    assert isinstance(source, Published)
    raw = f", or its published files into {source.stem}/ there" if source.raw_file else ""
    return (
        f"{dataset} ({source.origin}) was not at hand, so its cells are empty: put {source.stem}.npz into the folder "
        f"$GRAPHSTRAP_DATA{raw}, or connect to the network, which downloads it on first use."
    )


def chosen_variants(table: Table, names: Sequence[str] | None, *, exactly: bool = True) -> list[str]:
    """The rows that were asked for, or the table's own; unless `exactly`, those asked for that the table has."""
    for name in names or ():
        find_variant(name)
        if exactly and not _has_room(table, name):
            fitting = [other for other in VARIANTS if _has_room(table, other)]
            raise InputError(f"{table.name} has no room for the method {name!r}: take some of {', '.join(fitting)}")
    return [name for name in dict.fromkeys(names or table.variants) if exactly or name in table.variants]


def _has_room(table: Table, variant: str) -> bool:
    """Whether a method can stand in a table of this kind."""
    if table.kind == "memory":
        return variant in table.variants
    if table.kind == "curves":
        return has_curve(variant)
    if table.kind == "entropy":
        return VARIANTS[variant].encoder == "gat"
    if table.kind == "learning" and VARIANTS[variant].kind != "trained":
        return False
    return variant.startswith("mag-") == (table.kind == "mag")


def chosen_datasets(
    table: Table, names: Sequence[str] | None, *, exactly: bool = True, quick: bool = False
) -> list[str]:
    """The graphs that were asked for, or the table's own; unless `exactly`, those asked for that the table has."""
    usual = (table.quick_datasets if quick else ()) or table.datasets
    known = [name if name in (*table.datasets, *usual) else find_name(name) for name in names or usual]
    return [name for name in dict.fromkeys(known) if exactly or name in usual]


def seeds_for(table: Table, variant: str, asked: int | None, *, quick: bool) -> range:
    """How many seeds a row gets. What does not depend on a seed gets one."""
    if VARIANTS[variant].kind in ("raw", "printed"):
        return range(1)
    if asked is not None:
        return range(asked)
    if quick:
        return range(1)
    is_starred = any((cell := printed(table.name, variant, d)) is not None and cell.is_starred for d in table.datasets)
    return range(table.num_seeds[0] if is_starred or variant in OFTEN else table.num_seeds[1])
