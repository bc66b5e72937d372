"""Model: a trained method with everything that is needed to use it: recipe, feature transform, weights.

Saved as one safetensors file whose header holds a JSON object; never pickle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.graph.many import training_graphs
from graphstrap.nn.encoders.edges import KnownEdges
from graphstrap.nn.features import FeatureTransform, id_numbers
from graphstrap.nn.methods import Method, build_method
from graphstrap.nn.methods.instant import HopColumns, InstantSettings
from graphstrap.run.folder import MODEL_FILE, load_state, load_tensors, save_tensors, with_prefix
from graphstrap.run.recipe import Recipe, parse_recipe

FORMAT_VERSION = 1
_MOST_OF_MEMORY = 0.6  # of what a GPU has free: what a graph may take before it stays on the host
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Model:
    recipe: Recipe
    transform: FeatureTransform
    method: Method
    seed: int
    own_features: HopColumns | None = None  # columns beside the embedding
    num_nodes: int = 0  # of the graph it was trained on
    edge_size: int = 0  # how many numbers the encoder reads of each edge
    num_classes: int = 0  # likewise, where the method learns from labels
    class_names: tuple[str, ...] = ()  # theirs
    node_ids: Tensor | None = None  # (N,) numbers made of their ids, where the method has a row for each node
    edges: KnownEdges | None = None  # what its edges said, where the encoder reads that

    @classmethod
    def build(cls, graph: Graph, recipe: Recipe, *, seed: int, saved: tuple[Path, Shapes] | None = None) -> Model:
        """Fresh weights for the graphs in it that are to be trained on, and a feature transform fitted on those;
        `saved` is what is to replace the weights."""
        data = recipe.data
        graph = training_graphs(graph, data.training_graphs)
        transform = FeatureTransform.fit(
            graph,
            scaling=data.feature_scaling,
            structural_size=data.structural_size,
            structural_columns=data.structural_columns,
        )
        num_classes = graph.num_classes if recipe.method_class.learns_labels else 0
        edges = KnownEdges.of(graph) if recipe.encoder_class.reads_edges else None
        edge_size = 0 if edges is None else edges.size
        sizes = {"num_nodes": graph.num_nodes, "edge_size": edge_size, "num_classes": num_classes}
        if saved is not None:
            check_shapes(recipe, transform, saved[1], path=saved[0], **sizes)
        method = build_method(recipe, input_sizes=transform.output_sizes, seed=seed, **sizes)
        own = _own_columns(recipe, transform)
        if own is not None or not method.is_trained:
            prepared = transform(graph)
            for one in (own, None if method.is_trained else method):
                if one is not None:
                    one.fit(prepared)
        names = class_names(graph) if num_classes else ()
        ids = None if method.has_encoder else _node_ids(graph)
        return cls(recipe, transform, method, seed, own, **sizes, class_names=names, node_ids=ids, edges=edges)

    def with_seed(self, seed: int) -> Model:
        """An untrained model of the same graph and recipe with the weights of another seed; features are prepared the
        same way, which need not be found again."""
        sizes = {"num_nodes": self.num_nodes, "edge_size": self.edge_size, "num_classes": self.num_classes}
        method = build_method(self.recipe, input_sizes=self.transform.output_sizes, seed=seed, **sizes)
        return replace(self, method=method, seed=seed)

    def started_from(self, earlier: Model) -> Model:
        """This model with another's weights, and its way of preparing features, also in the recipe: the weights were
        learned on that."""
        if earlier.transform.sizes != self.transform.sizes:
            raise InputError(
                f"the earlier run has {list(earlier.transform.sizes)} feature columns, this graph "
                f"{list(self.transform.sizes)}: a warm start needs the same ones"
            )
        if earlier.class_names != self.class_names and self.num_classes and earlier.num_classes:
            raise InputError(
                f"the earlier run learned the classes {', '.join(earlier.class_names)}, this graph has "
                f"{', '.join(self.class_names)}: a warm start needs the same ones"
            )
        self._check_nodes(earlier.node_ids)
        model = self
        if self.edge_size != earlier.edge_size and None not in (self.edges, earlier.edges):
            model = replace(self, edge_size=earlier.edge_size).with_seed(self.seed)
        load_state(model.module, dict(earlier.module.state_dict()), Path("the earlier run"))
        edges = earlier.edges if self.edges is not None else None
        data = replace(earlier.recipe.data, training_graphs=self.recipe.data.training_graphs)
        before = earlier.recipe.encoder
        encoder = replace(self.recipe.encoder, own_features=before.own_features, own_hops=before.own_hops)
        recipe, own = replace(self.recipe, data=data, encoder=encoder), earlier.own_features
        return replace(model, recipe=recipe, transform=earlier.transform, own_features=own, edges=edges)

    def place(self, prepared: Graph, device: torch.device) -> Graph:
        """A prepared graph where it is to be read: on the device, or on the host where it would not fit or the recipe
        says so. Without sampling it must be on the device."""
        storage = self.recipe.sampling.storage
        if not self.recipe.sampling.fan_outs:
            return prepared.to(device).with_readable_features()
        if device.type != "cpu" and storage != "device":
            room = _MOST_OF_MEMORY * torch.cuda.mem_get_info(device)[0]
            if storage == "host" or prepared.num_bytes > room:
                return prepared
        return prepared.to(device)

    def instantly(self, prepared: Graph) -> Model:
        """The model of method `instant` on the same features."""
        own, columns = self.own_features, InstantSettings()
        if own is not None and own.num_hops:
            columns = InstantSettings(num_columns=own.num_columns, num_hops=own.num_hops)
        recipe = Recipe(name="instant", data=self.recipe.data, method=columns)
        method = build_method(recipe, input_sizes=self.transform.output_sizes, seed=self.seed)
        if own is not None and own.num_hops:
            method.online = own
        else:
            method.fit(prepared)
        return Model(recipe, self.transform, method, self.seed, num_nodes=self.num_nodes)

    def prepare(self, graph: Graph) -> Graph:
        """The graph as the encoder takes it: features and edges as in training."""
        if self.node_ids is not None:
            self._check_nodes(_node_ids(graph))
        prepared = self.transform(graph)
        return prepared if self.edges is None else self.edges.matched(prepared)

    def _check_nodes(self, ids: Tensor | None) -> None:
        """Rows of a table are the nodes that they were learned for, and no others'."""
        if self.node_ids is not None and ids is not None and not torch.equal(self.node_ids, ids):
            raise InputError(
                f"{self.recipe.method.name} has an embedding for each of the {len(self.node_ids):,} nodes it was "
                "trained on, in their order, and these are others or in another order: give the tables it was trained "
                "on, fit it anew, or take a method with an encoder"
            )

    @property
    def num_own_columns(self) -> int:
        """Of the columns beside the embedding."""
        return 0 if self.own_features is None else self.own_features.embedding_size

    @property
    def module(self) -> nn.Module:
        return self.method

    def contents(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything there is to save: named tensors and a JSON object."""
        info, means_and_scales = self.transform.state()
        tensors = {f"method.{name}": tensor for name, tensor in self.module.state_dict().items()}
        tensors |= {f"transform.{name}": tensor for name, tensor in means_and_scales.items()}
        if self.own_features is not None:
            tensors["own_features.basis"] = self.own_features.bases[0].data
            tensors["own_features.mean"] = self.own_features.means[0].data
        if self.node_ids is not None:
            tensors["node_ids"] = self.node_ids
        return tensors, {
            "format": FORMAT_VERSION,
            "recipe": self.recipe.to_toml(),
            "transform": info,
            "seed": self.seed,
            "num_nodes": self.num_nodes,
            "edge_size": self.edge_size,
            "num_classes": self.num_classes,
            "class_names": list(self.class_names),
            **({} if self.edges is None else {"edges": asdict(self.edges)}),
        }

    def save(self, folder: Path, *, file_name: str = MODEL_FILE) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{folder} cannot be made: {error.strerror or error}") from error
        tensors, info = self.contents()
        save_tensors(folder / file_name, tensors, kind="model", info=info)

    @classmethod
    def load(cls, folder: Path, *, file_name: str = MODEL_FILE) -> Model:
        path, is_run = folder / file_name, (folder / "run.json").exists()
        advice = "restore it from a copy, or fit again"
        if is_run and file_name == MODEL_FILE:  # its last checkpoint has all that there is to it
            advice = f"delete it, and `graphstrap resume {folder}` makes it again"
        if not path.exists() and file_name != MODEL_FILE:
            raise InputError(f"{path} is missing, which the run began from: {advice}")
        if not path.exists():
            advice = f"finish the run with `graphstrap resume {folder}`" if is_run else "give a folder that `fit` made"
            raise InputError(f"{folder} holds no finished model: {advice}")
        tensors, info = load_tensors(path, kind="model", advice=advice)
        try:
            return cls._from_contents(tensors, info, path)
        except InputError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError, RuntimeError, OverflowError, MemoryError) as error:
            raise InputError(f"{path} is damaged ({error!r:.200}): {advice}") from error

    @classmethod
    def _from_contents(cls, tensors: dict[str, Tensor], info: dict[str, Any], path: Path) -> Model:
        """A file that is whole may still hold anything: what does not fit comes out as one error or another."""
        if info.get("format", 0) > FORMAT_VERSION:
            raise InputError(f"{path} was made by a newer Graphstrap (format {info['format']}): upgrade to read it")
        recipe = parse_recipe(info["recipe"], origin=str(path))
        transform = FeatureTransform.from_state(info["transform"], with_prefix(tensors, "transform."))
        sizes = {name: info.get(name, 0) for name in ("num_nodes", "edge_size", "num_classes")}
        weights = with_prefix(tensors, "method.")
        shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
        check_shapes(recipe, transform, shapes, path=path, **sizes)
        method = build_method(recipe, input_sizes=transform.output_sizes, seed=info["seed"], **sizes)
        load_state(method, weights, path)
        own = _saved_own_columns(recipe, transform, with_prefix(tensors, "own_features."))
        edges = None if info.get("edges") is None else KnownEdges.from_dict(info["edges"])
        if edges is not None and edges.size != sizes["edge_size"]:
            raise ValueError("its edges do not fit their number of columns")
        names = tuple(map(str, info.get("class_names", ())))
        if names and len(names) != sizes["num_classes"]:
            raise ValueError("its classes do not fit their number")
        ids = tensors.get("node_ids")
        return cls(recipe, transform, method, info["seed"], own, **sizes, class_names=names, node_ids=ids, edges=edges)


def _own_columns(recipe: Recipe, transform: FeatureTransform, num_columns: int | None = None) -> HopColumns | None:
    """What a recipe asks for beside the embedding, not fitted yet; at most as many columns as there are features."""
    sizes, encoder = transform.output_sizes, recipe.encoder
    if not encoder.own_features:
        return None
    if len(sizes) != 1:
        raise InputError("encoder.own_features needs a graph with one node type: set it to 0")
    num_columns = min(encoder.own_features, *sizes) if num_columns is None else num_columns
    return HopColumns(sizes, num_columns=num_columns, num_hops=encoder.own_hops)


def _saved_own_columns(recipe: Recipe, transform: FeatureTransform, tensors: dict[str, Tensor]) -> HopColumns | None:
    """As a file has them; 0.1 wrote no mean, and fewer columns for a graph of few nodes."""
    basis = tensors.get("basis")
    if basis is None:
        return None
    mean = tensors.get("mean", torch.zeros(basis.shape[-1]))
    own = _own_columns(recipe, transform, int(basis.shape[-1]))
    if own is None or basis.shape != own.bases[0].shape or mean.shape != own.means[0].shape:
        raise ValueError("the compression of its own features does not fit them")
    own.bases[0].copy_(basis)
    own.means[0].copy_(mean)
    return own


def class_names(graph: Graph) -> tuple[str, ...]:
    """The names of the graph's classes; their numbers where they have none."""
    return graph.class_names or tuple(str(number) for number in range(graph.num_classes))


def _node_ids(graph: Graph) -> Tensor:
    return torch.from_numpy(id_numbers(graph.external_ids).copy())


def check_shapes(recipe: Recipe, transform: FeatureTransform, saved: Shapes, *, path: Path, **sizes: int) -> None:
    """Whether a file's weights are those of the recipe's model, before memory is taken for it: a recipe of a few bytes
    can ask for any amount. An encoder from elsewhere that cannot be built without memory is built."""
    encoder, problem = recipe.encoder_class, f"{path} does not fit its recipe: it is from another model"
    if encoder.fewest_tensors(recipe.encoder) > len(saved):  # to build it would take minutes
        raise InputError(problem)
    try:
        with torch.device("meta"):
            method = build_method(recipe, input_sizes=transform.output_sizes, seed=0, **sizes)
    except (NotImplementedError, RuntimeError):
        if not encoder.is_checked:
            return
        raise
    if {name: tuple(tensor.shape) for name, tensor in method.state_dict().items()} != dict(saved):
        raise InputError(problem)
