"""One setting: what is written is read, whatever the text."""

from __future__ import annotations

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from graphstrap.recipe import Recipe
from graphstrap.recipe_files import parse_recipe
from graphstrap.setting import parse_settings, toml_value

texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.one_of(texts, st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False), st.lists(texts))


@given(value=values)
def test_what_is_written_is_read(value: object) -> None:
    assert tomllib.loads(f"value = {toml_value(value)}") == {"value": value}
    assert parse_settings([f"key={toml_value(value)}"]) == {"key": value}


@given(name=texts)
def test_a_recipe_of_any_name_round_trips(name: str) -> None:
    recipe = Recipe(name=name)
    assert parse_recipe(recipe.to_toml(), origin="again") == recipe
