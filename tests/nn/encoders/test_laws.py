"""What every encoder obeys: nodes may be renumbered, a view is the graph without what it drops, gradients are those of
the reference, a sampled batch with every neighbour gives its roots what the whole graph gives, and no graph is too
small."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from conftest import make_communities, make_random_graph
from torch import Tensor

from graphstrap import ops
from graphstrap.graph import CLEAN, Graph, View, ViewSpec
from graphstrap.nn.encoders.edges import KnownEdges
from graphstrap.nn.encoders.gcn import standardize
from graphstrap.nn.methods import Blueprint, build_method
from graphstrap.ops import _torch, _triton
from graphstrap.ops._torch import kept_columns, kept_edges
from graphstrap.run.recipe import ENCODERS, Recipe
from graphstrap.train.batches import sampler_flags
from graphstrap.train.sampling.sampler import Sampler
from graphstrap.train.sampling.subgraph import Gatherer
from same_graph import make_hetero_graph

SETTINGS: dict[str, dict[str, object]] = {
    "gcn": {"encoder.name": "gcn"},
    "mean-pooling": {"encoder.name": "mean-pooling", "encoder.hidden_sizes": [16, 16]},
    "mean-pooling, root weight": {
        "encoder.name": "mean-pooling",
        "encoder.hidden_sizes": [16, 16],
        "encoder.root_weight": True,
        "encoder.norm": "graph",
    },
    "mean-pooling, one layer": {"encoder.name": "mean-pooling", "encoder.hidden_sizes": [], "encoder.norm": "none"},
    "gat": {"encoder.name": "gat", "encoder.num_heads": 2, "encoder.num_output_heads": 3, "encoder.norm": "none"},
    "gat, layer norm": {"encoder.name": "gat", "encoder.norm": "layer", "encoder.weight_standardization": True},
    "mpnn": {"encoder.name": "mpnn", "encoder.hidden_sizes": [16, 12], "encoder.norm": "layer"},
    "mpnn, one hidden layer": {"encoder.name": "mpnn", "encoder.num_steps": 2, "encoder.norm": "none"},
    "mpnn, sums": {"encoder.name": "mpnn", "encoder.norm": "layer", "encoder.aggregation": "sum"},
    "mlp": {"encoder.name": "mlp"},
}
every_encoder = pytest.mark.parametrize("name", SETTINGS)
VIEW = View(ViewSpec(edge_drop_prob=0.4, feature_mask_prob=0.3), 17)


def make_recipe(name: str, **more: object) -> Recipe:
    small = {"encoder.hidden_sizes": [16], "encoder.embedding_size": 8, "method.predictor_hidden_size": 16}
    return Recipe().with_settings({**small, **SETTINGS[name]}).with_settings(more)


def make_encoder(name: str, graph: Graph) -> Any:
    blueprint = Blueprint(make_recipe(name), graph.num_features, 0, edge_size=KnownEdges.of(graph).size)
    return blueprint.make_encoder(torch.Generator().manual_seed(0))


def with_edge_data(graph: Graph) -> Graph:
    """The graph with two edge types and two numeric columns."""
    generator = torch.Generator().manual_seed(1)
    return replace(
        graph,
        edge_types=torch.randint(0, 2, (graph.num_edges,), generator=generator),
        edge_type_names=("cites", "answers"),
        edge_columns=torch.randn(graph.num_edges, 2, generator=generator),
    )


def rebuilt(graph: Graph, chosen: Tensor, number: Callable[[Tensor], Tensor], x: Tensor) -> Graph:
    """A graph of some of the edges, its nodes renumbered."""

    def column(values: Tensor | None) -> Tensor | None:
        return None if values is None else values[chosen]

    return Graph.from_edges(
        number(graph.indices.long()[chosen]),
        number(graph.targets[chosen]),
        num_nodes=graph.num_nodes,
        directed=True,
        x=x,
        edge_types=column(graph.edge_types),
        edge_type_names=graph.edge_type_names,
        edge_columns=column(graph.edge_columns),
        edge_weights=column(graph.edge_weights),
    )


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("gcn", {}),
        ("mlp", {}),
        ("mean-pooling", {"root_weight": True}),
        ("gat", {"num_heads": 2, "num_output_heads": 3}),
    ],
)
def test_weight_standardization_is_of_every_weight_but_those_of_features(name: str, more: dict[str, Any]) -> None:
    graph = make_random_graph(num_nodes=30, num_edges=90, seed=1)
    plain, standard = (
        ENCODERS.get(name)(
            graph.num_features,
            (8, 8, 6),
            norm="none",
            weight_standardization=is_asked_for,
            generator=torch.Generator().manual_seed(0),
            **more,
        )
        for is_asked_for in (False, True)
    )
    with torch.no_grad():
        for key, weight in plain.named_parameters():
            if re.fullmatch(r"(weights|roots|layers\.[12]\.weights)\.\d", key):
                weight.copy_(standardize(weight))
    torch.testing.assert_close(standard(graph), plain(graph), rtol=1e-4, atol=1e-6)


@every_encoder
@pytest.mark.parametrize("with_data", [False, True])
def test_renumbering_nodes_renumbers_embeddings(name: str, with_data: bool) -> None:
    graph = make_random_graph(num_nodes=30, num_edges=90, seed=1, weighted=with_data)
    graph = with_edge_data(graph) if with_data else graph
    order = torch.randperm(30, generator=torch.Generator().manual_seed(3))
    new_number = torch.argsort(order)
    x = graph.x.to_dense()[order]  # type: ignore[union-attr]
    other = rebuilt(graph, torch.ones(graph.num_edges, dtype=torch.bool), lambda nodes: new_number[nodes], x)
    encoder = make_encoder(name, graph)
    torch.testing.assert_close(encoder(other), encoder(graph)[order], rtol=1e-4, atol=1e-4)


@every_encoder
@pytest.mark.parametrize("with_data", [False, True])
def test_a_view_equals_the_graph_with_its_edges_and_columns_removed(name: str, with_data: bool) -> None:
    graph = make_random_graph(num_nodes=30, num_edges=120, seed=4, weighted=with_data)
    graph = with_edge_data(graph) if with_data else graph
    kept, columns = kept_edges(graph, VIEW), kept_columns(VIEW, num_columns=12, block=0, device=torch.device("cpu"))
    assert kept is not None
    assert columns is not None
    x = graph.x.to_dense() * columns  # type: ignore[union-attr]
    removed = rebuilt(graph, kept, lambda nodes: nodes, x)
    encoder = make_encoder(name, graph)
    torch.testing.assert_close(encoder(graph, VIEW), encoder(removed, CLEAN), rtol=1e-4, atol=1e-4)


@every_encoder
def test_gradients_equal_those_of_the_reference_backend(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = with_edge_data(make_random_graph(num_nodes=30, num_edges=120, seed=4, weighted=True))
    encoder, upstream = make_encoder(name, graph), torch.randn(30, 8)
    learned = list(encoder.parameters())

    def gradients() -> tuple[Tensor, ...]:
        return torch.autograd.grad(encoder(graph, VIEW), learned, upstream)

    fast = gradients()
    monkeypatch.setattr(ops, "_backend_of", lambda tensor: _torch)
    for ours, reference in zip(fast, gradients(), strict=True):
        torch.testing.assert_close(ours, reference, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", [name for name in SETTINGS if name != "mean-pooling, root weight"])
@pytest.mark.parametrize("with_data", [False, True])
def test_a_batch_of_every_neighbour_gives_roots_what_the_whole_graph_gives(name: str, with_data: bool) -> None:
    """With a hop for each layer; an MPNN, which also hears of the nodes that its own edges go to, takes one more, and
    edges that have their reverse. (The norm over a whole graph is not for batches: the recipe refuses it.)"""
    graph = make_undirected_graph(with_data=with_data)
    recipe, roots = make_recipe(name), torch.tensor([3, 17, 40, 8])
    settings = recipe.encoder
    hops = settings.num_steps + 1 if settings.name == "mpnn" else len(settings.hidden_sizes) + 1
    encoder = make_encoder(name, graph).eval()
    batch = Sampler(graph, [graph.num_nodes] * hops, **sampler_flags(recipe)).sample(roots, seed=0)
    h = batch.roots_of(encoder(Gatherer(graph).fill(batch)))
    torch.testing.assert_close(h, encoder(graph)[roots], rtol=1e-4, atol=1e-5)
    assert batch.num_nodes < graph.num_nodes


def make_undirected_graph(*, with_data: bool) -> Graph:
    generator = torch.Generator().manual_seed(0)
    source, target = torch.randint(0, 60, (2, 70), generator=generator)
    said: dict[str, Any] = {
        "edge_types": torch.randint(0, 2, (70,), generator=generator),
        "edge_weights": torch.rand(70, generator=generator),
        "edge_columns": torch.randn(70, 2, generator=generator),
    }
    x = torch.randn(60, 12, generator=generator)
    return Graph.from_edges(source, target, num_nodes=60, x=x, **(said if with_data else {}))


@pytest.mark.skipif(not _triton.IS_AVAILABLE, reason="Triton is not installed")
@pytest.mark.parametrize("name", ["gcn", "mean-pooling", "gat", "gat, layer norm", "mpnn"])
@pytest.mark.parametrize("num_edges", [0, 40])
def test_kernels_give_the_gradients_of_the_reference(
    name: str, num_edges: int, monkeypatch: pytest.MonkeyPatch, poisoned_memory: None
) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    graph = with_edge_data(make_random_graph(num_nodes=12, num_edges=num_edges, seed=4, weighted=True)).to(device)
    encoder, upstream = make_encoder(name, graph).to(device), torch.randn(12, 8, device=device)
    results = []
    for module in (_torch, _triton):
        monkeypatch.setattr(ops, "_backend_of", lambda tensor, module=module: module)
        h = encoder(graph, VIEW)
        gradients = torch.autograd.grad(h, list(encoder.parameters()), upstream, allow_unused=num_edges == 0)
        results.append((h, *(g for g in gradients if g is not None)))
    for ours, reference in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(ours, reference, rtol=1e-3, atol=1e-3)


@every_encoder
@pytest.mark.parametrize(("num_nodes", "num_edges"), [(1, 0), (5, 0), (7, 2)])
def test_graphs_without_edges_and_isolated_nodes_are_embedded(name: str, num_nodes: int, num_edges: int) -> None:
    graph = make_random_graph(num_nodes=num_nodes, num_edges=num_edges, seed=0)
    encoder = make_encoder(name, graph)
    encoder.eval()
    h = encoder(graph, VIEW)
    assert h.shape == (num_nodes, 8)
    assert torch.isfinite(h).all()
    torch.autograd.backward(h.sum())


@every_encoder
def test_several_node_types_with_and_without_features(name: str) -> None:
    graph = make_hetero_graph(seed=0)
    encoder = make_encoder(name, graph)
    h = encoder(graph, VIEW)
    assert h.shape == (graph.num_nodes, 8)
    torch.autograd.backward(h.square().sum())
    assert all(parameter.grad is not None for parameter in encoder.parameters())


@every_encoder
def test_both_networks_and_the_target_gets_no_gradient(name: str) -> None:
    graph = make_random_graph(num_nodes=20, num_edges=60, seed=2)
    online, target = make_encoder(name, graph), make_encoder(name, graph)
    h, t = online.encode_all([target], graph, VIEW)
    assert h.requires_grad
    assert not t.requires_grad
    torch.testing.assert_close(h, t)


@every_encoder
@pytest.mark.parametrize("method", ["bgrl", "grace"])
def test_methods_train_it(name: str, method: str) -> None:
    graph = with_edge_data(make_communities(num_nodes=60, num_classes=3, seed=0))
    recipe = make_recipe(name, **{"method.name": method})
    size = KnownEdges.of(graph).size
    built = build_method(recipe, input_sizes=graph.num_features, seed=0, num_nodes=60, edge_size=size)
    loss, _ = built.loss(graph, [VIEW, View(VIEW.spec, 18)])
    torch.autograd.backward(loss)
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in built.online.parameters())
    assert built.embed(graph).shape == (60, 8)


@pytest.mark.parametrize("name", ["gcn", "mean-pooling"])
def test_weights_reach_the_embedding_and_nothing_else_of_edges(name: str) -> None:
    graph = with_edge_data(make_random_graph(num_nodes=30, num_edges=120, seed=4, weighted=True))
    encoder = make_encoder(name, graph)
    assert graph.edge_weights is not None
    assert torch.equal(encoder(graph), encoder(replace(graph, edge_types=None, edge_columns=None)))
    assert not torch.allclose(encoder(graph), encoder(replace(graph, edge_weights=graph.edge_weights.flip(0))))


@pytest.mark.parametrize("name", ["gat", "mpnn"])
def test_what_edges_say_reaches_the_embedding(name: str) -> None:
    graph = with_edge_data(make_random_graph(num_nodes=30, num_edges=120, seed=4, weighted=True))
    encoder = make_encoder(name, graph)
    h = encoder(graph)
    assert graph.edge_columns is not None
    assert graph.edge_types is not None
    assert graph.edge_weights is not None
    for other in (
        replace(graph, edge_columns=-graph.edge_columns),
        replace(graph, edge_types=1 - graph.edge_types),
        replace(graph, edge_weights=graph.edge_weights.flip(0)),
    ):
        assert not torch.allclose(encoder(other), h, atol=1e-4)
