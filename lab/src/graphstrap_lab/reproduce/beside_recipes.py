"""What rows depend on that stands in no recipe: settings of supervised networks, and what label propagation tries.

The ledger's first rows were computed with the values below. As long as these are in force nothing is added to what
tells settings apart, and the rows stay; with any other value their cells are computed anew. A setting that is added
later comes in here with the value that changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from graphstrap.api import baselines
from graphstrap.nn.methods.supervised import SupervisedSettings
from graphstrap_lab.reproduce import mag_frozen

QUICK_MAX_STEPS = 100

_FIRST_SUPERVISED: dict[str, Any] = {
    "hidden_size": 64,
    "dropout_prob": 0.8,
    "feature_dropout_prob": 0.0,
    "learning_rate": 0.01,
    "weight_decay": 1e-3,
    "max_steps": 2000,
    "patience": 50,
}
_FIRST_FROZEN_MLP = {
    **_FIRST_SUPERVISED,
    "hidden_size": 512,
    "dropout_prob": 0.5,
    "learning_rate": 1e-3,
    "weight_decay": 1e-5,
}
_FIRST_PROPAGATION = {"numbers_of_steps": (2, 5, 10, 20, 50), "restarts": (0.0, 0.05, 0.1, 0.3, 0.5)}
_FIRST_MAG_PROPAGATION = {"numbers_of_steps": (2, 5, 10), "restarts": (0.0, 0.1, 0.5)}


def supervised_settings(*, quick: bool) -> SupervisedSettings:
    return SupervisedSettings(max_steps=QUICK_MAX_STEPS) if quick else SupervisedSettings()


def changed_beside(kind: str, *, quick: bool) -> dict[str, Any]:
    """Of a row of the tables of accuracies."""
    if kind in ("supervised-gcn", "supervised-mlp"):
        first = {**_FIRST_SUPERVISED, "max_steps": 100} if quick else _FIRST_SUPERVISED
        return _changed(first, asdict(supervised_settings(quick=quick)))
    if kind == "label-propagation":
        tried = {"numbers_of_steps": baselines.NUMBERS_OF_STEPS, "restarts": baselines.RESTARTS}
        return _changed(_FIRST_PROPAGATION, tried)
    return {}


def changed_beside_mag(kind: str, *, is_frozen: bool, quick: bool) -> dict[str, Any]:
    """Of a row of MAG240M's figures."""
    if kind == "label-propagation":
        tried = {"numbers_of_steps": mag_frozen.NUMBERS_OF_STEPS, "restarts": mag_frozen.RESTARTS}
        return _changed(_FIRST_MAG_PROPAGATION, tried)
    if not is_frozen:
        return {}
    first = {**_FIRST_FROZEN_MLP, "max_steps": 50} if quick else _FIRST_FROZEN_MLP
    return _changed(first, asdict(mag_frozen.QUICK_MLP if quick else mag_frozen.MLP))


def _changed(first: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in now.items() if value != first.get(name)}
