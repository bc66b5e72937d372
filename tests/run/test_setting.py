"""One setting: what is written is read, whatever the text."""

from __future__ import annotations

import tomllib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphstrap.errors import InputError
from graphstrap.run.recipe import Recipe, parse_recipe
from graphstrap.run.settings import checked_seed, parse_settings, toml_value

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


@pytest.mark.parametrize(
    ("key", "value", "plain"),
    [
        ("train.learning_rate", np.float64(0.01), 0.01),
        ("train.learning_rate", np.float32(0.5), 0.5),
        ("train.steps", np.int64(3), 3),
        ("views.edge_drop_probs", (np.float64(0.25), np.int32(0)), (0.25, 0.0)),
        ("encoder.hidden_sizes", [np.int64(8)], (8,)),
        ("encoder.bias", np.bool_(True), True),
        ("encoder.norm", np.str_("layer"), "layer"),
    ],
)
def test_numpys_values_become_plain_and_are_read_again(key: str, value: object, plain: object) -> None:
    recipe = Recipe().with_settings({key: value})
    section, _, name = key.partition(".")
    stored = getattr(getattr(recipe, section), name)
    assert stored == plain
    assert repr(stored) == repr(plain)
    assert parse_recipe(recipe.to_toml(), origin="again") == recipe


@pytest.mark.parametrize("seed", [None, 1.5, "1", -1, 2**63])
def test_what_is_no_seed_is_named(seed: object) -> None:
    with pytest.raises(InputError, match="a seed is a whole number from 0"):
        checked_seed(seed)
    assert type(checked_seed(np.int64(3))) is int
