"""Recipes as TOML: those that the package ships, by name, and a user's own, by path."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path

from graphstrap.errors import InputError
from graphstrap.plain import read_plain_text
from graphstrap.recipe import Recipe
from graphstrap.setting import nearest

_MAX_BYTES = 1 << 20


def shipped_recipes() -> list[str]:
    """The names of the recipes in the package; `default` is made from the graph instead (see `graphstrap.defaults`)."""
    folder = resources.files("graphstrap") / "recipes"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def load_recipe(name_or_path: str) -> Recipe:
    """A shipped recipe by name, or a TOML file by path."""
    if name_or_path in shipped_recipes():
        text = (resources.files("graphstrap") / "recipes" / f"{name_or_path}.toml").read_text(encoding="utf-8")
        return parse_recipe(text, origin=name_or_path)
    path = Path(name_or_path)
    if path.suffix == ".toml":
        return parse_recipe(read_plain_text(path, max_bytes=_MAX_BYTES), origin=str(path))
    known = ["default", *shipped_recipes()]
    raise InputError(
        f"there is no recipe {name_or_path!r}{nearest(name_or_path, known)}: "
        f"take one of {', '.join(known)}, or the path of a .toml file"
    )


def parse_recipe(text: str, *, origin: str) -> Recipe:
    try:
        tree = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"recipe {origin} is not valid TOML: {error}") from error
    try:
        return Recipe(name=origin).updated(tree)
    except InputError as error:
        raise InputError(f"recipe {origin}: {error}") from error
