"""One setting: its rules, whether a value keeps to them, and its text.

What breaks a rule is an InputError that names the key, what it takes and what it got.
"""

from __future__ import annotations

import json
import operator
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import field
from numbers import Integral, Real
from typing import Any, get_args, get_origin

import numpy as np

from graphstrap.errors import InputError

_LARGEST, _MOST_VALUES = 1 << 53, 1000
_ACCEPTED: dict[Any, Any] = {int: Integral, float: Real, bool: (bool, np.bool_), str: str}


def setting(default: Any, **rules: Any) -> Any:
    """A field with its rules: `choices` (and `advice` beyond them), `low` and `high` (both inclusive)."""
    return field(default=default, metadata=rules)


def checked_value(key: str, value: Any, kind: Any, rules: Mapping[str, Any]) -> Any:
    """The value as the field's type, or an error that says what the field takes."""
    if get_origin(kind) is tuple:
        item_kinds = get_args(kind)
        if not isinstance(value, list | tuple):
            example = {int: (256,), str: ("cites=40,40",)}.get(item_kinds[0], (0.2, 0.3))
            raise InputError(f"{key} takes a list such as {toml_value(example)}, got {value!r}")
        if item_kinds[-1] is Ellipsis:
            item_kinds = (item_kinds[0],) * len(value)
        if len(value) > _MOST_VALUES:
            raise InputError(f"{key} takes at most {_MOST_VALUES} values, got {len(value)}")
        if len(value) != len(item_kinds):
            raise InputError(f"{key} takes {len(item_kinds)} values, got {len(value)}")
        return tuple(checked_value(key, item, k, rules) for item, k in zip(value, item_kinds, strict=True))
    if isinstance(value, Integral) and abs(int(value)) > _LARGEST:
        raise InputError(f"{key} must be at most {_LARGEST}")
    if isinstance(value, _ACCEPTED[kind]) and (kind is bool or not isinstance(value, bool)):
        value = kind(value)  # plain, for NumPy's numbers are written in another way
    else:
        names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
        raise InputError(f"{key} takes {names[kind]}, got {value!r}")
    if "choices" in rules and value not in rules["choices"]:
        advice = f"; {rules['advice']}" if "advice" in rules else ""
        raise InputError(f"{key} must be one of {', '.join(rules['choices'])}, got {value!r}{advice}")
    if ("low" in rules and not value >= rules["low"]) or ("high" in rules and not value <= rules["high"]):
        bounds = f"between {rules['low']} and {rules['high']}" if "high" in rules else f"at least {rules['low']}"
        raise InputError(f"{key} must be {bounds}, got {value!r}")
    return value


def checked_seed(seed: Any) -> int:
    """The seed as a plain number."""
    try:
        number = operator.index(seed)
    except TypeError:
        number = -1
    if not 0 <= number < 1 << 63:
        raise InputError(f"a seed is a whole number from 0 to 2**63 - 1, got {seed!r}")
    return number


def toml_value(value: Any) -> str:
    """The value as it is written in TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON's text is TOML's but for this
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    return repr(value)


def named_fan_outs(entry: str, num_hops: int) -> tuple[str, list[int]]:
    """`"cites=40,20"` to ("cites", [40, 20])."""
    name, _, numbers = entry.rpartition("=")
    row = [int(text) for text in numbers.split(",") if text.strip().isdigit()]
    if not name or len(row) != num_hops or len(row) != len(numbers.split(",")):
        raise InputError(
            f"sampling.relation_fan_outs takes entries such as {'cites=' + ','.join(['40'] * max(1, num_hops))!r}, "
            f"a number for each of the {num_hops} hops of sampling.fan_outs, got {entry!r}"
        )
    return name.strip(), row


def parse_settings(assignments: Iterable[str]) -> dict[str, Any]:
    """`["train.steps=2000", "encoder.norm=layer"]` to a dictionary; values are TOML, bare words are text."""
    settings: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals:
            raise InputError(f"--set takes KEY=VALUE such as train.steps=2000, got {assignment!r}")
        try:
            settings[key.strip()] = tomllib.loads(f"value = {text.strip()}")["value"]
        except tomllib.TOMLDecodeError:
            settings[key.strip()] = text.strip()
    return settings
