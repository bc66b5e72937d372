"""The estimator: `BGRL(...).fit(graph).embed(graph)`, with scikit-learn's manners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from torch import Tensor

from graphstrap.api.embed import embed, prepare, with_labels_to_learn
from graphstrap.api.fitting import check_labels, check_trainable, finish, train_models
from graphstrap.api.predict import Predictions, classify, predict_unlabelled
from graphstrap.errors import InputError
from graphstrap.evaluation.links import evaluate_links, hide_edges, summarise_links
from graphstrap.evaluation.registry import PROTOCOLS, Evaluation, Protocol
from graphstrap.evaluation.task import Embeddings
from graphstrap.graph import Graph
from graphstrap.graph.many import training_graphs
from graphstrap.nn.features import raw_features
from graphstrap.nn.model import Model
from graphstrap.ops import resolve_device
from graphstrap.run.defaults import resolve_recipe
from graphstrap.run.folder import START_FILE, Run, describe_labels, read_metrics, removed_if_refused
from graphstrap.run.recipe import Recipe
from graphstrap.run.settings import checked_seed
from graphstrap.train.console import can_be_watched
from graphstrap.train.log import MetricsSink
from graphstrap.train.parallel.part_batches import check_parts
from graphstrap.train.parallel.training import check_shareable
from graphstrap.train.parallel.workers import ALONE, Workers

Contents = tuple[dict[str, Tensor], dict[str, Any]]

_DEFAULTS: dict[str, Any] = {"recipe": "default", "settings": None, "seed": 0, "device": "auto"}


class BGRL:
    """Learn node embeddings without labels by bootstrapping.

    Args:
        recipe: "default" (made from the graph), a shipped recipe's name, the path of a TOML file, or a Recipe.
        settings: dotted keys that replace the recipe's, such as {"train.steps": 2000}.
        seed: fixes initial weights and every view: the same seed on the same machine gives the same bits.
        device: "auto", "cpu" or "cuda".

    After `fit`: `model_` (weights, recipe, feature transform), `recipe_`, `reasons_` (what `default` chose, and why),
    `metrics_` (what was logged, in all sessions).
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
        mirrors: Sequence[MetricsSink] = (),
        progress: bool | None = None,
        workers: Workers = ALONE,
    ) -> Self:
        """Train on a graph; its labels are not looked at (but by the method semi-supervised), nor is `y`. With `run`,
        leave a folder that can be resumed. Where it fails or is stopped, this estimator stays what it was.

        `start_from` takes the weights of another fitted estimator: for a graph that has changed since. `mirrors` are
        called with every record of metrics (see `train/log.py`). `progress` shows a bar on stderr; None: where that
        is a terminal, or in a notebook with ipywidgets. Where several `workers` train one model (see `parallel/`),
        each calls `fit` with the same arguments, and the first one writes the run folder.
        """
        model, reasons = self.build(graph, start_from=start_from)
        check_shareable(with_labels_to_learn(graph, model), model.recipe, workers)
        check_parts(graph, model.recipe, workers)
        prepared = model.prepare(graph)  # what can fail has mostly failed before the folder appears
        folder = None
        if run is not None and workers.is_first:
            start = None if start_from is None else model.contents()
            folder = self.create_run(Path(run), model, graph, source=source or {}, start=start)
        with removed_if_refused(None if folder is None else folder.folder, [folder]):
            train_estimators(
                [self],
                [model],
                graph,
                prepared,
                [folder],
                reasons=reasons,
                mirrors=mirrors,
                progress=progress,
                workers=workers,
            )
        return self

    def build(self, graph: Graph, *, start_from: BGRL | None = None) -> tuple[Model, list[str]]:
        """The model that `fit` is to train, and what was chosen for it, and why."""
        check_trainable(graph)
        recipe, reasons = resolve_recipe(self.recipe, graph, self.settings or {})
        if recipe.method_class.learns_labels:
            check_labels(graph)
        model = Model.build(graph, recipe, seed=checked_seed(self.seed))
        return (model if start_from is None else model.started_from(start_from._fitted())), reasons

    def create_run(
        self, folder: Path, model: Model, graph: Graph, *, source: Mapping[str, Any], start: Contents | None = None
    ) -> Run:
        """The folder that a model's training is to live in."""
        device, recipe = str(resolve_device(self.device)), model.recipe
        return Run.create(
            folder, recipe=recipe, source=source, seed=model.seed, device=device, graph=graph, start=start
        )

    def resolve(self, graph: Graph) -> Recipe:
        """The recipe that `fit` would run on this graph; `reasons_` then says what was chosen and why."""
        check_trainable(graph)
        recipe, self.reasons_ = resolve_recipe(self.recipe, graph, self.settings or {})
        return recipe

    @classmethod
    def resume(cls, run: str | Path, graph: Graph, *, progress: bool | None = None, workers: Workers = ALONE) -> Self:
        """Go on with an interrupted run, exactly where its last checkpoint stands."""
        folder = Run.open(Path(run))
        estimator = cls.of_run(folder, graph)
        prepared = estimator.model_.prepare(graph)
        train_estimators([estimator], [estimator.model_], graph, prepared, [folder], progress=progress, workers=workers)
        return estimator

    @classmethod
    def of_run(cls, run: Run, graph: Graph) -> Self:
        """The estimator of an unfinished run, as it was before training began."""
        if not graph.has_fingerprint(run.info["graph"]["fingerprint"]):
            raise InputError(f"the graph has changed since {run.folder} was started: fit it anew, into another folder")
        labels = describe_labels(graph, run.recipe).get("labels")
        if run.info["graph"].get("labels", labels) != labels:
            raise InputError(
                f"the labels have changed since {run.folder} was started: fit it anew, into another folder"
            )
        estimator = cls(recipe=run.recipe, seed=run.info["seed"], device=run.info["device"])
        estimator.reasons_ = []
        if run.info.get("warm_start"):
            estimator.model_ = Model.load(run.folder, file_name=START_FILE)
        else:
            estimator.model_ = Model.build(graph, run.recipe, seed=estimator.seed, saved=run.saved_shapes())
        return estimator

    def embed(self, graph: Graph, *, how: str = "auto") -> np.ndarray[Any, Any]:
        """(N, D) embeddings of this graph or another one with the same feature columns. Nothing is trained.

        `how` is "full", "layers" or "sampled" (see `graphstrap.embed`); "auto" chooses by what fits into memory.
        """
        return embed(self._fitted(), graph, device=resolve_device(self.device), how=how)

    def classify(self, graph: Graph, nodes: Any) -> np.ndarray[Any, Any]:
        """(M, C) class probabilities of these nodes, by the head of a semi-supervised model."""
        return classify(self._fitted(), graph, nodes, device=resolve_device(self.device))

    def transform(self, graph: Graph) -> np.ndarray[Any, Any]:
        """`embed`, by the name that scikit-learn's pipelines know."""
        return self.embed(graph)

    def fit_transform(self, graph: Graph, y: Any = None) -> np.ndarray[Any, Any]:
        return self.fit(graph).embed(graph)

    def predict(self, graph: Graph, *, h: np.ndarray[Any, Any] | None = None) -> Predictions:
        """Labels and probabilities for the unlabelled nodes, by a linear probe fitted on the labelled ones; by its own
        head where the method is semi-supervised."""
        device = resolve_device(self.device)
        return predict_unlabelled(self._fitted(), graph, device=device, seed=checked_seed(self.seed), h=h)

    def save(self, folder: str | Path) -> None:
        """Write `model.safetensors` into a folder."""
        self._fitted().save(Path(folder))

    @classmethod
    def load(cls, folder: str | Path, *, device: str = "auto") -> Self:
        """Read what `save` wrote, or a finished run folder."""
        model = Model.load(Path(folder))
        estimator = cls(recipe=model.recipe, seed=model.seed, device=device)
        estimator.model_, estimator.recipe_, estimator.reasons_ = model, model.recipe, []
        estimator.metrics_ = read_metrics(Path(folder))
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
    models: Sequence[Model],
    graph: Graph,
    prepared: Graph,
    runs: Sequence[Run | None],
    *,
    reasons: Sequence[str] = (),
    mirrors: Sequence[MetricsSink] = (),
    progress: bool | None = None,
    workers: Workers = ALONE,
) -> None:
    """Train the models of estimators of one recipe side by side, or one by several workers (see `train_models`). Only
    then they are the estimators' own."""
    logs = train_models(
        models,
        graph,
        prepared,
        runs,
        device=resolve_device(estimators[0].device),
        mirrors=mirrors,
        progress=can_be_watched() if progress is None else progress,
        workers=workers,
    )
    for estimator, model, run, records in zip(estimators, models, runs, logs, strict=True):
        estimator.model_, estimator.recipe_, estimator.reasons_ = model, model.recipe, list(reasons)
        estimator.metrics_ = records if run is None else run.metrics()  # of earlier sessions, too


def random_init(graph: Graph, recipe: Recipe, *, seed: int, device: str = "auto") -> np.ndarray[Any, Any]:
    """Embeddings of an encoder that was never trained: the baseline that says what training adds.

    h = encoder(x), with fresh weights: 'Random-Init' of Velickovic et al., DGI, ICLR 2019, by the recipe's encoder,
    which averages over neighbours whatever its weights are. Batch norm has the statistics of the clean graph where the
    recipe recalibrates them, else those that it starts with. Cost: one forward pass, O(E D + N D^2).
    """
    model = Model.build(graph, recipe, seed=checked_seed(seed))
    finish(model, prepare(model, training_graphs(graph, recipe.data.training_graphs)))
    return embed(model, graph, device=resolve_device(device))


# What embeddings know of edges that were hidden, beside raw features and an untrained encoder: the protocol `links`.
#
# The model is trained anew without the hidden edges, or is the run's own, which saw them; the outcome says which.


def score_links(
    model: BGRL,
    graph: Graph,
    *,
    num_runs: int = 1,
    refit: bool = True,
    baselines: bool = True,
    progress: bool | None = None,
) -> dict[str, Evaluation]:
    """One evaluation for each candidate, the trained one last.

    Args:
        num_runs: how often edges are drawn and hidden.
        refit: train anew without them, which takes as long as `fit` did.
        baselines: also evaluate raw features and an untrained encoder.
        progress: show a bar while training anew; None: as `fit` does.
    """
    runs: dict[str, list[tuple[float, float | None]]] = {}
    for seed in range(num_runs):
        edges = hide_edges(graph, seed=seed)
        left = edges.remaining
        candidates: dict[str, Embeddings] = {}
        if baselines and (raw := raw_features(left)) is not None:
            candidates["raw features"] = raw
        if baselines:
            candidates["random init"] = random_init(left, model.recipe_, seed=model.seed, device=model.device)
        trained = model
        if refit:
            fresh = BGRL(recipe=model.recipe_, seed=model.seed, device=model.device)
            trained = fresh.fit(left, progress=progress)
        candidates[model.recipe_.method.name] = trained.embed(left)
        for name, h in candidates.items():
            runs.setdefault(name, []).append(evaluate_links(h, edges))
    trained_how = "trained anew without them" if refit else "by an encoder that was trained with them"
    ways = {"raw features": "features as they are", "random init": "by an untrained encoder"}
    return {name: summarise_links(found, how=ways.get(name, trained_how)) for name, found in runs.items()}


@PROTOCOLS.register("links")
class Links(Protocol):
    """`score_links`, found by its name."""

    title = "Hidden edges told from other pairs"
    needs_labels = False
    trains_anew = True

    def score(self, model: BGRL, graph: Graph, **options: Any) -> dict[str, Evaluation]:
        return score_links(model, graph, **options)
