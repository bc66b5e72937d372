"""The estimator: `BGRL(...).fit(graph).embed(graph)`, with scikit-learn's manners."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from graphstrap.blocks import Block
from graphstrap.defaults import choose_recipe
from graphstrap.embed import class_probabilities, embed, prepare, with_labels_to_learn
from graphstrap.encoders import recalibrate_batch_norm
from graphstrap.errors import InputError
from graphstrap.evaluate import evaluate, fit_probe
from graphstrap.graph import Graph
from graphstrap.io.parts import Part
from graphstrap.layerwise import full_pass_fits, has_layers, recalibrate_layers
from graphstrap.many_graphs import training_part
from graphstrap.methods import Method, frozen_encoder
from graphstrap.methods.semi_supervised import SemiSupervised, training_labels
from graphstrap.model import Model, Shapes
from graphstrap.ops import resolve_device
from graphstrap.parallel import ALONE, Workers, check_parts, check_shareable, train_in_parallel
from graphstrap.part_layers import finish_in_parts
from graphstrap.recipe import Recipe, load_recipe
from graphstrap.run import START_FILE, Run
from graphstrap.scaled import sample_rows
from graphstrap.train import Evaluate, Mirror, Trainee, place_graph, train_together

Contents = tuple[dict[str, Tensor], dict[str, Any]]

_CHECKED_AT_ONCE = 1 << 26
_DEFAULTS: dict[str, Any] = {"recipe": "default", "settings": None, "seed": 0, "device": "auto"}


@dataclass(frozen=True, eq=False)
class Predictions:
    """For each node asked about: its number, the most probable class, and the probability of every class."""

    nodes: np.ndarray[Any, Any]  # (M,)
    labels: np.ndarray[Any, Any]  # (M,) class numbers
    probabilities: np.ndarray[Any, Any]  # (M, C)


class BGRL:
    """Learn node embeddings without labels by bootstrapping.

    Args:
        recipe: "default" (made from the graph), a shipped recipe's name, the path of a TOML file, or a Recipe.
        settings: dotted keys that replace the recipe's, such as {"train.steps": 2000}.
        seed: fixes initial weights and every view: the same seed on the same machine gives the same bits.
        device: "auto", "cpu" or "cuda".

    After `fit`: `model_` (weights, recipe, feature transform), `recipe_`, `reasons_` (what `default` chose, and why),
    `metrics_` (what was logged).
    """

    model_: Model
    recipe_: Recipe
    reasons_: list[str]
    metrics_: list[dict[str, Any]]

    def __init__(
        self,
        *,
        recipe: str | Recipe = "default",
        settings: Mapping[str, Any] | None = None,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        self.recipe = recipe
        self.settings = settings
        self.seed = seed
        self.device = device

    def fit(
        self,
        graph: Graph,
        y: Any = None,
        *,
        run: str | Path | None = None,
        source: Mapping[str, Any] | None = None,
        start_from: BGRL | None = None,
        mirrors: Sequence[Mirror] = (),
        progress: bool = False,
        workers: Workers = ALONE,
    ) -> Self:
        """Train on a graph; its labels are not looked at, nor is `y`. With `run`, leave a folder that can be resumed.

        `start_from` takes the weights of another fitted estimator: for a graph that has changed since. `mirrors` are
        called with every record of metrics (see `train/mirror.py`). Where several `workers` train one model (see
        `parallel/`), each calls `fit` with the same arguments, and the first one writes the run folder.
        """
        start = self.build(graph, start_from=start_from)
        check_shareable(self.model_.recipe, workers)
        check_parts(graph, self.model_.recipe, workers)
        prepared = self.model_.transform(graph)  # what can fail has failed before the folder appears
        folder = None
        if run is not None and workers.is_first:
            folder = self.create_run(Path(run), graph, source=source or {}, start=start)
        train_estimators([self], graph, prepared, [folder], mirrors=mirrors, progress=progress, workers=workers)
        return self

    def build(self, graph: Graph, *, start_from: BGRL | None = None) -> Contents | None:
        """Make an untrained `model_`; where it starts from another's weights, return those."""
        recipe = self.resolve(graph)
        if recipe.method.name == "semi-supervised":
            check_labels(graph)
        self.model_ = build_model(graph, recipe, seed=self.seed)
        if start_from is None:
            return None
        self.model_ = self.model_.started_from(start_from._fitted())
        return self.model_.contents()

    def create_run(
        self, folder: Path, graph: Graph, *, source: Mapping[str, Any], start: Contents | None = None
    ) -> Run:
        """The folder that this estimator's training is to live in."""
        device = str(resolve_device(self.device))
        recipe = self._fitted().recipe
        return Run.create(folder, recipe=recipe, source=source, seed=self.seed, device=device, graph=graph, start=start)

    def resolve(self, graph: Graph) -> Recipe:
        """The recipe that `fit` would run on this graph; `reasons_` then says what was chosen and why."""
        check_trainable(graph)
        recipe, self.reasons_ = resolve_recipe(self.recipe, graph, self.settings or {})
        return recipe

    @classmethod
    def resume(cls, run: str | Path, graph: Graph, *, progress: bool = False, workers: Workers = ALONE) -> Self:
        """Go on with an interrupted run, exactly where its last checkpoint stands."""
        folder = Run.open(Path(run))
        estimator = cls.of_run(folder, graph)
        prepared = estimator.model_.transform(graph)
        train_estimators([estimator], graph, prepared, [folder], progress=progress, workers=workers)
        return estimator

    @classmethod
    def of_run(cls, run: Run, graph: Graph) -> Self:
        """The estimator of an unfinished run, as it was before training began."""
        if run.info["graph"]["fingerprint"] != graph.fingerprint:
            raise InputError(f"the graph has changed since {run.folder} was started: fit it anew, into another folder")
        estimator = cls(recipe=run.recipe, seed=run.info["seed"], device=run.info["device"])
        estimator.reasons_ = []
        if run.info.get("warm_start"):
            estimator.model_ = Model.load(run.folder, file_name=START_FILE)
        else:
            estimator.model_ = build_model(graph, run.recipe, seed=estimator.seed, saved=run.saved_shapes())
        return estimator

    def embed(self, graph: Graph, *, how: str = "auto") -> np.ndarray[Any, Any]:
        """(N, D) embeddings of this graph or another one with the same feature columns. Nothing is trained.

        `how` is "full", "layers" or "sampled" (see `graphstrap.embed`); "auto" chooses by what fits into memory.
        """
        return embed(self._fitted(), graph, device=resolve_device(self.device), how=how)

    def classify(self, graph: Graph, nodes: Any) -> np.ndarray[Any, Any]:
        """(M, C) class probabilities of these nodes, by the head of a semi-supervised model."""
        model = self._fitted()
        if not isinstance(model.method, SemiSupervised):
            raise InputError(f"{model.recipe.method.name} learns no classes: take method semi-supervised, or predict")
        numbers = torch.as_tensor(nodes, dtype=torch.int64)
        return class_probabilities(model, graph, nodes=numbers, device=resolve_device(self.device))

    def transform(self, graph: Graph) -> np.ndarray[Any, Any]:
        """`embed`, by the name that scikit-learn's pipelines know."""
        return self.embed(graph)

    def fit_transform(self, graph: Graph, y: Any = None) -> np.ndarray[Any, Any]:
        return self.fit(graph).embed(graph)

    def predict(self, graph: Graph, *, h: np.ndarray[Any, Any] | None = None) -> Predictions:
        """Labels and probabilities for the unlabelled nodes, by a linear probe fitted on the labelled ones; by its own
        head where the method is semi-supervised."""
        if graph.labels is None or graph.labels.dim() != 1:
            raise InputError("predict needs one label column in which some nodes have a label and others do not")
        labels = graph.labels.cpu().numpy()
        known, unknown = np.flatnonzero(labels >= 0), np.flatnonzero(labels < 0)
        if len(np.unique(labels[known])) < 2:
            raise InputError(
                f"predict needs labelled nodes of at least two classes, got {len(known)} labelled nodes of one"
            )
        if len(unknown) == 0:
            raise InputError("every node has a label already: leave the label empty where it is to be predicted")
        if isinstance(self._fitted().method, SemiSupervised):
            unknown = _of_labelled_types(graph, unknown)
            probabilities = self.classify(graph, unknown)
            return Predictions(unknown, probabilities.argmax(1), probabilities)
        h = self.embed(graph) if h is None else h
        probe = fit_probe(h, labels, train=known, seed=self.seed, num_classes=graph.num_classes)
        probabilities = probe.probabilities(h[unknown])
        return Predictions(unknown, probabilities.argmax(1), probabilities)

    def save(self, folder: str | Path) -> None:
        """Write `model.safetensors` into a folder."""
        self._fitted().save(Path(folder))

    @classmethod
    def load(cls, folder: str | Path, *, device: str = "auto") -> Self:
        """Read what `save` wrote, or a finished run folder."""
        model = Model.load(Path(folder))
        estimator = cls(recipe=model.recipe, seed=model.seed, device=device)
        estimator.model_, estimator.recipe_, estimator.reasons_ = model, model.recipe, []
        return estimator

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {"recipe": self.recipe, "settings": self.settings, "seed": self.seed, "device": self.device}

    def set_params(self, **parameters: Any) -> Self:
        for name, value in parameters.items():
            if name not in self.get_params():
                raise ValueError(f"there is no parameter {name!r}: take one of {', '.join(self.get_params())}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        changed = {name: value for name, value in self.get_params().items() if value != _DEFAULTS[name]}
        return f"BGRL({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        """A transformer of graphs: it checks them by itself, and needs no target."""
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type="transformer",
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(preserves_dtype=[]),
            input_tags=InputTags(two_d_array=False),
            no_validation=True,
        )

    def _fitted(self) -> Model:
        if not hasattr(self, "model_"):
            raise InputError("this estimator is not fitted yet: call fit(graph) first")
        return self.model_


def train_estimators(
    estimators: Sequence[BGRL],
    graph: Graph,
    prepared: Graph,
    runs: Sequence[Run | None],
    *,
    mirrors: Sequence[Mirror] = (),
    progress: bool = False,
    workers: Workers = ALONE,
) -> None:
    """Train estimators of one recipe side by side, or one by several workers; `prepared` is the graph as their common
    transform gives it."""
    device = resolve_device(estimators[0].device)
    model, recipe = estimators[0].model_, estimators[0].model_.recipe
    on_device = place_graph(
        with_labels_to_learn(training_part(prepared, recipe.data.training_graphs), model), recipe, device
    )
    if isinstance(on_device, Part):
        own = with_labels_to_learn(model.transform.when_read(on_device.own), model)
        on_device = replace(on_device, own=own)
    trainees = []
    for estimator, run in zip(estimators, runs, strict=True):
        model = estimator.model_
        estimator.recipe_ = model.recipe
        model.module.to(device)
        trainees.append(Trainee(model.method, estimator.seed, run, _evaluation(model, graph, on_device), mirrors))
    recipe = estimators[0].recipe_
    if workers.size > 1:
        assert len(trainees) == 1
        logs = [train_in_parallel(trainees[0], on_device, recipe=recipe, workers=workers, progress=progress)]
    else:
        logs = train_together(trainees, on_device, recipe=recipe, progress=progress)
    for estimator, run, records in zip(estimators, runs, logs, strict=True):
        estimator.metrics_ = records
        if isinstance(on_device, Part):
            finish_in_parts(estimator.model_, on_device, workers)
        elif workers.is_first:
            _finish(estimator.model_, on_device)
        if workers.is_first and run is not None:
            estimator.model_.save(run.folder)
        workers.take_module_from_first(estimator.model_.module)


def _evaluation(model: Model, graph: Graph, prepared: Graph) -> Evaluate | None:
    """How a model is evaluated while it trains; None where there is nothing to evaluate with."""
    if graph.labels is None or (graph.labels.dim() == 2 and graph.splits is None) or isinstance(graph, Part):
        return None
    if isinstance(model.method, SemiSupervised):
        return _validation(model, graph, prepared)
    protocol = "paper" if graph.labels.dim() == 1 else "adamw"

    def evaluate_now(method: Method) -> dict[str, float]:
        device = next(model.module.parameters()).device
        with _finished(model, prepared):
            h = embed(model, graph, device=device)
        outcome = evaluate(torch.from_numpy(h).to(device), graph, protocol=protocol, num_runs=1)
        return {outcome.metric.replace("-", "_"): outcome.mean}

    return evaluate_now


def _validation(model: Model, graph: Graph, prepared: Graph) -> Evaluate | None:
    """The accuracy on validation nodes of the first split; None where there is none."""
    if graph.splits is None or graph.labels is None:
        return None
    nodes = (graph.splits.val[:, 0] & (graph.labels >= 0)).nonzero().squeeze(1)
    if len(nodes) == 0:
        return None
    wanted = graph.labels[nodes].cpu().numpy()

    def evaluate_now(method: Method) -> dict[str, float]:
        device = next(model.module.parameters()).device
        with _finished(model, prepared):
            found = class_probabilities(model, graph, nodes=nodes, device=device).argmax(1)
        return {"accuracy": 100.0 * float((found == wanted).mean())}

    return evaluate_now


def _of_labelled_types(graph: Graph, nodes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Those of the nodes whose type has labels at all."""
    assert graph.labels is not None
    is_labelled = np.zeros(graph.num_nodes, dtype=bool)
    for first, last in pairwise(graph.type_offsets):
        is_labelled[first:last] = bool((graph.labels[first:last] >= 0).any())
    chosen: np.ndarray[Any, Any] = nodes[is_labelled[nodes]]
    return chosen


def _finish(model: Model, prepared: Graph) -> None:
    """What turns trained weights into a frozen encoder."""
    if model.recipe.encoder.batch_norm_statistics != "recalibrated":
        return
    method, encoder = model.method, frozen_encoder(model.method)
    if isinstance(method, SemiSupervised):
        prepared = method.inputs(prepared, whole_graph_labels=True)
    device = next(encoder.parameters()).device
    if has_layers(encoder) and not full_pass_fits(encoder, prepared, device):
        recalibrate_layers(encoder, prepared, device=device)
    else:
        recalibrate_batch_norm(encoder, prepared.to(device).with_readable_features())


@contextmanager
def _finished(model: Model, prepared: Graph) -> Iterator[None]:
    """The model as it would be if training ended now; afterwards it is as it was."""
    encoder = frozen_encoder(model.method)
    before = {name: buffer.clone() for name, buffer in encoder.named_buffers()}
    _finish(model, prepared)
    yield
    for name, buffer in encoder.named_buffers():
        buffer.copy_(before[name])


def random_init(graph: Graph, recipe: Recipe, *, seed: int, device: str = "auto") -> np.ndarray[Any, Any]:
    """Embeddings of an encoder that was never trained: the baseline that says what training adds."""
    model = build_model(graph, recipe, seed=seed)
    _finish(model, prepare(model, training_part(graph, recipe.data.training_graphs)))
    return embed(model, graph, device=resolve_device(device))


def build_model(graph: Graph, recipe: Recipe, *, seed: int, saved: tuple[Path, Shapes] | None = None) -> Model:
    """An untrained model for the graphs that it is to be trained on."""
    return Model.build(training_part(graph, recipe.data.training_graphs), recipe, seed=seed, saved=saved)


def resolve_recipe(recipe: str | Recipe, graph: Graph, settings: Mapping[str, Any]) -> tuple[Recipe, list[str]]:
    """The recipe to run and, where it was made from the graph, what was chosen and why."""
    reasons: list[str] = []
    if recipe == "default":
        recipe, reasons = choose_recipe(training_part(graph, settings.get("data.training_graphs", "all")))
    elif isinstance(recipe, str):
        recipe = load_recipe(recipe)
    return recipe.with_settings(settings), reasons


def check_labels(graph: Graph) -> None:
    """Whether there is something to learn labels from."""
    if graph.labels is None or graph.labels.dim() != 1:
        raise InputError("semi-supervised learning needs one label column: name it with --label-column, or take bgrl")
    known = training_labels(graph)
    classes = torch.unique(known[known >= 0])
    if len(classes) < 2:
        raise InputError(
            f"semi-supervised learning needs training nodes of at least two classes, got {int((known >= 0).sum())} of "
            f"{len(classes)}: fill in the label column, and mark training nodes `train` if there is a split column"
        )


def check_trainable(graph: Graph) -> None:
    if graph.num_nodes == 0:
        raise InputError("the graph is empty: give a table with at least one node")
    if graph.num_edges == 0:
        raise InputError("the graph has no edges: give at least one edge between two different nodes")
    for kind, block in zip(graph.node_types, graph.features, strict=True):
        if block is not None and not _is_finite(block):
            raise InputError(f"a feature of a {kind} is NaN or infinite: replace it by a number")
    weights = [] if graph.edge_weights is None else torch.split(graph.edge_weights, _CHECKED_AT_ONCE)
    if not all(bool((part.isfinite() & (part >= 0)).all()) for part in weights):
        raise InputError("an edge weight is negative, NaN or infinite: weights are numbers from 0 up")


def _is_finite(block: Block) -> bool:
    """Whether its numbers are; of a large table, which comes from a store that was checked when it was made, those of
    some rows."""
    values = sample_rows(block)
    return bool((values if isinstance(values, Tensor) else values.values).isfinite().all())
