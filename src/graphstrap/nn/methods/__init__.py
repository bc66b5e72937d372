"""One page per method. A method has `num_views`, `loss(batch, views)`, `after_step(step)` and `embed(graph)`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from graphstrap.errors import InputError
from graphstrap.graph import Graph, View
from graphstrap.graph.keep import child_seed
from graphstrap.nn.encoders import ENCODERS
from graphstrap.nn.encoders.from_pyg import FromPyG, MakeModule
from graphstrap.nn.methods.barlow_twins import BarlowTwins
from graphstrap.nn.methods.bgrl import BGRL
from graphstrap.nn.methods.dgi import DGI
from graphstrap.nn.methods.gmi import GMI
from graphstrap.nn.methods.grace import GRACE
from graphstrap.nn.methods.mvgrl import MVGRL
from graphstrap.nn.methods.semi_supervised import SemiSupervised
from graphstrap.nn.methods.skip_gram import SkipGram
from graphstrap.run.recipe import ENCODER_NAMES, Recipe

_NORM = ("norm", "batch_norm_decay")
_ENCODER_SETTINGS: dict[str, tuple[str, ...]] = {
    "gcn": (*_NORM, "weight_standardization", "bias", "linear_end"),
    "mean-pooling": (*_NORM, "weight_standardization", "bias", "root_weight"),
    "gat": (*_NORM, "weight_standardization", "num_heads", "num_output_heads"),
    "mpnn": (*_NORM, "num_steps", "aggregation"),
    "mlp": (*_NORM, "weight_standardization"),
}
READS_EDGES = ("gat", "mpnn")  # their types, weights and columns; others at most the weights
_READS_WEIGHTS = ("gmi", "mvgrl")
_ADDED: set[str] = set()


class Method(Protocol):
    """What the training loop asks of a method, besides being a torch module."""

    num_views: int

    @property
    def online(self) -> nn.Module: ...

    def loss(self, batch: Graph, views: Sequence[View]) -> tuple[Tensor, dict[str, Tensor]]: ...

    def after_step(self, step: int | Tensor) -> None: ...

    def embed(self, graph: Graph) -> Tensor: ...


def build_bgrl(
    recipe: Recipe, *, input_sizes: Sequence[int], seed: int, num_nodes: int = 0, edge_size: int = 0
) -> BGRL:
    """BGRL with fresh weights. Online and target draw theirs from different children of the seed."""
    return BGRL(
        encoder_maker(recipe, input_sizes, edge_size),
        predictor_hidden_size=recipe.method.predictor_hidden_size,
        target_decay=recipe.method.target_decay,
        total_steps=recipe.train.steps,
        projector_size=recipe.method.projector_size,
        target_hops=recipe.method.target_hops,
        embed_with=recipe.method.embed_with,
        generators=(_generator(seed, 0), _generator(seed, 1)),
    )


def build_gmi(recipe: Recipe, *, input_sizes: Sequence[int], seed: int, num_nodes: int = 0, edge_size: int = 0) -> GMI:
    """GMI with fresh weights; 5 negatives, the authors' number, unless the recipe gives another."""
    make_encoder = encoder_maker(recipe, input_sizes, edge_size)
    return GMI(make_encoder, num_negatives=recipe.method.num_negatives or 5, generator=_generator(seed, 0))


def build_mvgrl(
    recipe: Recipe, *, input_sizes: Sequence[int], seed: int, num_nodes: int = 0, edge_size: int = 0
) -> MVGRL:
    """MVGRL with fresh weights. The two encoders draw theirs from different children of the seed."""
    generators = (_generator(seed, 0), _generator(seed, 1))
    make_encoder = encoder_maker(recipe, input_sizes, edge_size)
    return MVGRL(make_encoder, teleport_prob=recipe.method.teleport_prob, generators=generators)


def build_grace(
    recipe: Recipe, *, input_sizes: Sequence[int], seed: int, num_nodes: int = 0, edge_size: int = 0
) -> GRACE:
    """GRACE with fresh weights; GCA too, whose views alone differ."""
    return GRACE(
        encoder_maker(recipe, input_sizes, edge_size),
        temperature=recipe.method.temperature,
        projector_size=recipe.method.projector_size,
        num_negatives=recipe.method.num_negatives,
        keep_similarities=recipe.method.keep_similarities,
        generator=_generator(seed, 0),
    )


def build_barlow_twins(
    recipe: Recipe, *, input_sizes: Sequence[int], seed: int, num_nodes: int = 0, edge_size: int = 0
) -> BarlowTwins:
    """Graph Barlow Twins with fresh weights."""
    make_encoder = encoder_maker(recipe, input_sizes, edge_size)
    return BarlowTwins(make_encoder, redundancy_weight=recipe.method.redundancy_weight, generator=_generator(seed, 0))


def build_dgi(recipe: Recipe, *, input_sizes: Sequence[int], seed: int, num_nodes: int = 0, edge_size: int = 0) -> DGI:
    """DGI with fresh weights."""
    return DGI(encoder_maker(recipe, input_sizes, edge_size), generator=_generator(seed, 0))


def build_semi_supervised(
    recipe: Recipe, *, input_sizes: Sequence[int], seed: int, num_classes: int, **sizes: int
) -> SemiSupervised:
    """Semi-supervised BGRL, or GRACE, with fresh weights. Labels that are inputs are columns after the features."""
    settings = recipe.method
    more = num_classes if settings.label_inputs else 0
    build = {"bgrl": build_bgrl, "grace": build_grace}[settings.auxiliary]
    return SemiSupervised(
        build(recipe, input_sizes=[size + more for size in input_sizes], seed=seed, **sizes),
        num_classes=num_classes,
        auxiliary_weight=settings.auxiliary_weight,
        label_inputs=settings.label_inputs,
        average_decay=settings.target_decay,
        total_steps=recipe.train.steps,
        generator=_generator(seed, 2),
    )


def frozen_encoder(method: Method) -> nn.Module:
    """The encoder that embeds: the one that learns, or its average."""
    if isinstance(method, SemiSupervised):
        return method.averaged
    return method.frozen if isinstance(method, BGRL) else method.online


def build_skip_gram(
    recipe: Recipe, *, input_sizes: Sequence[int], seed: int, num_nodes: int, edge_size: int = 0
) -> SkipGram:
    """DeepWalk, or node2vec, which alone reads its two weights. Features are not looked at. 5 negatives unless the
    recipe gives another number; so many walks a step that `train.steps` of them make `walks_per_node` a node."""
    settings, is_biased = recipe.method, recipe.method.name == "node2vec"
    return SkipGram(
        num_nodes,
        recipe.encoder.embedding_size,
        num_walks=math.ceil(settings.walks_per_node * num_nodes / recipe.train.steps),
        walk_length=settings.walk_length,
        window_size=settings.window_size,
        num_negatives=settings.num_negatives or 5,
        return_weight=settings.return_weight if is_biased else 1.0,
        outward_weight=settings.outward_weight if is_biased else 1.0,
        generator=_generator(seed, 0),
    )


def encoder_maker(
    recipe: Recipe, input_sizes: Sequence[int], edge_size: int = 0
) -> Callable[[torch.Generator], nn.Module]:
    """What makes an encoder of the recipe's kind with fresh weights."""
    settings = recipe.encoder
    if settings.name in _ADDED and recipe.method.name in _READS_WEIGHTS:
        raise InputError(f"{recipe.method.name} reads the weights of its encoder: take encoder gcn, or another method")
    options: dict[str, Any] = {name: getattr(settings, name) for name in _ENCODER_SETTINGS[settings.name]}
    if settings.name in READS_EDGES:
        options["edge_size"] = edge_size

    def make_encoder(generator: torch.Generator) -> nn.Module:
        sizes = [*settings.hidden_sizes, settings.embedding_size]
        return ENCODERS[settings.name](input_sizes, sizes, generator=generator, **options)

    return make_encoder


def is_added(encoder_name: str) -> bool:
    """Whether `add_encoder` made this encoder known."""
    return encoder_name in _ADDED


def add_encoder(name: str, make_module: MakeModule) -> None:
    """Make an encoder of your own known as `encoder.name`, to every method that calls its encoder as a
    whole: all but GMI, MVGRL and the walks.

    `make_module(num_features, embedding_size)` gives a torch module that is called as `module(x, edge_index)`, as those
    of PyTorch Geometric are. Files hold its weights and its name, never its code: add it again, under the same name,
    before a run is loaded or resumed. See `encoders/from_pyg.py`.
    """
    if name in ENCODERS and name not in _ADDED:
        raise InputError(f"encoder {name!r} is Graphstrap's own: give yours another name")
    if name not in _ADDED:
        ENCODER_NAMES.append(name)
        _ADDED.add(name)
    ENCODERS[name] = partial(FromPyG, make_module)
    _ENCODER_SETTINGS[name] = ()


# Each is called as build(recipe, input_sizes=..., num_nodes=..., edge_size=..., seed=...); those that learn from labels
# also get num_classes=....
METHODS: dict[str, Callable[..., Method]] = {
    "bgrl": build_bgrl,
    "grace": build_grace,
    "gca": build_grace,
    "dgi": build_dgi,
    "gmi": build_gmi,
    "mvgrl": build_mvgrl,
    "barlow-twins": build_barlow_twins,
    "deepwalk": build_skip_gram,
    "node2vec": build_skip_gram,
    "semi-supervised": build_semi_supervised,
}


def _generator(seed: int, branch: int) -> torch.Generator:
    """The source of one of a model's sets of initial weights."""
    return torch.Generator().manual_seed(child_seed(seed, branch))
