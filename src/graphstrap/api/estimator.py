"""The estimators: `gs.BGRL(...).fit(graph).embed(graph)`, with scikit-learn's manners; one class for each method, and
`Embedder` for any.

    fit    graph -> recipe -> model -> run folder -> train_models, which trains, freezes and saves
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from graphstrap.api.embed import Predictions, classify, embed, predict_unlabelled, prepare
from graphstrap.api.fitting import Records, check_labels, check_trainable, freeze, train_models
from graphstrap.errors import InputError
from graphstrap.evaluation.links import evaluate_links, hide_edges, summarise_links
from graphstrap.evaluation.registry import PROTOCOLS, Evaluation, Protocol
from graphstrap.evaluation.task import Embeddings
from graphstrap.graph import Graph
from graphstrap.graph.many import training_graphs
from graphstrap.io.parts import Part
from graphstrap.nn.features import raw_features
from graphstrap.nn.model import Model
from graphstrap.ops import resolve_device
from graphstrap.run.defaults import resolve_recipe
from graphstrap.run.folder import (
    INSTANT_FILE,
    MODEL_FILE,
    START_FILE,
    Run,
    describe_labels,
    read_metrics,
    removed_if_refused,
)
from graphstrap.run.recipe import Recipe, load_recipe
from graphstrap.run.settings import checked_seed
from graphstrap.train.log import MetricsSink
from graphstrap.train.parallel.part_batches import check_shared
from graphstrap.train.parallel.workers import ALONE, Workers

Announce = Callable[[Recipe, list[str]], None]


class Embedder:
    """Learn node embeddings by any method that Graphstrap knows: a scikit-learn transformer of graphs.

    `gs.BGRL`, `gs.Instant`, `gs.GRACE`, `gs.GCA`, `gs.DGI`, `gs.GMI`, `gs.MVGRL`, `gs.BarlowTwins`, `gs.DeepWalk`,
    `gs.Node2Vec` and `gs.SemiSupervised` are the same with the method fixed.

    Args:
        method: its name, such as "bgrl" or "grace"; None: the recipe's, which is bgrl-cca in "default".
        recipe: "default" (made from the graph), a shipped recipe's name, the path of a TOML file, or a Recipe.
        settings: dotted keys that replace the recipe's, such as {"train.steps": 2000}.
        seed: fixes initial weights and every view: the same seed on the same machine gives the same bits.
        device: "auto", "cpu" or "cuda".

    Attributes, after `fit`:
        model_: weights, recipe and feature transform.
        recipe_: the recipe that was trained, complete.
        reasons_: what "default" chose, and why.
        metrics_: what was logged, in all sessions.

    Example:
        >>> model = gs.Embedder("grace", seed=0).fit(graph)
        >>> model.embed(graph).shape
        (2708, 320)
    """

    model_: Model
    recipe_: Recipe
    reasons_: list[str]
    metrics_: Records
    method: str | None

    def __init__(
        self,
        method: str | None = None,
        *,
        recipe: str | Recipe = "default",
        settings: Mapping[str, Any] | None = None,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        self.method = method
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
        start_from: Embedder | None = None,
        mirrors: Sequence[MetricsSink] = (),
        announce: Announce | None = None,
        progress: bool | None = None,
        workers: Workers = ALONE,
    ) -> Self:
        """Train on a graph. Its labels are not looked at, except by the method semi-supervised; nor is `y`. If training
        fails or is stopped, this estimator stays what it was.

        Args:
            graph: to train on.
            run: a folder to make, from which an interrupted training can be resumed.
            source: where the graph comes from, as `io.source.Source.to_dict` has it; kept in the run folder.
            start_from: another fitted estimator whose weights to begin with, for a graph that has changed since.
            mirrors: called with every record of metrics (see `train/log.py`).
            announce: called before training with the recipe and the reasons for it.
            progress: show a bar on stderr; None: if that is a terminal, or a notebook with ipywidgets.
            workers: the processes that train one model together (see `train/parallel`). Each calls `fit` with the same
                arguments; the first one writes the run folder.

        Returns:
            This estimator, fitted.
        """
        model, reasons = self.build(graph, start_from=start_from, announce=announce)
        _check_workers(workers, graph, model.recipe)
        prepared = model.prepare(graph)  # what can fail has mostly failed before the folder appears
        folder = None
        if run is not None and workers.is_first:
            folder = self.create_run(Path(run), model, graph, source=source or {}, is_warm=start_from is not None)
        with removed_if_refused(None if folder is None else folder.folder, [folder]):
            if folder is not None and model.method.is_trained and not isinstance(graph, Part):
                model.instantly(prepared).save(folder.folder, file_name=INSTANT_FILE)  # to be asked while it trains
            device = resolve_device(self.device)
            [records] = train_models(
                [model], graph, prepared, [folder], device=device, mirrors=mirrors, progress=progress, workers=workers
            )
        self.learned(model, records, reasons)
        return self

    def resolve(self, graph: Graph) -> Recipe:
        """The recipe that `fit` would train on this graph; `reasons_` then says what was chosen, and why.

        Args:
            graph: to make the recipe for.

        Returns:
            The recipe, complete.

        Example:
            >>> gs.BGRL().resolve(graph).train.steps
            300
        """
        recipe, self.reasons_ = self._resolve(graph)
        return recipe

    def build(
        self, graph: Graph, *, start_from: Embedder | None = None, announce: Announce | None = None
    ) -> tuple[Model, list[str]]:
        """The model that `fit` is to train, and the reasons for its recipe."""
        recipe, reasons = self._resolve(graph)
        if announce is not None:
            announce(recipe, reasons)
        if recipe.method_class.learns_labels:
            check_labels(graph)
        model = Model.build(graph, recipe, seed=checked_seed(self.seed))
        return (model if start_from is None else model.started_from(start_from._fitted())), reasons

    def create_run(
        self, folder: Path, model: Model, graph: Graph, *, source: Mapping[str, Any], is_warm: bool = False
    ) -> Run:
        """The folder for a model's training; that of a warm start keeps the weights that it begins from."""
        return Run.create(
            folder,
            recipe=model.recipe,
            source=source,
            seed=model.seed,
            device=str(resolve_device(self.device)),
            graph=graph,
            start=model.contents() if is_warm else None,
        )

    def learned(self, model: Model, records: Records, reasons: Sequence[str] = ()) -> None:
        """Take a trained model for this estimator's own."""
        self.model_, self.recipe_, self.reasons_, self.metrics_ = model, model.recipe, list(reasons), records

    @classmethod
    def resume(cls, run: str | Path, graph: Graph, *, progress: bool | None = None, workers: Workers = ALONE) -> Self:
        """Go on with an interrupted run, exactly where its last checkpoint stands.

        Args:
            run: its folder.
            graph: the one that it was started on.
            progress, workers: as for `fit`.

        Returns:
            A fitted estimator.

        Example:
            >>> gs.BGRL.resume("runs/photo", graph).embed(graph)
        """
        folder = Run.open(Path(run))
        estimator, model = cls.of_run(folder, graph)
        _check_workers(workers, graph, model.recipe)
        on, prepared = resolve_device(estimator.device), model.prepare(graph)
        [records] = train_models([model], graph, prepared, [folder], device=on, progress=progress, workers=workers)
        estimator.learned(model, records)
        return estimator

    @classmethod
    def of_run(cls, run: Run, graph: Graph) -> tuple[Self, Model]:
        """The estimator of an unfinished run, and its model as it was before training began."""
        known, labels = run.info["graph"], describe_labels(graph, run.recipe).get("labels")
        is_same = graph.has_fingerprint(known["fingerprint"])
        if not is_same or known.get("labels", labels) != labels:
            changed = "labels have" if is_same else "graph has"
            raise InputError(f"the {changed} changed since {run.folder} was started: fit it anew, into another folder")
        estimator = cls._of(run.recipe, seed=run.info["seed"], device=run.info["device"], where=run.folder)
        if run.info.get("warm_start"):
            return estimator, Model.load(run.folder, file_name=START_FILE)
        return estimator, Model.build(graph, run.recipe, seed=estimator.seed, saved=run.saved_shapes())

    def embed(self, graph: Graph, *, how: str = "auto") -> np.ndarray[Any, Any]:
        """Embeddings of this graph, or of another one with the same feature columns. Nothing is trained.

        Args:
            graph: to embed.
            how: "full", "layers" or "sampled" (see `api/embed.py`); "auto" chooses by what fits into memory.

        Returns:
            (N, D) float32, in the order of the graph's nodes.

        Example:
            >>> h = gs.BGRL(seed=0).fit(graph).embed(graph)
        """
        return embed(self._fitted(), graph, device=resolve_device(self.device), how=how)

    def transform(self, graph: Graph) -> np.ndarray[Any, Any]:
        """`embed`, by the name that scikit-learn's pipelines know."""
        return self.embed(graph)

    def fit_transform(self, graph: Graph, y: Any = None) -> np.ndarray[Any, Any]:
        """`fit` and `embed` on the same graph."""
        return self.fit(graph).embed(graph)

    def classify(self, graph: Graph, nodes: Any) -> np.ndarray[Any, Any]:
        """Class probabilities by the head of a semi-supervised model.

        Args:
            graph: the one that the nodes are in.
            nodes: (M,) their numbers.

        Returns:
            (M, C), the columns in the order of `model_.class_names`.

        Example:
            >>> gs.SemiSupervised().fit(graph).classify(graph, [0, 1]).argmax(1)
        """
        return classify(self._fitted(), graph, nodes, device=resolve_device(self.device))

    def predict(self, graph: Graph, *, h: np.ndarray[Any, Any] | None = None) -> Predictions:
        """Labels and probabilities for the nodes without a label: by a linear probe fitted on the labelled ones, or by
        the head of a semi-supervised model.

        Args:
            graph: one in which some nodes have a label and others do not.
            h: its embeddings, if they are at hand.

        Returns:
            The nodes, their most probable classes and all probabilities.

        Example:
            >>> gs.BGRL().fit(graph).predict(graph).labels
        """
        device = resolve_device(self.device)
        return predict_unlabelled(self._fitted(), graph, device=device, seed=checked_seed(self.seed), h=h)

    def save(self, folder: str | Path) -> None:
        """Write `model.safetensors` into a folder, from which `load` reads it.

        Args:
            folder: made where it is missing.

        Example:
            >>> gs.BGRL().fit(graph).save("models/mine")
        """
        self._fitted().save(Path(folder))

    @classmethod
    def load(cls, folder: str | Path, *, device: str = "auto", file_name: str = MODEL_FILE) -> Self:
        """Read what `save` wrote, or a finished run folder. `gs.Embedder.load` takes a model of any method.

        Args:
            folder: that holds `model.safetensors`.
            device: "auto", "cpu" or "cuda".
            file_name: of another model in it; "instant.safetensors" can be asked while a run trains.

        Returns:
            A fitted estimator.

        Example:
            >>> gs.Embedder.load("models/mine").embed(graph)
        """
        model = Model.load(Path(folder), file_name=file_name)
        estimator = cls._of(model.recipe, seed=model.seed, device=device, where=Path(folder))
        estimator.learned(model, read_metrics(Path(folder)))
        return estimator

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of `__init__`, as scikit-learn asks for them."""
        return {name: getattr(self, name) for name in _defaults(type(self))}

    def set_params(self, **parameters: Any) -> Self:
        """Replace arguments of `__init__`, as scikit-learn does."""
        for name, value in parameters.items():
            if name not in self.get_params():
                raise ValueError(f"there is no parameter {name!r}: take one of {', '.join(self.get_params())}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = _defaults(type(self))
        changed = {name: value for name, value in self.get_params().items() if value != defaults[name]}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

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

    def _resolve(self, graph: Graph) -> tuple[Recipe, list[str]]:
        """The recipe for a graph that can be trained on, and the reasons for it."""
        check_trainable(graph)
        recipe, settings = self._request()
        return resolve_recipe(recipe, graph, settings)

    def _request(self) -> tuple[str | Recipe, dict[str, Any]]:
        """The recipe that is asked for, and the settings that replace its own, the method among them."""
        settings = dict(self.settings or {})
        if self.method is not None and settings.setdefault("method.name", self.method) != self.method:
            raise InputError(
                f"the method is {self.method!r}, and settings have method.name={settings['method.name']!r}: give one "
                "of them, such as gs.Embedder(method=...)"
            )
        return self.recipe, settings

    @classmethod
    def _of(cls, recipe: Recipe, *, seed: int, device: str, where: Path) -> Self:
        """An estimator for a recipe that was read from a folder."""
        return cls(recipe=recipe, seed=seed, device=device)


class _OneMethod(Embedder):
    """An estimator whose method is fixed by its class."""

    method: str

    def __init_subclass__(cls, *, method: str | None = None) -> None:
        cls.method = method or cls.method

    def __init__(
        self,
        *,
        recipe: str | Recipe = "default",
        settings: Mapping[str, Any] | None = None,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        super().__init__(self.method, recipe=recipe, settings=settings, seed=seed, device=device)

    @classmethod
    def _of(cls, recipe: Recipe, *, seed: int, device: str, where: Path) -> Self:
        if recipe.method.name != cls.method:
            cls._refuse(f"{where} is of the method {recipe.method.name}", recipe.method.name)
        return super()._of(recipe, seed=seed, device=device, where=where)

    @classmethod
    def _refuse(cls, what: str, method: str) -> None:
        """Say which estimator to take for another method. `BGRL` warns: until 0.1 it trained every one."""
        named = "".join(f"gs.{one.__name__} or " for one in _OneMethod.__subclasses__() if one.method == method)
        text = f"{what}: take {named}gs.Embedder"
        if not issubclass(cls, BGRL):
            raise InputError(f"{text} instead of gs.{cls.__name__}")
        text = f"{text}. This will be an error in the next release"
        warnings.warn(text, DeprecationWarning, stacklevel=_frames_of_this_package())


class BGRL(_OneMethod, method="bgrl"):
    """Bootstrapped representation learning on graphs: predict one view's target embedding from the other view's online
    embedding. Linear cost, no negatives; the method to begin with. Arguments and methods are those of `Embedder`.

    Example:
        >>> h = gs.BGRL(seed=0).fit(graph).embed(graph)
    """

    def _request(self) -> tuple[str | Recipe, dict[str, Any]]:
        recipe, settings = self.recipe, dict(self.settings or {})
        if recipe == "default":
            settings.setdefault("method.name", self.method)
        elif isinstance(recipe, str):
            recipe = load_recipe(recipe)
        method = settings.get("method.name", recipe.method.name if isinstance(recipe, Recipe) else self.method)
        if method != self.method:
            self._refuse(f"gs.BGRL was asked to train {method}", method)
        return recipe, settings


class BGRLCCA(_OneMethod, method="bgrl-cca"):
    """BGRL with decorrelated columns, the method of `default`. Arguments and methods are those of `Embedder`."""


class Instant(_OneMethod, method="instant"):
    """Features and their averages over neighbours: no training. Arguments and methods are those of `Embedder`."""


class GRACE(_OneMethod, method="grace"):
    """Contrast each node's two views with all other nodes. Arguments and methods are those of `Embedder`."""


class GCA(_OneMethod, method="gca"):
    """GRACE with views that keep what is central to the graph. Arguments and methods are those of `Embedder`.

    Example:
        >>> h = gs.GCA(settings={"views.centrality": "degree"}).fit(graph).embed(graph)
    """


class DGI(_OneMethod, method="dgi"):
    """Tell nodes from corrupted ones by a summary of the graph. Arguments and methods are those of `Embedder`."""


class GMI(_OneMethod, method="gmi"):
    """Maximise mutual information with neighbours. Arguments and methods are those of `Embedder`."""


class MVGRL(_OneMethod, method="mvgrl"):
    """Contrast a graph with its diffusion; memory is quadratic. Arguments and methods are those of `Embedder`."""


class BarlowTwins(_OneMethod, method="barlow-twins"):
    """Make two views' columns agree and differ from each other. Arguments and methods are those of `Embedder`."""


class DeepWalk(_OneMethod, method="deepwalk"):
    """Skip-gram over random walks: the structure alone, no new nodes. Arguments and methods are those of `Embedder`."""


class Node2Vec(_OneMethod, method="node2vec"):
    """DeepWalk with walks that are drawn back or outward. Arguments and methods are those of `Embedder`.

    Example:
        >>> h = gs.Node2Vec(settings={"method.return_weight": 0.5}).fit(graph).embed(graph)
    """


class SemiSupervised(_OneMethod, method="semi-supervised"):
    """BGRL on all nodes and classes on the labelled ones, by one encoder. Arguments and methods are those of
    `Embedder`.

    Example:
        >>> predictions = gs.SemiSupervised(seed=0).fit(graph).predict(graph)
    """


def _defaults(estimator: type[Embedder]) -> dict[str, Any]:
    """The arguments of `__init__` with their defaults."""
    parameters = list(inspect.signature(estimator.__init__).parameters.values())[1:]
    return {one.name: one.default for one in parameters}


def _check_workers(workers: Workers, graph: Graph, recipe: Recipe) -> None:
    if isinstance(graph, Part) or not workers.is_alone:
        check_shared(graph, recipe, workers)


def _frames_of_this_package() -> int:
    """The `stacklevel` by which a warning, given by the caller, points at the code that uses Graphstrap."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and str(frame.f_globals.get("__name__")).split(".")[0] == "graphstrap":
        frame, level = frame.f_back, level + 1
    return level


def random_init(graph: Graph, recipe: Recipe, *, seed: int, device: str = "auto") -> np.ndarray[Any, Any]:
    """Embeddings of an encoder that was never trained: the baseline that says what training adds.

    h = encoder(x), with fresh weights: 'Random-Init' of Velickovic et al., DGI, ICLR 2019, by the recipe's encoder,
    which averages over neighbours whatever its weights are. Batch norm has the statistics of the clean graph where the
    recipe recalibrates them, else those that it starts with. Cost: one forward pass, O(E D + N D^2).
    """
    model = Model.build(graph, recipe, seed=checked_seed(seed))
    freeze(model, prepare(model, training_graphs(graph, recipe.data.training_graphs)))
    return embed(model, graph, device=resolve_device(device))


def baselines_of(graph: Graph, recipe: Recipe, *, seed: int, device: str = "auto") -> dict[str, Embeddings]:
    """What trained embeddings are compared with: raw features, if any, an untrained encoder, and `instant`."""
    raw = raw_features(graph)
    found: dict[str, Embeddings] = {} if raw is None else {"raw features": raw}
    if recipe.method_class.is_trained:
        found["random init"] = random_init(graph, recipe, seed=seed, device=device)
        found["instant"] = embed_instantly(graph, recipe, device=device)
    return found


def embed_instantly(graph: Graph, recipe: Recipe | None = None, *, device: str = "auto") -> np.ndarray[Any, Any]:
    """The embeddings of method `instant`: no training, linear in the graph.

    Args:
        graph: to fit and embed.
        recipe: whose features are taken, prepared as it says; None: as the default recipe prepares them.
        device: "auto", "cpu" or "cuda".

    Returns:
        (N, D) float32.

    Example:
        >>> h = embed_instantly(graph)
    """
    model = Embedder("instant", device=device)
    if recipe is not None:
        model.recipe = Recipe(data=recipe.data)
    return model.fit(graph, progress=False).embed(graph)


def score_links(
    model: Embedder,
    graph: Graph,
    *,
    num_runs: int = 1,
    refit: bool = True,
    baselines: bool = True,
    progress: bool | None = None,
) -> dict[str, Evaluation]:
    """What embeddings know of edges that were hidden, beside raw features and an untrained encoder: the protocol links.

    Args:
        model: a fitted estimator.
        graph: some of its edges are hidden.
        num_runs: how often edges are drawn and hidden.
        refit: train anew without them, which takes as long as `fit` did; else the model's encoder, which saw them.
        baselines: also evaluate raw features, an untrained encoder and `instant`.
        progress: show a bar while training anew; None: as `fit` does.

    Returns:
        One evaluation for each candidate, the trained one last.

    Example:
        >>> score_links(gs.BGRL().fit(graph), graph)["bgrl"].mean
    """
    recipe, seed, device = model.recipe_, model.seed, model.device
    runs: dict[str, list[tuple[float, float | None]]] = {}
    for number in range(num_runs):
        edges = hide_edges(graph, seed=number)
        left = edges.remaining
        candidates = baselines_of(left, recipe, seed=seed, device=device) if baselines else {}
        anew = Embedder(recipe=recipe, seed=seed, device=device)
        trained = anew.fit(left, progress=progress) if refit else model
        candidates[recipe.method.name] = trained.embed(left)
        for name, h in candidates.items():
            runs.setdefault(name, []).append(evaluate_links(h, edges))
    trained_how = "trained anew without them" if refit else "by an encoder that was trained with them"
    ways = {"raw features": "features as they are", "random init": "by an untrained encoder"}
    ways["instant"] = "from the other edges, without training"
    return {name: summarise_links(found, how=ways.get(name, trained_how)) for name, found in runs.items()}


@PROTOCOLS.register("links")
class Links(Protocol):
    """`score_links`, found by its name."""

    title = "Hidden edges told from other pairs"
    needs_labels = False
    trains_anew = True

    def score(self, model: Embedder, graph: Graph, **options: Any) -> dict[str, Evaluation]:
        return score_links(model, graph, **options)
