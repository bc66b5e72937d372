"""The rows of the tables: each a method with its settings on each graph.

A trained row starts from the graph's own recipe (widths, feature scaling, augmentation) and replaces what its method
needs. Where the settings come from stands beside them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from typing import Any

from graphstrap.errors import InputError
from graphstrap.run.recipe import ENCODERS, METHODS, SECTIONS, Recipe, load_recipe, shipped_recipes
from graphstrap_lab.reproduce.beside_recipes import changed_beside

# --quick: so many steps, fewer where each takes long, and so many negatives where there would be all nodes.
QUICK_STEPS = 100
QUICK_NEGATIVES = 256
_FEWER_QUICK_STEPS = {"grace": 60, "gca": 60, "mvgrl": 8, "gmi": 30}

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
    tuned_on: tuple[str, ...] = ()
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
    if variant.kind in ("trained", "random-init"):
        encoder = _settings_of(name, dataset).get("encoder.name") or base_of(name, dataset).encoder.name
        return "" if encoder in ENCODERS else f"needs the encoder {encoder}"
    return ""


def settings_id(name: str, dataset: str, *, quick: bool) -> str:
    """Tells one set of settings of a row from another; `quick-` in front where training was cut short."""
    kind, beside = VARIANTS[name].kind, changed_beside(VARIANTS[name].kind, quick=quick)
    if kind not in ("trained", "random-init"):
        digest = settings_digest(Recipe(), kind, beside)
    else:
        digest = settings_digest(recipe_of(name, dataset, quick=quick), kind, beside, also=flat(base_of(name, dataset)))
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
    return {f"{s}.{key}": value for s in SECTIONS for key, value in asdict(getattr(recipe, s)).items()}


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


def _contrastive(
    size: int,
    rate: float,
    steps: int,
    temperature: float,
    *,
    edges: tuple[float, float],
    columns: tuple[float, float],
    projector: int | None = None,
) -> Settings:
    """A line of GRACE's or GCA's configuration files: layers of 2 x size and size, no normalisation, constant rate."""
    return {
        "method.projector_size": projector or size,
        "method.temperature": temperature,
        "encoder.hidden_sizes": (2 * size,),
        "encoder.embedding_size": size,
        "encoder.norm": "none",
        "encoder.bias": True,
        "train.learning_rate": rate,
        "train.steps": steps,
        "train.warmup_steps": 0,
        "train.schedule": "constant",
        "views.edge_drop_probs": edges,
        "views.feature_mask_probs": columns,
    }


# Cora, CiteSeer, PubMed and DBLP: GRACE's repository; the others but ogbn-arxiv: GCA's, whose objective is the same.
# GRACE as the paper ran it may have differed: it names batch norm and 10,000 steps for all of its own models, and
# prints other numbers for GCA without centralities, which these settings are, than for GRACE.
# Its rate on Amazon Photo is 0.1, at which all embeddings have collapsed here by step 50; 0.01 is its default.
_CONTRASTIVE: Mapping[str, Settings] = {
    "cora": _contrastive(128, 5e-4, 200, 0.4, edges=(0.2, 0.4), columns=(0.3, 0.4)),
    "citeseer": _contrastive(256, 1e-3, 200, 0.9, edges=(0.2, 0.0), columns=(0.3, 0.2)),
    "pubmed": _contrastive(256, 1e-3, 1500, 0.7, edges=(0.4, 0.1), columns=(0.0, 0.2)),
    "dblp": _contrastive(256, 1e-3, 1000, 0.7, edges=(0.1, 0.4), columns=(0.1, 0.0)),
    "wikics": {
        **_contrastive(256, 1e-2, 3000, 0.4, edges=(0.2, 0.3), columns=(0.1, 0.1)),
        "data.feature_scaling": "row",
    },
    "amazon-photo": _contrastive(256, 1e-2, 2000, 0.3, edges=(0.3, 0.5), columns=(0.1, 0.1), projector=64),
    "amazon-computers": _contrastive(128, 1e-2, 2000, 0.2, edges=(0.6, 0.3), columns=(0.2, 0.3)),
    "coauthor-cs": _contrastive(256, 5e-4, 1000, 0.4, edges=(0.3, 0.2), columns=(0.3, 0.4)),
    "coauthor-physics": _contrastive(128, 1e-2, 1500, 0.5, edges=(0.4, 0.1), columns=(0.1, 0.4), projector=64),
    "ogbn-arxiv": {"method.projector_size": 256},  # all else as the paper has it for BGRL there
}

# Without batch norm, which the paper has in all of its own models, GRACE is 2 points worse on Amazon Computers
# (lab/benchmarks/tune_grace.py).
_GRACE: Mapping[str, Settings] = {
    **_CONTRASTIVE,
    "amazon-computers": {**_CONTRASTIVE["amazon-computers"], "encoder.norm": "batch"},
}

# What the authors' repository records of the runs behind its tables; rates and widths are those of BGRL's recipes.
_BARLOW_TWINS: Mapping[str, Settings] = {
    "wikics": {"views.edge_drop_probs": (0.2, 0.2), "views.feature_mask_probs": (0.1, 0.1)},
    "amazon-photo": {"views.edge_drop_probs": (0.0, 0.0), "views.feature_mask_probs": (0.5, 0.5)},
    "amazon-computers": {"views.edge_drop_probs": (0.4, 0.4), "views.feature_mask_probs": (0.1, 0.1)},
    "coauthor-cs": {"views.edge_drop_probs": (0.5, 0.5), "views.feature_mask_probs": (0.1, 0.1)},
    "coauthor-physics": {"views.edge_drop_probs": (0.1, 0.1), "views.feature_mask_probs": (0.4, 0.4)},
}

# One layer of 512 and a constant rate of 1e-3, as in the authors' code of DGI, GMI and MVGRL, which stop early on the
# training loss; here the number of steps is fixed.
_ONE_LAYER: Settings = {
    "encoder.name": "gcn",
    "encoder.hidden_sizes": (),
    "encoder.embedding_size": 512,
    "encoder.norm": "none",
    "encoder.bias": True,
    "train.learning_rate": 1e-3,
    "train.steps": 500,
    "train.warmup_steps": 0,
    "train.schedule": "constant",
}
# DGI on ogbn-arxiv, which the paper ran itself: its encoder and its steps for BGRL there.
_ARXIV: Mapping[str, Settings] = {
    "ogbn-arxiv": {
        "encoder.hidden_sizes": (256, 256),
        "encoder.embedding_size": 256,
        "encoder.norm": "layer",
        "encoder.bias": False,
        "train.learning_rate": 1e-2,
        "train.steps": 10_000,
        "train.warmup_steps": 1000,
        "train.schedule": "cosine",
    }
}
# Ours: the paper took these rows from others, and AdamW needs other rates than SGD. node2vec's p and q let walks leave.
_WALKS: Settings = {
    "encoder.embedding_size": 256,
    "train.learning_rate": 1e-2,
    "train.steps": 2000,
    "train.warmup_steps": 0,
}


def _adaptive(centrality: str) -> Settings:
    return {"views.centrality": centrality}


def _subsampled(num_negatives: int) -> Variant:
    title = f"GRACE, {num_negatives} negatives"
    settings = {"method.name": "grace", "method.num_negatives": num_negatives}
    return Variant(title, settings=settings, by_dataset=_CONTRASTIVE)


def _gca(title: str, centrality: str) -> Variant:
    return Variant(title, settings={"method.name": "gca", **_adaptive(centrality)}, by_dataset=_CONTRASTIVE)


def _mag(title: str, *, encoder: str = "mpnn", **method: Any) -> Variant:
    """A row of MAG240M's figures; see `mag_cells.py` for what they share."""
    return Variant(title, settings={f"method.{name}": value for name, value in method.items()}, encoder=encoder)


VARIANTS: dict[str, Variant] = {
    "raw": Variant("Raw features", "raw"),
    "deepwalk": Variant("DeepWalk", settings={"method.name": "deepwalk", **_WALKS}),
    "deepwalk-features": Variant(
        "DeepWalk + features", settings={"method.name": "deepwalk", **_WALKS}, append_features=True
    ),
    "node2vec": Variant(
        "node2vec",
        settings={"method.name": "node2vec", "method.outward_weight": 0.5, "method.return_weight": 2.0, **_WALKS},
    ),
    "dgi": Variant("DGI", settings={"method.name": "dgi", **_ONE_LAYER}, by_dataset=_ARXIV),
    "gmi": Variant("GMI", settings={"method.name": "gmi", **_ONE_LAYER, "train.steps": 550}),
    "mvgrl": Variant("MVGRL", settings={"method.name": "mvgrl", **_ONE_LAYER}),
    "random-init": Variant("Random init", "random-init"),
    "grace": Variant("GRACE", settings={"method.name": "grace"}, by_dataset=_GRACE, tuned_on=("amazon-computers",)),
    "grace-2": _subsampled(2),
    "grace-8": _subsampled(8),
    "grace-32": _subsampled(32),
    "grace-2048": _subsampled(2048),
    "bgrl": Variant("BGRL"),
    "bgrl-best": Variant(  # found by lab/benchmarks/tune_best.py
        "BGRL, recipes `best`",
        family="best",
        tuned_on=("amazon-photo", "amazon-computers", "coauthor-cs", "coauthor-physics"),
    ),
    "bgrl-degree": Variant("BGRL, degree", settings=_adaptive("degree")),
    "bgrl-pagerank": Variant("BGRL, PageRank", settings=_adaptive("pagerank")),
    "bgrl-eigenvector": Variant("BGRL, eigenvector", settings=_adaptive("eigenvector")),
    "bgrl-projector": Variant("BGRL with a projector", settings={"method.projector_size": 256}),
    "gca-standard": Variant(  # uniform views: GRACE
        "GCA, standard", settings={"method.name": "grace"}, by_dataset=_CONTRASTIVE, kept_as="grace"
    ),
    "gca-degree": _gca("GCA, degree", "degree"),
    "gca-pagerank": _gca("GCA, PageRank", "pagerank"),
    "gca-eigenvector": _gca("GCA, eigenvector", "eigenvector"),
    "barlow-twins": Variant(
        "Graph Barlow Twins",
        settings={
            "method.name": "barlow-twins",
            "encoder.linear_end": True,
            "train.steps": 1000,
            "train.warmup_steps": 100,
        },
        by_dataset=_BARLOW_TWINS,
    ),
    "bgrl-gat": Variant("BGRL, GAT", encoder="gat"),
    "grace-gat": Variant("GRACE, GAT", settings={"method.name": "grace"}, encoder="gat"),
    "grace-2-gat": Variant(
        "GRACE, 2 negatives, GAT", settings={"method.name": "grace", "method.num_negatives": 2}, encoder="gat"
    ),
    "label-propagation": Variant("Label propagation", "label-propagation"),
    "supervised-mlp": Variant("Supervised MLP", "supervised-mlp"),
    "supervised-gcn": Variant("Supervised GCN", "supervised-gcn"),
    "supervised-mean": Variant("Supervised mean pooling", "printed"),
    "supervised-gat": Variant("Supervised GAT", "printed"),
    "mag-supervised": _mag("Supervised", auxiliary_weight=0.0, unlabelled_ratio=0.0),
    "mag-grace-256": _mag("+ GRACE, 256 negatives", auxiliary="grace", num_negatives=256, unlabelled_ratio=0.0),
    "mag-bgrl-0": _mag("+ BGRL", unlabelled_ratio=0.0),
    "mag-bgrl-1": _mag("+ BGRL, 1 unlabelled", unlabelled_ratio=1.0),
    "mag-bgrl-10": _mag("+ BGRL, 10 unlabelled", unlabelled_ratio=10.0),
    "mag-bgrl-0-projector": _mag("+ BGRL with a projector", unlabelled_ratio=0.0, projector_size=256),
    "mag-gcn-supervised": _mag("Supervised, GCN", encoder="gcn", auxiliary_weight=0.0, unlabelled_ratio=0.0),
    "mag-gcn-grace-256": _mag(
        "+ GRACE, GCN", encoder="gcn", auxiliary="grace", num_negatives=256, unlabelled_ratio=0.0
    ),
    "mag-gcn-bgrl-0": _mag("+ BGRL, GCN", encoder="gcn", unlabelled_ratio=0.0),
    "mag-frozen-bgrl": _mag("BGRL, frozen", name="bgrl"),
    "mag-frozen-grace": _mag("GRACE, 256 negatives, frozen", name="grace", num_negatives=256),
    "mag-label-propagation": Variant("Label propagation", "label-propagation"),
}
