"""Recipe: every setting of a run, as frozen dataclasses, read from TOML and written as it.

An unknown or misspelt key, a wrong type or a value out of range is an InputError that names the key and the nearest
valid one. The sections `method` and `encoder` are of the settings class that the chosen method and encoder declare.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, get_type_hints

from graphstrap.errors import InputError
from graphstrap.graph import ViewSpec
from graphstrap.io.files import read_text
from graphstrap.io.registry import Registry, nearest
from graphstrap.run.settings import checked_value, named_fan_outs, setting, toml_value

METHODS: Registry[Any] = Registry(
    "method",
    group="graphstrap.methods",
    own={
        "bgrl": "graphstrap.nn.methods.bgrl",
        "bgrl-cca": "graphstrap.nn.methods.bgrl_cca",
        "instant": "graphstrap.nn.methods.instant",
        "grace": "graphstrap.nn.methods.grace",
        "gca": "graphstrap.nn.methods.grace",
        "dgi": "graphstrap.nn.methods.dgi",
        "gmi": "graphstrap.nn.methods.gmi",
        "mvgrl": "graphstrap.nn.methods.mvgrl",
        "barlow-twins": "graphstrap.nn.methods.barlow_twins",
        "deepwalk": "graphstrap.nn.methods.skip_gram",
        "node2vec": "graphstrap.nn.methods.skip_gram",
        "semi-supervised": "graphstrap.nn.methods.semi_supervised",
    },
)
ENCODERS: Registry[Any] = Registry(
    "encoder",
    group="graphstrap.encoders",
    own={
        "gcn": "graphstrap.nn.encoders.gcn",
        "mean-pooling": "graphstrap.nn.encoders.mean_pooling",
        "gat": "graphstrap.nn.encoders.gat",
        "mpnn": "graphstrap.nn.encoders.mpnn",
        "mlp": "graphstrap.nn.encoders.mlp",
    },
)

CENTRALITIES = ("none", "degree", "pagerank", "eigenvector")


@dataclass(frozen=True)
class DataRecipe:
    """How features are prepared. `row`: rows sum to 1; `column`: zero mean, unit variance; `structural_size`: how many
    columns say where in the graph a node is, `structural_columns`: where features are missing, or beside them too.
    `training_graphs`: of a dataset of several graphs, all of them or those of some parts of its split;
    the others are only embedded."""

    feature_scaling: str = setting("row", choices=("row", "column", "none"))
    structural_size: int = setting(128, low=1, high=4096)
    structural_columns: str = setting("missing", choices=("missing", "always"))
    training_graphs: str = setting("all", choices=("all", "train", "train-val"))


@dataclass(frozen=True)
class ViewsRecipe:
    """Augmentation of the two views. With a `centrality`, edges and features that matter less by it are dropped more
    often, each with at most `max_drop_prob` (see `train/centrality.py`); `gca` takes "pagerank" where none is named."""

    edge_drop_probs: tuple[float, float] = setting((0.3, 0.3), low=0.0, high=1.0)
    feature_mask_probs: tuple[float, float] = setting((0.2, 0.2), low=0.0, high=1.0)
    mask_elements: bool = setting(False)
    drop_directions_together: bool = setting(False)
    centrality: str = setting("none", choices=CENTRALITIES)
    max_drop_prob: float = setting(0.7, low=0.0, high=1.0)

    def specs(self) -> list[ViewSpec]:
        return [
            ViewSpec(edge_drop_prob, feature_mask_prob, self.mask_elements, self.drop_directions_together)
            for edge_drop_prob, feature_mask_prob in zip(self.edge_drop_probs, self.feature_mask_probs, strict=True)
        ]


@dataclass(frozen=True)
class MethodSettings:
    """What `[method]` of a recipe holds for every method: its name. Each method's page adds its own."""

    name: str = setting("", choices=METHODS, advice="a package can add others, see docs/adding.md")

    def check(self, recipe: Recipe) -> None:
        """Refuse, by an InputError, settings that do not go together with the rest of the recipe."""

    def num_loss_roots(self, recipe: Recipe) -> int:
        """How many of a sampled batch's roots the loss is averaged over."""
        return recipe.sampling.batch_size


@dataclass(frozen=True)
class EncoderSettings:
    """What `[encoder]` of a recipe holds for every encoder. Each encoder's page adds its own.

    `hidden_sizes` and `embedding_size` are widths of layers: of one head of each layer for `gat`; of the MLPs' hidden
    layers and of the states for `mpnn`.
    `own_features`: how many columns of the node's own features, compressed, are appended to the embedding; 0 for none.
    `own_hops`: over how many hops of neighbours the same columns are averaged, each average beside the others.
    `own_weight`: how long their row is beside the embedding's, whose length is 1: more where raw features are better.
    `norm`: over the nodes of a batch, or over a node's columns.
    `batch_norm_decay` is the paper's (0.99 keeps 99 % of the old statistics); 0.01 is how the authors' code reads it.
    `batch_norm_statistics`: "running" averages of training views, or "recalibrated" on the clean graph before freezing.
    """

    name: str = setting("", choices=ENCODERS, advice="graphstrap.add_encoder adds one, and so can a package")
    hidden_sizes: tuple[int, ...] = setting((256,), low=1, high=65536)
    embedding_size: int = setting(128, low=1, high=65536)
    own_features: int = setting(0, low=0, high=4096)
    own_hops: int = setting(0, low=0, high=16)
    own_weight: float = setting(1.0, low=0.0, high=1000.0)
    norm: str = setting("batch", choices=("batch", "layer", "none"))
    batch_norm_decay: float = setting(0.99, low=0.0, high=1.0)
    batch_norm_statistics: str = setting("running", choices=("running", "recalibrated"))

    def check(self, recipe: Recipe) -> None:
        """Refuse, by an InputError, settings that do not go together with the rest of the recipe."""


@dataclass(frozen=True)
class SamplingRecipe:
    """Training on sampled batches. `fan_outs` says how many neighbours of each relation a node gets, hop by hop; none,
    and every step sees the whole graph. `relation_fan_outs` replaces it for relations by name: "cites=40,40".

    `root_types` are the node types that roots are of; none, and all are (semi-supervised: those that have labels).
    `disjoint`: a subgraph for each root instead of nodes merged across roots; `by_time`: no node newer than the root;
    `unbiased`: edges are weighted by how many they stand for. `storage` is where the graph is kept while training on a
    GPU; `hot_nodes` rows of host features are kept on it; `prefetch` is how many batches are made ahead. `roots` of a
    step go to several workers in `turn`, or, of a graph in parts, to their `owner` as far as shares stay equal.
    """

    fan_outs: tuple[int, ...] = setting((), low=0)
    relation_fan_outs: tuple[str, ...] = setting(())
    root_types: tuple[str, ...] = setting(())
    batch_size: int = setting(1024, low=1)
    disjoint: bool = setting(False)
    by_time: bool = setting(False)
    unbiased: bool = setting(True)
    storage: str = setting("auto", choices=("auto", "device", "host"))
    hot_nodes: int = setting(0, low=0)
    prefetch: int = setting(2, low=0, high=64)
    roots: str = setting("turn", choices=("turn", "owner"))

    def by_hop(self) -> list[int | dict[str, int]]:
        """One entry for each hop: a number, or a number for each relation that is named."""
        named = [named_fan_outs(entry, len(self.fan_outs)) for entry in self.relation_fan_outs]
        if not named:
            return list(self.fan_outs)
        return [{"*": rest} | {name: row[hop] for name, row in named} for hop, rest in enumerate(self.fan_outs)]


@dataclass(frozen=True)
class TrainRecipe:
    """Steps and rates. `schedule` is what the rate does after the warm-up; `evaluate_every` 0 means never;
    `checkpoint_seconds` is the most that a power cut can cost; `precision` is what products are computed in (see
    `ops/precision.py`); `graphs_per_step` is how many whole graphs a step sees, where there are several; 0 means
    all."""

    steps: int = setting(10_000, low=1)
    graphs_per_step: int = setting(0, low=0)
    warmup_steps: int = setting(1_000, low=0)
    learning_rate: float = setting(5e-4, low=0.0, high=10.0)
    schedule: str = setting("cosine", choices=("cosine", "constant"))
    weight_decay: float = setting(1e-5, low=0.0, high=10.0)
    log_every: int = setting(50, low=1)
    evaluate_every: int = setting(0, low=0)
    checkpoint_seconds: float = setting(20.0, low=0.0)
    precision: str = setting("auto", choices=("auto", "fp32", "tf32", "bf16"))


@dataclass(frozen=True)
class Recipe:
    """Every setting of a run.

    Args:
        name: what it is called in reports.
        encoder: an instance of the encoder's own settings class, such as `GCN.Settings(hidden_sizes=(512,))`.
        method: likewise of the method's.

    Example:
        recipe = gs.load_recipe("amazon-photo").with_settings({"method.name": "grace", "train.steps": 2000})
    """

    name: str = "custom"
    data: DataRecipe = DataRecipe()
    views: ViewsRecipe = ViewsRecipe()
    encoder: Any = field(default_factory=lambda: ENCODERS.get("gcn").Settings())  # of the class that it declares
    method: Any = field(default_factory=lambda: METHODS.get("bgrl").Settings())  # likewise
    sampling: SamplingRecipe = SamplingRecipe()
    train: TrainRecipe = TrainRecipe()

    def __post_init__(self) -> None:
        checked_value("name", self.name, str, {})
        for section in SECTIONS:
            object.__setattr__(self, section, _checked_section(section, getattr(self, section)))
        if self.train.warmup_steps > self.train.steps:
            raise InputError(
                f"train.warmup_steps ({self.train.warmup_steps}) must not exceed train.steps ({self.train.steps})"
            )
        if self.train.graphs_per_step and not self.method_class.has_encoder:
            raise InputError(f"{self.method.name} knows nodes by number, so it sees all graphs: use graphs_per_step=0")
        own = self.encoder
        if (own.own_weight != 1.0 or own.own_hops) and not own.own_features:
            name = "own_hops" if own.own_hops else "own_weight"
            raise InputError(f"encoder.{name} is of own features, and there are none: set encoder.own_features too")
        if own.own_hops and self.sampling.by_time:
            raise InputError("encoder.own_hops averages over newer nodes too: leave it at 0 with sampling.by_time")
        self.method.check(self)
        self.encoder.check(self)
        _check_sampling(self)

    @property
    def method_class(self) -> Any:
        """The method's class, whose attributes say what it can do (see `nn/methods/__init__.py`)."""
        return METHODS.get(self.method.name)

    @property
    def encoder_class(self) -> Any:
        """The encoder's class (see `nn/encoders/__init__.py`)."""
        return ENCODERS.get(self.encoder.name)

    def with_settings(self, settings: Mapping[str, Any]) -> Recipe:
        """A copy with dotted keys replaced.

        Fewer steps shorten the warm-up in proportion. Another `method.name` or `encoder.name` keeps the settings that
        both have and takes the new one's defaults for the rest.

        Args:
            settings: such as {"train.steps": 2000}.

        Returns:
            The new recipe; this one stays as it is.
        """
        tree: dict[str, dict[str, Any]] = {}
        for key, value in settings.items():
            section, _, name = key.partition(".")
            if section not in SECTIONS or not name:
                raise _no_such_setting(self, key)
            tree.setdefault(section, {})[name] = value
        return self.updated(tree)

    def updated(self, tree: Mapping[str, Any]) -> Recipe:
        """A copy with the values of a tree of sections and keys, as TOML is read to, each of them checked."""
        changes: dict[str, Any] = {}
        for section, values in tree.items():
            if section not in ("name", *SECTIONS):
                raise InputError(f"there is no setting {section!r}{nearest(section, ['name', *SECTIONS])}")
            if section == "name":
                changes["name"] = values
                continue
            if not isinstance(values, Mapping):
                raise InputError(f"{section} is a section: write [{section}] and its keys below it")
            start = _of_chosen_class(section, getattr(self, section), values)
            for key in values:
                if key not in _names(start):
                    raise _no_such_setting(replace(self, **{section: start}), f"{section}.{key}")
            changes[section] = _checked_section(section, replace(start, **values))
        if "steps" in (given := tree.get("train", {})) and "warmup_steps" not in given:
            warmup = round(self.train.warmup_steps * changes["train"].steps / self.train.steps)
            changes["train"] = replace(changes["train"], warmup_steps=warmup)
        method, views = changes.get("method", self.method), changes.get("views", self.views)
        if method.name != self.method.name:  # what its views have where nobody says otherwise
            plain, named = ViewsRecipe(), tree.get("views", {})
            wanted = METHODS.get(method.name).view_defaults
            free = [key for key in wanted if key not in named and getattr(views, key) == getattr(plain, key)]
            changes["views"] = replace(views, **{key: wanted[key] for key in free})
        return replace(self, **changes)

    def to_toml(self) -> str:
        lines = [f"name = {toml_value(self.name)}"]
        for section in SECTIONS:
            lines += ["", f"[{section}]"]
            lines += [f"{key} = {toml_value(value)}" for key, value in asdict(getattr(self, section)).items()]
        return "\n".join(lines) + "\n"


# Settings that there are no more, and that changed nothing: recipes in run folders from before have them.
RETIRED = frozenset({"method.dropout_prob"})

SECTIONS: dict[str, Any] = {
    "data": DataRecipe,
    "views": ViewsRecipe,
    "encoder": EncoderSettings,
    "method": MethodSettings,
    "sampling": SamplingRecipe,
    "train": TrainRecipe,
}
_REGISTRIES: dict[str, Registry[Any]] = {"encoder": ENCODERS, "method": METHODS}
_NAME_RULES = {section: {f.name: f.metadata for f in fields(SECTIONS[section])}["name"] for section in _REGISTRIES}


_kinds = cache(get_type_hints)  # of the settings of a section's class


def _names(section: Any) -> list[str]:
    """The keys of a section, or of a class of sections."""
    return [f.name for f in fields(section)]


def _settings_class(section: str, name: Any) -> Any:
    """The class that a method or an encoder declares its settings with."""
    return _REGISTRIES[section].get(checked_value(f"{section}.name", name, str, _NAME_RULES[section])).Settings


def _of_chosen_class(section: str, current: Any, values: Mapping[str, Any]) -> Any:
    """The section as an instance of the class that its `name` asks for, with what both classes have in common."""
    if section not in _REGISTRIES or "name" not in values:
        return current
    wanted = _settings_class(section, values["name"])
    if type(current) is wanted:
        return current
    shared = {key: getattr(current, key) for key in _names(wanted) if hasattr(current, key)}
    return wanted(**{**shared, "name": values["name"]})


def _others_with(section: str, key: str) -> list[str]:
    """Graphstrap's own methods, or encoders, that have a setting."""
    names = [name for name in _REGISTRIES.get(section, ()) if _REGISTRIES[section].is_own(name)]
    return [name for name in names if key in _names(_settings_class(section, name))]


def _own_settings(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The tree of a file without settings that are retired or of other methods and encoders."""
    kept = dict(tree)
    for section in _REGISTRIES:
        if not isinstance(tree.get(section), Mapping):
            continue
        values = tree[section]
        chosen = _settings_class(section, values.get("name", getattr(Recipe(), section).name))
        kept[section] = {
            key: value
            for key, value in values.items()
            if key in _names(chosen) or not (f"{section}.{key}" in RETIRED or _others_with(section, key))
        }
    return kept


def _no_such_setting(recipe: Recipe, key: str) -> InputError:
    section, _, name = key.partition(".")
    others = _others_with(section, name)
    if others:
        chosen = getattr(recipe, section).name
        return InputError(f"{key} is a setting of {', '.join(others)}, not of {chosen}: leave it out for {chosen}")
    known = [f"{s}.{one}" for s in SECTIONS for one in _names(getattr(recipe, s))]
    return InputError(f"there is no setting {key!r}{nearest(key, known)}")


def _checked_section(section: str, given: Any) -> Any:
    """The section with plain values, each of them checked: its constructor takes anything."""
    wanted = SECTIONS[section]
    if isinstance(given, wanted) and section in _REGISTRIES:
        wanted = _settings_class(section, given.name)
    if not isinstance(given, wanted):
        raise InputError(f"{section} takes a {wanted.__name__}, got {given!r}")
    kinds = _kinds(wanted)
    values = {
        f.name: checked_value(f"{section}.{f.name}", getattr(given, f.name), kinds[f.name], f.metadata)
        for f in fields(given)
    }
    return wanted(**values)


def _check_sampling(recipe: Recipe) -> None:
    sampling, layers = recipe.sampling, len(recipe.encoder.hidden_sizes) + 1
    sampling.by_hop()
    if sampling.by_time and not sampling.disjoint:
        raise InputError("sampling.by_time is per root: set sampling.disjoint = true with it")
    if not sampling.fan_outs:
        return
    if not recipe.method_class.takes_samples:
        others = ", ".join(name for name in METHODS if METHODS.is_own(name) and METHODS.get(name).takes_samples)
        raise InputError(
            f"method {recipe.method.name} sees the whole graph at every step: leave sampling.fan_outs empty"
            f" (sampled batches are for {others})"
        )
    if recipe.encoder.norm == "graph":
        raise InputError(
            "encoder.norm=graph is over all nodes of a graph, of which a sampled batch has some: take layer or batch"
        )
    if recipe.train.graphs_per_step:
        raise InputError(
            "train.graphs_per_step draws whole graphs and sampling.fan_outs parts of them: leave one of them out"
        )
    if recipe.encoder_class.uses_up_hops and len(sampling.fan_outs) < layers:
        raise InputError(
            f"sampling.fan_outs has {len(sampling.fan_outs)} hops, but the encoder has {layers} layers: "
            "give a number for each layer"
        )


# Recipes as TOML: those that the package ships, by name, and a user's own, by path.


_MAX_BYTES = 1 << 20


def shipped_recipes() -> list[str]:
    """The names of the recipes in the package; `default` is made from the graph instead (see `graphstrap.defaults`)."""
    folder = resources.files("graphstrap.run") / "recipes"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def load_recipe(name_or_path: str) -> Recipe:
    """A shipped recipe by name, or a TOML file by path."""
    if name_or_path in shipped_recipes():
        text = (resources.files("graphstrap.run") / "recipes" / f"{name_or_path}.toml").read_text(encoding="utf-8")
        return parse_recipe(text, origin=name_or_path)
    path = Path(name_or_path)
    if path.suffix == ".toml":
        return parse_recipe(read_text(path, max_bytes=_MAX_BYTES), origin=str(path))
    known = ["default", *shipped_recipes()]
    raise InputError(
        f"there is no recipe {name_or_path!r}{nearest(name_or_path, known)}: "
        f"take one of {', '.join(known)}, or the path of a .toml file"
    )


def parse_recipe(text: str, *, origin: str) -> Recipe:
    """A recipe from TOML. Version 0.1 wrote the settings of all methods and encoders into every file: those of others
    are passed over, as they did nothing there."""
    try:
        tree = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"recipe {origin} is not valid TOML: {error}") from error
    try:
        return Recipe(name=origin).updated(_own_settings(tree))
    except InputError as error:
        raise InputError(f"recipe {origin}: {error}") from error


# Settings that training must not begin with: they do nothing, or harm. `recipe.py` refuses what could not be read back
# at all; this is asked of new runs alone, so that models and runs from before still open.


def check_new(recipe: Recipe) -> None:
    """Refuse them, each with a sentence."""
    sampling, method, kind = recipe.sampling, recipe.method, recipe.method_class
    if not kind.has_encoder and recipe.encoder.name != Recipe().encoder.name:
        raise InputError(f"{method.name} learns a vector for each node and has no encoder: leave encoder.name out")
    if recipe.views.centrality != "none" and not kind.reads_views:
        raise InputError(f"views.centrality is for methods with two views, and {method.name} has none: leave it out")
    ignored = [name for name in ("by_time", "root_types", "disjoint") if getattr(sampling, name)]
    if ignored and not sampling.fan_outs:
        raise InputError(
            f"sampling.{ignored[0]} is for sampled batches: set sampling.fan_outs with it, or leave it out"
        )
    if sampling.root_types and kind.learns_labels:
        raise InputError(
            f"{method.name} takes its roots from the node types that have labels: leave sampling.root_types out"
        )
    if not sampling.fan_outs or method.num_loss_roots(recipe) > 1:
        return
    if recipe.encoder.norm == "batch" or kind.compares_roots:
        of_one = "alone" if sampling.batch_size == 1 else "with a label"
        raise InputError(
            f"a batch of {sampling.batch_size} roots has one {of_one}, and nothing can be normalised over it: "
            "give a larger sampling.batch_size"
        )
