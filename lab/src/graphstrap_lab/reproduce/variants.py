"""The rows of the tables (`variants.toml`): each a method with its settings on each graph.

A trained row starts from the graph's own recipe (widths, feature scaling, augmentation) and replaces what its method
needs. Where the settings come from stands beside them.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from importlib import resources
from typing import Any

from graphstrap.api import baselines
from graphstrap.errors import InputError
from graphstrap.nn.methods.supervised import SupervisedSettings
from graphstrap.run.recipe import ENCODERS, METHODS, SECTIONS, Recipe, load_recipe, shipped_recipes

# --quick: so many steps, fewer where each takes long, and so many negatives where there would be all nodes.
QUICK_STEPS = 100
QUICK_NEGATIVES = 256
_FEWER_QUICK_STEPS = {"grace": 60, "gca": 60, "mvgrl": 8, "gmi": 30}

# What rows depend on that stands in no recipe, as it was when the ledger's first rows were computed. As long as it is
# in force nothing is added to what tells settings apart, and the rows stay; with any other value their cells are
# computed anew. A setting that is added later comes in here with the value that changes nothing.
FIRST_SUPERVISED: dict[str, Any] = {
    "hidden_size": 64,
    "dropout_prob": 0.8,
    "feature_dropout_prob": 0.0,
    "learning_rate": 0.01,
    "weight_decay": 1e-3,
    "max_steps": 2000,
    "patience": 50,
}
_FIRST_PROPAGATION = {"numbers_of_steps": (2, 5, 10, 20, 50), "restarts": (0.0, 0.05, 0.1, 0.3, 0.5)}

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Variant:
    """A row.

    Args:
        kind: "trained", or what is evaluated instead: "raw", "random-init", "label-propagation", "supervised-gcn",
            "supervised-mlp"; "printed" for a row of the paper that has no counterpart here.
        settings: of the recipe, on every graph.
        by_dataset: more of them for a graph.
        append_features: put the node's raw features beside its embedding.
        encoder: the name of another encoder than the recipe's, or "".
        family: of recipes that are named `<family>-<graph>`, in place of the graph's own; a graph that has none has no
            such row.
        tuned_on: graphs whose settings were chosen by the labels of a half of the nodes, see `blind.py`.
        kept_as: another row of the same method: where their settings agree, the ledger holds cells for both.
    """

    title: str
    kind: str = "trained"
    settings: Settings = field(default_factory=dict)
    by_dataset: Mapping[str, Settings] = field(default_factory=dict)
    append_features: bool = False
    encoder: str = ""
    family: str = ""
    tuned_on: Sequence[str] = ()
    kept_as: str = ""


def recipe_of(name: str, dataset: str, *, quick: bool = False) -> Recipe:
    """The recipe of a row on a graph."""
    recipe = base_of(name, dataset).with_settings(_settings_of(name, dataset))
    return _shortened(recipe) if quick else recipe


def base_of(name: str, dataset: str) -> Recipe:
    """What a row's recipe starts from: `<graph>-<encoder>-<method>`, the first of them that is shipped with fewer and
    fewer of these parts."""
    variant, shipped = VARIANTS[name], shipped_recipes()
    parts = [part for part in (variant.encoder, _settings_of(name, dataset).get("method.name", "")) if part]
    tried = ["-".join([dataset, *parts]), *(f"{dataset}-{part}" for part in parts), dataset]
    if variant.family:
        tried.insert(0, f"{variant.family}-{dataset}")
    base = next((one for one in tried if one in shipped), None)
    return Recipe(name=dataset) if base is None else load_recipe(base)


def _settings_of(name: str, dataset: str) -> dict[str, Any]:
    variant = VARIANTS[name]
    encoder = {"encoder.name": variant.encoder} if variant.encoder else {}
    return {**encoder, **variant.settings, **variant.by_dataset.get(dataset, {})}


def read_by(method: str, settings: Settings) -> dict[str, Any]:
    """The settings without those of other methods."""
    known = {f"method.{f.name}" for f in fields(METHODS.get(method).Settings)}
    return {key: value for key, value in settings.items() if key in known or not key.startswith("method.")}


def name_in_ledger(name: str) -> str:
    return VARIANTS[name].kept_as or name


def why_not(name: str, dataset: str) -> str:
    """Why a row cannot be computed on a graph; "" where it can."""
    variant = VARIANTS[name]
    if variant.kind == "printed":
        return "no counterpart"
    if variant.family and f"{variant.family}-{dataset}" not in shipped_recipes():
        return "no recipe"
    return ""


def settings_id(name: str, dataset: str, *, quick: bool, recipe: Recipe | None = None) -> str:
    """Tells one set of settings of a row, or of another recipe in the place of the row's own, from another; `quick-` in
    front where training was cut short."""
    kind, beside = VARIANTS[name].kind, changed_beside(VARIANTS[name].kind, quick=quick)
    if kind not in ("trained", "random-init"):
        digest = settings_digest(Recipe(), kind, beside)
    else:
        recipe = recipe or recipe_of(name, dataset, quick=quick)
        digest = settings_digest(recipe, kind, beside, also=flat(base_of(name, dataset)))
    return f"quick-{digest}" if quick else digest


def settings_digest(recipe: Recipe, kind: str, beside: Settings | None = None, *, also: Settings | None = None) -> str:
    """A hash of the settings that are not the usual ones, in the recipe and `beside` it: a setting that is added to
    recipes later, with a usual value that changes nothing, leaves it as it is. `also`: settings of other methods, which
    recipes of version 0.1 had too, so that its rows are found."""
    changed = [kind, changed_settings(recipe, also=also), *([beside] if beside else [])]
    return hashlib.sha256(json.dumps(changed).encode()).hexdigest()[:12]


def changed_settings(recipe: Recipe, *, also: Settings | None = None) -> dict[str, Any]:
    """The settings of a recipe that are not what a recipe has by default, by dotted key."""
    usual, mine = usual_settings(), {**(also or {}), **flat(recipe)}
    return {key: mine[key] for key in usual if key in mine and mine[key] != usual[key]}


def flat(recipe: Recipe) -> dict[str, Any]:
    """All settings of a recipe, by dotted key."""
    return _by_key({section: asdict(getattr(recipe, section)) for section in SECTIONS})


@cache
def usual_settings() -> dict[str, Any]:
    """What every setting of every method and encoder is by default, in the order that hashes in the ledger rest on."""
    usual: dict[str, Any] = {}
    for section in SECTIONS:
        known = {"encoder": ENCODERS, "method": METHODS}.get(section, ())
        found: dict[str, Any] = {}
        for name in [name for name in known if known.is_own(name)]:  # type: ignore[union-attr]
            found |= asdict(known.get(name).Settings())  # type: ignore[union-attr]
        found |= asdict(getattr(Recipe(), section))
        order = _KEYS.get(section, "").split() or list(found)
        usual |= {f"{section}.{key}": found[key] for key in [*order, *(key for key in found if key not in order)]}
    return usual


_KEYS = {
    "encoder": "name hidden_sizes embedding_size own_features own_weight norm weight_standardization bias linear_end "
    "batch_norm_decay batch_norm_statistics root_weight num_heads num_output_heads num_steps aggregation",
    "method": "name predictor_hidden_size target_decay projector_size target_hops embed_with temperature num_negatives "
    "keep_similarities redundancy_weight teleport_prob walk_length walks_per_node window_size return_weight "
    "outward_weight auxiliary auxiliary_weight unlabelled_ratio label_inputs inference_passes",
}


def supervised_settings(*, quick: bool) -> SupervisedSettings:
    return SupervisedSettings(max_steps=QUICK_STEPS) if quick else SupervisedSettings()


def changed_beside(kind: str, *, quick: bool) -> dict[str, Any]:
    """What a kind of row depends on beside its recipe, as far as it is not what it was first."""
    if kind in ("supervised-gcn", "supervised-mlp"):
        first = {**FIRST_SUPERVISED, "max_steps": 100} if quick else FIRST_SUPERVISED
        return changed_since(first, asdict(supervised_settings(quick=quick)))
    if kind == "label-propagation":
        tried = {"numbers_of_steps": baselines.NUMBERS_OF_STEPS, "restarts": baselines.RESTARTS}
        return changed_since(_FIRST_PROPAGATION, tried)
    return {}


def changed_since(first: Settings, now: Settings) -> dict[str, Any]:
    return {name: value for name, value in now.items() if value != first.get(name)}


def has_curve(variant: str) -> bool:
    """Rows whose course of training a figure shows."""
    return variant in ("bgrl", "bgrl-projector")


def find_variant(name: str) -> Variant:
    if name not in VARIANTS:
        raise InputError(f"there is no method {name!r} in the tables: take some of {', '.join(VARIANTS)}")
    return VARIANTS[name]


def _shortened(recipe: Recipe) -> Recipe:
    """A few minutes' worth: fewer steps and negatives, and for BGRL a rate that suits them."""
    steps = min(recipe.train.steps, _FEWER_QUICK_STEPS.get(recipe.method.name, QUICK_STEPS))
    settings: dict[str, Any] = {"train.steps": steps, "train.warmup_steps": steps // 10}
    if recipe.method.name == "bgrl":
        rate = 1e-2 if recipe.encoder.norm == "batch" else 1e-3  # others draw together at the higher one
        settings |= {"train.learning_rate": rate, "encoder.batch_norm_statistics": "recalibrated"}
    if recipe.method.name in ("grace", "gca"):
        settings["method.num_negatives"] = min(QUICK_NEGATIVES, recipe.method.num_negatives or QUICK_NEGATIVES)
    return recipe.with_settings(settings)


def _read_variants() -> dict[str, Variant]:
    text = (resources.files("graphstrap_lab.reproduce") / "variants.toml").read_text(encoding="utf-8")
    contents, found = tomllib.loads(text), {}
    for name, row in contents["rows"].items():
        shared = contents["shared"][row.pop("like")] if "like" in row else {}
        by_dataset: dict[str, dict[str, Any]] = {}
        for block in row.pop("on_graph", []):
            for dataset, settings in contents["on_graph"][block].items():
                by_dataset.setdefault(dataset, {}).update(_by_key(settings))
        own = {**_by_key(shared), **_by_key(row.pop("settings", {}))}
        found[name] = Variant(**row, settings=own, by_dataset=by_dataset)
    return found


def _by_key(tree: Mapping[str, Settings]) -> dict[str, Any]:
    """By dotted key."""
    return {f"{section}.{key}": value for section, own in tree.items() for key, value in own.items()}


VARIANTS = _read_variants()
