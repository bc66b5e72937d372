"""Recipe: every setting of a run, as frozen dataclasses that are written as TOML (and read by `recipe_files.py`).

An unknown or misspelt key, a wrong type or a value out of range is an InputError that names the key and the nearest
valid one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, get_type_hints

from graphstrap.errors import InputError
from graphstrap.graph import ViewSpec
from graphstrap.io.files import read_text
from graphstrap.run.settings import check_key, checked_value, named_fan_outs, nearest, setting, toml_value

METHOD_NAMES = (
    "bgrl",
    "grace",
    "gca",
    "dgi",
    "gmi",
    "mvgrl",
    "barlow-twins",
    "deepwalk",
    "node2vec",
    "supervised",
    "semi-supervised",
)
SAMPLED_METHODS = ("bgrl", "grace", "gca", "dgi", "barlow-twins", "semi-supervised")
VIEWED_METHODS = ("bgrl", "grace", "gca", "barlow-twins", "semi-supervised")  # they drop edges and mask columns
WALKING_METHODS = ("deepwalk", "node2vec")  # they have a table of rows and no encoder
ENCODER_NAMES = ["gcn", "mean-pooling", "gat", "mpnn", "mlp"]  # `methods.add_encoder` appends to it
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
    often, each with at most `max_drop_prob` (see `views.py`); `gca` takes "pagerank" where none is named."""

    edge_drop_probs: tuple[float, float] = setting((0.3, 0.3), low=0.0, high=1.0)
    feature_mask_probs: tuple[float, float] = setting((0.2, 0.2), low=0.0, high=1.0)
    mask_elements: bool = setting(False)
    drop_directions_together: bool = setting(False)
    centrality: str = setting("none", choices=CENTRALITIES)
    max_drop_prob: float = setting(0.7, low=0.0, high=1.0)

    def specs(self) -> list[ViewSpec]:
        return [
            ViewSpec(
                edge_drop_prob=edge_drop_prob,
                feature_mask_prob=feature_mask_prob,
                mask_elements=self.mask_elements,
                drop_directions_together=self.drop_directions_together,
            )
            for edge_drop_prob, feature_mask_prob in zip(self.edge_drop_probs, self.feature_mask_probs, strict=True)
        ]


@dataclass(frozen=True)
class EncoderRecipe:
    """`batch_norm_decay` is the paper's (0.99 keeps 99 % of the old statistics); 0.01 is how the authors' code reads
    it. The sizes are those of layers; of one head of each layer for `gat`; of the MLPs' hidden layers and of the states
    for `mpnn`. `norm` "graph" is for `gcn` and `mean-pooling`, `root_weight` for `mean-pooling`, `num_heads` and
    `num_output_heads` for `gat`, `num_steps` and `aggregation` (of messages) for `mpnn`.

    `bias`: whether `gcn` and `mean-pooling` add one in front of a norm that is not batch norm, as in the authors' code.
    The paper's equations have none, and a high rate makes it outgrow small features, alike for all nodes.
    `linear_end`: no norm and no PReLU after the last layer of `gcn`.
    `norm`: over the nodes of a batch, over a node's columns, or over all nodes and columns of each graph.
    `own_features`: how many columns of the node's own features, compressed, are appended to the embedding; 0 for none.
    `own_weight`: how long their row is beside the embedding's, whose length is 1: more where raw features are better.
    `batch_norm_statistics`: "running" averages of training views, or "recalibrated" on the clean graph before freezing.
    """

    name: str = setting("gcn", choices=ENCODER_NAMES, advice="graphstrap.add_encoder makes another known")
    hidden_sizes: tuple[int, ...] = setting((256,), low=1, high=65536)
    embedding_size: int = setting(128, low=1, high=65536)
    own_features: int = setting(0, low=0, high=4096)
    own_weight: float = setting(1.0, low=0.0, high=1000.0)
    norm: str = setting("batch", choices=("batch", "layer", "graph", "none"))
    weight_standardization: bool = setting(False)
    bias: bool = setting(True)
    linear_end: bool = setting(False)
    batch_norm_decay: float = setting(0.99, low=0.0, high=1.0)
    batch_norm_statistics: str = setting("running", choices=("running", "recalibrated"))
    root_weight: bool = setting(False)
    num_heads: int = setting(4, low=1, high=1024)
    num_output_heads: int = setting(6, low=1, high=1024)
    num_steps: int = setting(4, low=1, high=1024)
    aggregation: str = setting("mean", choices=("mean", "sum"))


@dataclass(frozen=True)
class MethodRecipe:
    """The method and its settings; each method's page says which it reads.

    `projector_size` 0 means none for BGRL (the paper's choice) and the embedding's size for the contrastive methods.
    `target_hops` is over how many hops BGRL's targets are averaged, `embed_with` which of its networks embeds.
    `num_negatives` 0 means all other nodes; `keep_similarities` holds all pairs in memory, as GRACE's code does.
    For semi-supervised: `auxiliary` is the signal besides labels and `auxiliary_weight` what it counts (0: plain
    supervised), `unlabelled_ratio` how many roots without a label a sampled batch has for each one with,
    `label_inputs` whether a root sees its neighbours' training labels, `inference_passes` how many sampled passes
    predictions are averaged over.
    """

    name: str = setting("bgrl", choices=METHOD_NAMES)
    predictor_hidden_size: int = setting(512, low=1, high=65536)
    target_decay: float = setting(0.99, low=0.0, high=1.0)
    projector_size: int = setting(0, low=0, high=65536)
    target_hops: int = setting(0, low=0, high=16)
    embed_with: str = setting("online", choices=("online", "target"))
    temperature: float = setting(0.5, low=1e-3, high=100.0)
    num_negatives: int = setting(0, low=0)
    keep_similarities: bool = False
    redundancy_weight: float = setting(0.0, low=0.0, high=100.0)
    teleport_prob: float = setting(0.2, low=1e-3, high=1.0)
    walk_length: int = setting(80, low=2, high=10_000)
    walks_per_node: int = setting(10, low=1, high=10_000)
    window_size: int = setting(5, low=1, high=1000)
    return_weight: float = setting(1.0, low=1e-3, high=1000.0)
    outward_weight: float = setting(1.0, low=1e-3, high=1000.0)
    auxiliary: str = setting("bgrl", choices=("bgrl", "grace"))
    auxiliary_weight: float = setting(1.0, low=0.0, high=1000.0)
    unlabelled_ratio: float = setting(10.0, low=0.0, high=1e6)
    label_inputs: bool = setting(False)
    inference_passes: int = setting(1, low=1, high=1000)


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
    `train/precision.py`); `graphs_per_step` is how many whole graphs a step sees, where there are several; 0 means
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
    name: str = "custom"
    data: DataRecipe = DataRecipe()
    views: ViewsRecipe = ViewsRecipe()
    encoder: EncoderRecipe = EncoderRecipe()
    method: MethodRecipe = MethodRecipe()
    sampling: SamplingRecipe = SamplingRecipe()
    train: TrainRecipe = TrainRecipe()

    def __post_init__(self) -> None:
        checked_value("name", self.name, str, {})
        for section in SECTIONS:
            object.__setattr__(self, section, _checked_section(section, getattr(self, section)))
        _check_sampling(self)
        if self.train.warmup_steps > self.train.steps:
            raise InputError(
                f"train.warmup_steps ({self.train.warmup_steps}) must not exceed train.steps ({self.train.steps})"
            )
        if self.train.graphs_per_step and self.method.name in WALKING_METHODS:
            raise InputError(f"{self.method.name} knows nodes by number, so it sees all graphs: use graphs_per_step=0")
        _check_encoder(self.encoder)

    def with_settings(self, settings: Mapping[str, Any]) -> Recipe:
        """A copy with dotted keys replaced, such as {"train.steps": 2000}. Fewer steps shorten the warm-up in
        proportion."""
        tree: dict[str, Any] = {section: {} for section in SECTIONS}
        for key, value in settings.items():
            section, _, name = key.partition(".")
            check_key(key, [f"{s}.{f.name}" for s in SECTIONS for f in fields(SECTIONS[s])])
            tree[section][name] = value
        return self.updated(tree)

    def updated(self, tree: Mapping[str, Any]) -> Recipe:
        """A copy with the values of a tree of sections and keys, as TOML is read to, each of them checked."""
        changes: dict[str, Any] = {}
        for section, values in tree.items():
            check_key(section, ["name", *SECTIONS])
            if section == "name":
                changes["name"] = checked_value("name", values, str, {})
                continue
            if not isinstance(values, Mapping):
                raise InputError(f"{section} is a section: write [{section}] and its keys below it")
            kinds = _kinds(section)
            rules = {f.name: f.metadata for f in fields(SECTIONS[section])}
            checked = {}
            for key, value in values.items():
                if f"{section}.{key}" in RETIRED:
                    continue
                check_key(f"{section}.{key}", [f"{section}.{name}" for name in rules])
                checked[key] = checked_value(f"{section}.{key}", value, kinds[key], rules[key])
            if "steps" in checked and "warmup_steps" not in checked:
                checked["warmup_steps"] = round(self.train.warmup_steps * checked["steps"] / self.train.steps)
            changes[section] = replace(getattr(self, section), **checked)
        method, views = changes.get("method", self.method), changes.get("views", self.views)
        is_new, is_named = method.name == "gca" != self.method.name, "centrality" in tree.get("views", {})
        if is_new and not is_named and views.centrality == "none":
            changes["views"] = replace(views, centrality="pagerank")  # without any, it would be GRACE
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
    "encoder": EncoderRecipe,
    "method": MethodRecipe,
    "sampling": SamplingRecipe,
    "train": TrainRecipe,
}


@cache
def _kinds(section: str) -> dict[str, Any]:
    return get_type_hints(SECTIONS[section])


def _checked_section(section: str, given: Any) -> Any:
    """The section with plain values, each of them checked: its constructor takes anything."""
    if not isinstance(given, SECTIONS[section]):
        raise InputError(f"{section} takes a {SECTIONS[section].__name__}, got {given!r}")
    kinds = _kinds(section)
    values = {
        f.name: checked_value(f"{section}.{f.name}", getattr(given, f.name), kinds[f.name], f.metadata)
        for f in fields(given)
    }
    return SECTIONS[section](**values)


def num_labelled_roots(recipe: Recipe) -> int:
    """How many of a batch's roots have a label in semi-supervised training, at least 1."""
    size = recipe.sampling.batch_size
    return min(max(1, round(size / (1.0 + recipe.method.unlabelled_ratio))), size)


def _check_encoder(encoder: EncoderRecipe) -> None:
    """Settings that do not go together."""
    name = encoder.name
    if encoder.norm == "graph" and name not in ("gcn", "mean-pooling"):
        raise InputError(f"encoder.norm=graph is for gcn and mean-pooling: take batch, layer or none for {name}")
    if encoder.weight_standardization and name == "mpnn":
        raise InputError("encoder.weight_standardization is not for mpnn: switch it off")
    if encoder.linear_end and name != "gcn":
        raise InputError(f"encoder.linear_end is for gcn: switch it off for {name}")
    if encoder.own_weight != 1.0 and not encoder.own_features:
        raise InputError("encoder.own_weight is that of own features, and there are none: set encoder.own_features too")
    if name == "mpnn" and not encoder.hidden_sizes:
        raise InputError("encoder.hidden_sizes are the hidden layers of the mpnn's MLPs: give at least one")
    if name == "mean-pooling" and len(set(encoder.hidden_sizes)) > 1:
        raise InputError("encoder.hidden_sizes must all be the same for mean-pooling, which adds them up")


def _check_sampling(recipe: Recipe) -> None:
    sampling, layers = recipe.sampling, len(recipe.encoder.hidden_sizes) + 1
    sampling.by_hop()
    if sampling.by_time and not sampling.disjoint:
        raise InputError("sampling.by_time is per root: set sampling.disjoint = true with it")
    if recipe.method.label_inputs and (not sampling.fan_outs or recipe.views.centrality != "none"):
        raise InputError(
            "method.label_inputs hides the labels of a batch's roots, and without sampling every node is one: "
            "set sampling.fan_outs, and leave views.centrality at none"
        )
    if not sampling.fan_outs:
        return
    if recipe.method.target_hops:
        raise InputError(
            "method.target_hops averages over the neighbours of every node, and a sampled batch has roots alone: "
            "set it to 0, or leave sampling.fan_outs empty"
        )
    if recipe.method.name not in SAMPLED_METHODS:
        raise InputError(
            f"method {recipe.method.name} sees the whole graph at every step: leave sampling.fan_outs empty"
            f" (sampled batches are for {', '.join(SAMPLED_METHODS)})"
        )
    if recipe.encoder.norm == "graph":
        raise InputError(
            "encoder.norm=graph is over all nodes of a graph, of which a sampled batch has some: take layer or batch"
        )
    if recipe.train.graphs_per_step:
        raise InputError(
            "train.graphs_per_step draws whole graphs and sampling.fan_outs parts of them: leave one of them out"
        )
    if recipe.encoder.name == "gcn" and len(sampling.fan_outs) < layers:
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
    try:
        tree = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"recipe {origin} is not valid TOML: {error}") from error
    try:
        return Recipe(name=origin).updated(tree)
    except InputError as error:
        raise InputError(f"recipe {origin}: {error}") from error


# Settings that training must not begin with: they do nothing, or harm. `recipe.py` refuses what could not be read back
# at all; this is asked of new runs alone, so that models and runs from before still open.


def check_new(recipe: Recipe) -> None:
    """Refuse them, each with a sentence."""
    sampling, method, name = recipe.sampling, recipe.method, recipe.encoder.name
    if method.embed_with == "target" and method.name != "bgrl":
        raise InputError(f"method.embed_with=target is for bgrl, whose target it is: leave it for {method.name}")
    if method.target_hops and method.name != "bgrl":
        raise InputError(f"method.target_hops is for bgrl, whose targets it averages: leave it for {method.name}")
    if name != "gcn" and method.name in WALKING_METHODS:
        raise InputError(f"{method.name} has a table of rows and no encoder: leave encoder.name out")
    if (method.return_weight, method.outward_weight) != (1.0, 1.0) and method.name != "node2vec":
        raise InputError(f"method.return_weight and outward_weight are for node2vec: leave them for {method.name}")
    if recipe.views.centrality != "none" and method.name not in VIEWED_METHODS:
        raise InputError(f"views.centrality is for methods with two views, and {method.name} has none: leave it out")
    if not recipe.encoder.bias and name in ("gat", "mpnn", "mlp"):
        raise InputError(f"encoder.bias=false is for gcn and mean-pooling: leave it true for {name}")
    ignored = [name for name in ("by_time", "root_types", "disjoint") if getattr(sampling, name)]
    if ignored and not sampling.fan_outs:
        raise InputError(
            f"sampling.{ignored[0]} is for sampled batches: set sampling.fan_outs with it, or leave it out"
        )
    if sampling.root_types and recipe.method.name == "semi-supervised":
        raise InputError(
            "semi-supervised takes its roots from the node types that have labels: leave sampling.root_types out"
        )
    if not sampling.fan_outs:
        return
    is_mixed = recipe.method.name == "semi-supervised" and sampling.disjoint  # what learns from labels sees these alone
    num_roots = num_labelled_roots(recipe) if is_mixed else sampling.batch_size
    if num_roots == 1 and (recipe.encoder.norm == "batch" or recipe.method.name == "barlow-twins"):
        raise InputError(
            f"a batch of {sampling.batch_size} roots has one {'with a label' if is_mixed else 'alone'}, and nothing can"
            " be normalised over it: give a larger sampling.batch_size"
        )
