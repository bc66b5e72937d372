from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.io.pyg import from_pyg, import_pyg, to_pyg
from same_graph import assert_same_graph, make_full_graph, make_hetero_graph

Data, HeteroData = import_pyg().Data, import_pyg().HeteroData


@pytest.mark.parametrize("seed", range(5))
def test_a_graph_survives_the_way_there_and_back(seed: int) -> None:
    graph = make_full_graph(seed=seed)
    assert_same_graph(from_pyg(to_pyg(graph, dense=False)), graph)
    assert_same_graph(from_pyg(to_pyg(graph)), graph, same_layout=False)


@pytest.mark.parametrize("seed", range(5))
def test_a_graph_of_several_types_survives_the_way_there_and_back(seed: int) -> None:
    graph = make_hetero_graph(seed=seed)
    assert_same_graph(from_pyg(to_pyg(graph, dense=False)), graph)


def test_a_plain_graph_gets_nothing_it_did_not_have() -> None:
    graph = Graph.from_edges([0, 1], [1, 2], num_nodes=4)
    data = to_pyg(graph)
    assert sorted(data.keys()) == ["edge_index", "graphstrap", "num_nodes"]
    assert_same_graph(from_pyg(data), graph)


def test_edge_index_is_sources_then_targets() -> None:
    data = Data(edge_index=torch.tensor([[0, 0], [1, 2]]), num_nodes=3)
    graph = from_pyg(data)
    assert graph.indices.tolist() == [0, 0]
    assert graph.targets.tolist() == [1, 2]
    assert graph.in_degrees.tolist() == [0, 1, 1]
    assert torch.equal(to_pyg(graph).edge_index, data.edge_index)


def test_what_pyg_says_is_what_we_say() -> None:
    data = to_pyg(make_full_graph(seed=1))
    assert data.validate()
    assert data.num_features == 7
    hetero = to_pyg(make_hetero_graph(seed=1))
    assert hetero.validate()
    assert ("topic", "reverse_has", "paper") in hetero.edge_types
    assert hetero["author"].x.shape == (8, 3)
    assert "y" not in hetero["author"]
    assert hetero["paper"].y.shape == (12,)


def test_the_data_object_is_left_alone() -> None:
    data = Data(x=torch.ones(3, 2), edge_index=torch.tensor([[2, 0, 0], [1, 1, 1]]), y=torch.tensor([0, 1, 1]))
    before = {key: value.clone() for key, value in data.to_dict().items()}
    from_pyg(data, directed=False)
    assert all(torch.equal(value, data[key]) for key, value in before.items())


def test_edges_are_taken_as_listed_unless_undirected() -> None:
    data = Data(edge_index=torch.tensor([[0, 1, 1], [1, 1, 2]]), num_nodes=3)
    assert from_pyg(data).num_edges == 2
    assert from_pyg(data, self_loops="keep").num_edges == 3
    assert from_pyg(data, directed=False).num_edges == 4


def test_labels_of_every_kind() -> None:
    index = torch.tensor([[0], [1]])
    column = from_pyg(Data(edge_index=index, y=torch.tensor([[2], [0]]))).labels
    missing = from_pyg(Data(edge_index=index, y=torch.tensor([float("nan"), 1.0]))).labels
    several = from_pyg(Data(edge_index=index, y=torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]))).labels
    assert column is not None
    assert column.tolist() == [2, 0]
    assert missing is not None
    assert missing.tolist() == [-1, 1]
    assert several is not None
    assert several.dtype == torch.uint8


@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_features_stay_sparse() -> None:
    x = torch.tensor([[0.0, 2.0], [0.0, 0.0]])
    for layout in (x.to_sparse(), x.to_sparse_csc()):
        block = from_pyg(Data(x=layout, edge_index=torch.tensor([[0], [1]]))).x
        assert block is not None
        assert not isinstance(block, torch.Tensor)
        assert torch.equal(block.to_dense(), x)


def test_hetero_data_from_elsewhere() -> None:
    data = HeteroData()
    data["a"].x = torch.ones(2, 3)
    data["b"].num_nodes = 3
    data["a", "to", "b"].edge_index = torch.tensor([[0, 1], [2, 0]])
    data["a", "to", "b"].edge_attr = torch.tensor([[1.0], [2.0]])
    data["b", "near", "b"].edge_index = torch.tensor([[0], [1]])
    graph = from_pyg(data, directed=True)
    assert graph.node_types == ("a", "b")
    assert graph.type_offsets == (0, 2, 5)
    assert graph.edge_type_names == ("a|to|b", "b|near|b")
    edges = sorted(zip(graph.indices.tolist(), graph.targets.tolist(), strict=True))
    assert edges == [(0, 4), (1, 2), (2, 3)]
    assert graph.edge_columns is not None
    assert graph.edge_columns.flatten().sum() == 3.0


def _hetero(**paper: Any) -> Any:
    data = HeteroData()
    for key, value in paper.items():
        data["paper"][key] = value
    data["paper", "cites", "paper"].edge_index = torch.tensor([[0], [1]])
    return data


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ("a string", "Data or HeteroData"),
        (Data(x=torch.ones(2, 1)), "edge_index"),
        (Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0], [2]])), "beyond 2"),
        (Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0], [2]]), y=torch.tensor([1])), "one row for each"),
        (Data(edge_index=torch.tensor([[0], [1]]), y=torch.tensor([0.5, 1.0])), "decimals"),
        (Data(edge_index=torch.tensor([[0], [1]]), y=torch.tensor([[2, 0], [1, 1]])), "0 or 1"),
        (_hetero(), "num_nodes"),
        (_hetero(num_nodes=1), "beyond 1"),
    ],
)
def test_what_is_no_graph_is_refused(data: Any, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        from_pyg(data)


def test_ids_may_be_a_list_of_names() -> None:
    graph = from_pyg(Data(edge_index=torch.tensor([[0], [1]]), ids=["one", "two"]))
    assert np.array_equal(graph.external_ids, np.array(["one", "two"]))


def test_edges_that_nothing_leads_back_from_get_reverses(caplog: pytest.LogCaptureFixture) -> None:
    data = HeteroData()
    data["user"].num_nodes, data["item"].num_nodes = 2, 3
    data["user", "buys", "item"].edge_index = torch.tensor([[0, 0, 1], [0, 1, 2]])
    graph = from_pyg(data)
    assert graph.edge_type_names == ("user|buys|item", "reverse_user|buys|item")
    assert graph.num_edges == 6
    assert "every edge gets its reverse, as there is none of user-buys-item" in caplog.text
    assert from_pyg(data, directed=True).num_edges == 3
    data["item", "rev_buys", "user"].edge_index = data["user", "buys", "item"].edge_index.flip(0)
    caplog.clear()
    assert from_pyg(data).num_edges == 6
    assert not caplog.text
