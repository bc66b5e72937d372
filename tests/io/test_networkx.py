from __future__ import annotations

from dataclasses import replace
from typing import Any

import networkx
import numpy as np
import pytest
import torch

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.io.networkx import from_networkx, to_networkx
from same_graph import assert_same_graph, make_full_graph, make_hetero_graph


@pytest.mark.parametrize("seed", range(5))
def test_a_graph_survives_the_way_there_and_back(seed: int) -> None:
    graph = make_full_graph(seed=seed)
    made = to_networkx(graph)
    assert isinstance(made, networkx.MultiDiGraph)
    assert_same_graph(from_networkx(made), graph, same_layout=False)


@pytest.mark.parametrize("seed", range(5))
def test_a_graph_of_several_types_survives_the_way_there_and_back(seed: int) -> None:
    graph = make_hetero_graph(seed=seed)
    assert_same_graph(from_networkx(to_networkx(graph)), graph, same_layout=False)


@pytest.mark.parametrize("directed", [True, False])
def test_untyped_edges_survive_the_way_there_and_back(directed: bool) -> None:
    graph = make_full_graph(seed=3, directed=directed)
    plain = Graph.from_edges(graph.indices, graph.targets, num_nodes=30, directed=directed, ids=graph.ids, name="plain")
    made = to_networkx(plain)
    assert made.is_directed() == directed
    assert made.number_of_edges() == plain.num_edges // (1 if directed else 2)
    assert_same_graph(from_networkx(made), plain)


def test_weights_that_differ_by_direction_need_a_directed_graph() -> None:
    graph = Graph.from_edges([0, 1], [1, 0], directed=True, edge_weights=[1.0, 2.0])
    assert isinstance(to_networkx(graph), networkx.DiGraph)
    same = replace(graph, edge_weights=torch.tensor([2.0, 2.0]))
    assert not to_networkx(same).is_directed()
    assert_same_graph(from_networkx(to_networkx(same)), same)


def test_several_labels_a_node_survive() -> None:
    labels = torch.tensor([[1, 0, 1], [0, 0, 0]], dtype=torch.uint8)
    graph = Graph.from_edges([0], [1], labels=labels)
    assert_same_graph(from_networkx(to_networkx(graph)), graph)


def test_zachary_and_his_karate_club() -> None:
    club = networkx.karate_club_graph()
    graph = from_networkx(club, label="club")
    assert (graph.num_nodes, graph.num_edges) == (34, 2 * 78)
    assert graph.ids is None
    assert graph.class_names == ("Mr. Hi", "Officer")
    assert graph.labels is not None
    assert graph.labels[0] == 0
    assert graph.edge_weights is not None
    assert float(graph.edge_weights.sum()) == 2 * sum(weight for *_, weight in club.edges(data="weight"))


def test_node_names_become_ids_and_missing_labels_minus_one() -> None:
    made = networkx.DiGraph(name="letters")
    made.add_node("b", label="vowelless", size=1.0, depth=2)
    made.add_node("a", size=3.0, depth=4)
    made.add_edge("a", "b", length=7.0)
    made.add_edge("a", "a", length=1.0)
    graph = from_networkx(made, feature=["size", "depth"], weight="length")
    assert graph.name == "letters"
    assert graph.external_ids.tolist() == ["b", "a"]
    assert graph.labels is not None
    assert graph.labels.tolist() == [0, -1]
    assert isinstance(graph.x, torch.Tensor)
    assert graph.x.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert graph.feature_names == ("size", "depth")
    assert (graph.indices.tolist(), graph.targets.tolist()) == ([1], [0])


def test_parallel_edges_from_elsewhere_add_up() -> None:
    made = networkx.MultiGraph()
    made.add_edges_from([(0, 1, {"weight": 2.0}), (0, 1, {})])
    graph = from_networkx(made)
    assert graph.num_edges == 2
    assert graph.edge_weights is not None
    assert graph.edge_weights.tolist() == [3.0, 3.0]


def test_a_graph_without_edges() -> None:
    graph = from_networkx(networkx.empty_graph(3))
    assert (graph.num_nodes, graph.num_edges) == (3, 0)
    assert_same_graph(from_networkx(to_networkx(graph)), graph)


def test_types_are_grouped_in_order() -> None:
    made = networkx.Graph()
    made.add_nodes_from([("p1", {"kind": "paper"}), ("a1", {"kind": "author"}), ("p2", {"kind": "paper"})])
    made.add_edge("a1", "p2")
    graph = from_networkx(made, node_type="kind")
    assert graph.node_types == ("author", "paper")
    assert graph.external_ids.tolist() == ["a1", "p1", "p2"]
    assert graph.indices.tolist() == [2, 0]


def test_integers_as_names_stay_integers_and_mixed_ones_become_text() -> None:
    assert from_networkx(networkx.Graph([(10, 20)])).external_ids.tolist() == [10, 20]
    assert from_networkx(networkx.Graph([(10, "x")])).external_ids.tolist() == ["10", "x"]
    with pytest.raises(InputError, match="relabel"):
        from_networkx(networkx.Graph([(10, "10")]))


def _path(nodes: dict[int, dict[str, Any]]) -> networkx.Graph:
    made = networkx.path_graph(len(nodes))
    networkx.set_node_attributes(made, nodes)
    return made


@pytest.mark.parametrize(
    ("made", "arguments", "complaint"),
    [
        (_path({0: {}, 1: {"size": 1}}), {"feature": "x"}, "choose from size"),
        (_path({0: {}, 1: {"x": [1.0]}}), {}, "node 0 lacks the attribute 'x'"),
        (_path({0: {"x": [1.0, 2.0]}, 1: {"x": [1.0]}}), {}, "different lengths"),
        (_path({0: {"x": "long"}, 1: {"x": "short"}}), {"feature": "x"}, "must be numbers"),
        (_path({0: {"label": 1}, 1: {"label": "one"}}), {}, "the same everywhere"),
        (_path({0: {}, 1: {}}), {"weight": "length"}, "no edge has the attribute 'length'"),
    ],
)
def test_what_cannot_be_used_is_refused(made: networkx.Graph, arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        from_networkx(made, **arguments)


def test_features_are_numpy_rows_that_networkx_can_write() -> None:
    made = to_networkx(make_full_graph(seed=0))
    vector = next(iter(made.nodes.values()))["x"]
    assert isinstance(vector, np.ndarray)
    assert vector.shape == (7,)


def test_a_layout_is_one_number_among_others(caplog: pytest.LogCaptureFixture) -> None:
    """Gephi and Pajek write the place of a node in a picture as x and y."""
    made = networkx.path_graph(3)
    for node in made:
        made.nodes[node].update(x=float(node), income=10.0 * node, city="Bern", label=node % 2)
    graph = from_networkx(made)
    assert graph.feature_names == ("income", "x")
    assert graph.x is not None
    assert graph.x.to_dense().tolist() == [[0.0, 0.0], [10.0, 1.0], [20.0, 2.0]]
    assert graph.labels is not None
    assert "no features: city" in caplog.text
    for node in made:
        made.nodes[node]["x"] = [1.0, float(node)]
    caplog.clear()
    assert from_networkx(made).num_features == (2,)
    assert "no features: city, income" in caplog.text
