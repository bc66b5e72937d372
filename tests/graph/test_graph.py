"""Laws of the graph value: what goes in comes out, cleaning adds up, nothing changes behind one's back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_random_graph
from hypothesis import given, settings
from hypothesis import strategies as st

from graphstrap.errors import InputError
from graphstrap.graph import Graph

edge_lists = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=60)


def edge_set(graph: Graph) -> set[tuple[int, int]]:
    return set(zip(graph.indices.tolist(), graph.targets.tolist(), strict=True))


@settings(max_examples=60, deadline=None)
@given(edges=edge_lists, directed=st.booleans())
def test_edges_survive_and_cleaning_adds_up(edges: list[tuple[int, int]], directed: bool) -> None:
    source, target = map(list, zip(*edges, strict=True))
    graph = Graph.from_edges(source, target, num_nodes=10, directed=directed)
    expected = {(s, t) for s, t in edges if s != t}
    if not directed:
        expected |= {(t, s) for s, t in expected}
    assert edge_set(graph) == expected
    cleaning = graph.cleaning
    assert cleaning.num_edges_given == len(edges)
    assert cleaning.num_self_loops_dropped == sum(s == t for s, t in edges)
    remaining = len(edges) - cleaning.num_self_loops_dropped - cleaning.num_duplicates_merged
    assert remaining == len({(s, t) for s, t in edges if s != t})
    assert graph.num_edges == remaining + cleaning.num_reverse_edges_added
    assert directed or graph.is_symmetric


@settings(max_examples=30, deadline=None)
@given(edges=edge_lists)
def test_transpose_turns_every_edge_around_and_knows_its_position(edges: list[tuple[int, int]]) -> None:
    source, target = map(list, zip(*edges, strict=True))
    graph = Graph.from_edges(source, target, num_nodes=10, directed=True)
    back = graph.transpose
    rows = torch.repeat_interleave(torch.arange(10), back.indptr.diff())
    assert torch.equal(graph.indices[back.edge_positions].long(), rows)
    assert torch.equal(graph.targets[back.edge_positions], back.indices.long())


def test_rows_are_sorted_and_edge_columns_follow_their_edges() -> None:
    source, target = torch.tensor([3, 1, 2, 1]), torch.tensor([0, 0, 1, 0])
    graph = Graph.from_edges(
        source, target, num_nodes=4, directed=True, edge_weights=[3.0, 1.0, 2.0, 5.0], edge_times=[30, 10, 20, 50]
    )
    assert graph.indices.tolist() == [1, 3, 2]
    assert graph.edge_weights is not None
    assert graph.edge_weights.tolist() == [6.0, 3.0, 2.0]  # duplicates add up
    assert graph.edge_times is not None
    assert graph.edge_times.tolist() == [10, 30, 20]  # and keep the first one's other columns


def test_an_edge_given_both_ways_keeps_its_weights_when_symmetrised() -> None:
    graph = Graph.from_edges([0, 1, 2], [1, 0, 0], edge_weights=[2.0, 3.0, 4.0])
    assert graph.edge_weights is not None
    pairs = zip(graph.indices.tolist(), graph.targets.tolist(), strict=True)
    weights = dict(zip(pairs, graph.edge_weights.tolist(), strict=True))
    assert weights == {(1, 0): 3.0, (2, 0): 4.0, (0, 1): 2.0, (0, 2): 4.0}
    assert graph.cleaning.num_reverse_edges_added == 1


def test_reverse_edges_of_typed_edges_get_types_of_their_own() -> None:
    graph = Graph.from_edges([0, 1], [1, 2], edge_types=[0, 1], edge_type_names=("cites", "writes"))
    assert graph.edge_type_names == ("cites", "writes", "reverse_cites", "reverse_writes")
    assert graph.edge_types is not None
    kinds = dict(
        zip(zip(graph.indices.tolist(), graph.targets.tolist(), strict=True), graph.edge_types.tolist(), strict=True)
    )
    assert kinds == {(0, 1): 0, (1, 2): 1, (1, 0): 2, (2, 1): 3}


def test_keeping_loops_and_duplicates() -> None:
    graph = Graph.from_edges([0, 0, 0], [0, 1, 1], directed=True, self_loops="keep", duplicates="keep")
    assert graph.num_edges == 3
    assert "nothing to clean" in str(graph.cleaning)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"source": [0, 5], "target": [1, 1], "num_nodes": 3}, "names node 5"),
        ({"source": [0], "target": [1, 2]}, "aligned"),
        ({"source": [-1], "target": [0]}, "negative"),
        ({"source": [0.5], "target": [0]}, "integers"),
        ({"source": [0], "target": [1], "labels": [1, 2, 3], "num_nodes": 2}, "labels"),
        ({"source": [0], "target": [1], "x": torch.zeros(5, 2), "num_nodes": 2}, "feature rows"),
        ({"source": [0], "target": [1], "duplicates": "drop"}, "merge, keep"),
        ({"source": ["a", "b"], "target": ["b", "c"]}, "source must be numbers, got 'a'.* ids=.*gs.read_tables"),
        ({"source": [0], "target": np.array(["b"])}, "target must be numbers, got 'b'"),
        ({"source": [0], "target": [1], "x": [["a"], ["b"]]}, "x must be numbers, got 'a': turn text into numbers"),
        ({"source": [0], "target": [1], "x": np.array([[1, "b"]], object)}, "x must be numbers, got 'b'"),
        ({"source": [0], "target": [1], "x": [[1], [1, 2]]}, "x must have as many numbers in each row"),
        ({"source": [0], "target": [1], "labels": ["u", "v"]}, "labels must be numbers, got 'u'.*class_names"),
        ({"source": [0], "target": [1], "labels": [0, None]}, "labels must be numbers, got 'None'.*-1 for none"),
        ({"source": [0], "target": [1], "labels": [0, float("nan")]}, "whole numbers, got nan: .*-1 for none"),
        (
            {"source": [0], "target": [1], "labels": torch.tensor([0, 1.5])},
            "whole numbers, got 1.5: number the classes",
        ),
        ({"source": [0], "target": [1], "edge_types": ["u"]}, "edge_types must be numbers.*edge_type_names"),
        ({"source": [0], "target": [1], "edge_weights": ["u"]}, "edge_weights must be numbers"),
        ({"source": [0], "target": [1], "y": [0, 1]}, "no argument y: did you mean labels"),
        ({"source": [0], "target": [1], "label": [0, 1]}, "no argument label: did you mean labels"),
        ({"source": [0], "target": [1], "edge_weight": [1.0]}, "no argument edge_weight: did you mean edge_weights"),
        ({"source": [0], "target": [1], "colour": 3}, "no argument colour: see the fields of gs.Graph"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Graph.from_edges(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("labels", [[0.0, 1.0, -1.0], np.array([0, 1, -1], np.int8), torch.tensor([0.0, 1.0, -1.0])])
def test_classes_are_integers_however_they_are_written(labels: object) -> None:
    graph = Graph.from_edges([0, 1], [1, 2], labels=labels)
    assert graph.labels is not None
    assert (graph.labels.dtype, graph.labels.tolist()) == (torch.int64, [0, 1, -1])


def test_tables_of_pandas_are_arrays() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"source": [0, 1], "target": [1, 2], "weight": [1.5, 2.0]}, index=[7, 9])
    x = pandas.DataFrame({"age": [1, 2, 3], "amount": [0.5, 0.25, 0.0]}, index=[3, 5, 4])
    graph = Graph.from_edges(table["source"], table["target"], x=x, edge_weights=table["weight"])
    given = Graph.from_edges([0, 1], [1, 2], x=x.to_numpy(), edge_weights=[1.5, 2.0])
    assert graph.fingerprint == given.fingerprint


def test_types_are_contiguous_and_have_their_own_blocks() -> None:
    graph = Graph.from_edges(
        [0, 1], [2, 2], num_nodes=3, features=(torch.ones(2, 4), None), type_offsets=(0, 2, 3), node_types=("a", "b")
    )
    assert graph.num_features == (4, 0)
    with pytest.raises(ValueError, match="2 node types"):
        _ = graph.x


def test_fingerprint_sees_all_that_training_sees() -> None:
    graph = make_random_graph(num_nodes=20, num_edges=50, seed=0)
    again = make_random_graph(num_nodes=20, num_edges=50, seed=0)
    other = make_random_graph(num_nodes=20, num_edges=50, seed=1)
    assert graph.fingerprint == again.fingerprint != other.fingerprint
    assert graph.with_features(None).fingerprint != graph.fingerprint
    weighted = [replace(graph, edge_weights=torch.full((graph.num_edges,), w)).fingerprint for w in (1.0, 2.0)]
    renamed = replace(graph, ids=np.arange(20) + 1).fingerprint
    assert len({graph.fingerprint, renamed, *weighted}) == 4
    assert replace(graph, labels=torch.ones(20)).fingerprint == graph.fingerprint
    kinds, columns = torch.arange(graph.num_edges) % 3, torch.rand(graph.num_edges, 2)
    more: list[dict[str, Any]] = [
        {"edge_types": kinds},
        {"edge_types": 2 - kinds},
        {"edge_columns": columns},
        {"edge_columns": 2 * columns},
    ]
    more += [{"node_times": torch.arange(20)}, {"node_times": torch.ones(20)}]
    assert len({replace(graph, **one).fingerprint for one in more} | {graph.fingerprint}) == 7
    before = graph.fingerprint
    assert all(replace(graph, **one).has_fingerprint(before) for one in more)  # of runs from before they were seen
    assert not replace(graph, **more[0]).has_fingerprint(replace(graph, **more[1]).fingerprint)
    as_stored = replace(graph, edge_types=kinds.to(torch.uint8)).fingerprint
    assert as_stored == replace(graph, edge_types=kinds).fingerprint


def test_no_columns_are_no_features() -> None:
    graph = make_random_graph(num_nodes=20, num_edges=50, seed=0)
    assert replace(graph, features=(torch.zeros(20, 0),)).x is None


def test_a_graph_on_its_own_device_is_itself() -> None:
    graph = make_random_graph(num_nodes=20, num_edges=50, seed=0)
    assert graph.to("cpu") is graph
    assert graph.to("meta").device.type == "meta"


@pytest.mark.parametrize("wrong", [-5, 2**40])
def test_labels_that_are_no_classes_are_refused(wrong: int) -> None:
    with pytest.raises(InputError, match=f"from 0 up, or -1 for none, got {wrong}"):
        Graph.from_edges([0, 1], [1, 2], labels=[0, 1, wrong])
    assert Graph.from_edges([0, 1], [1, 2], labels=[0, 1, -1]).labels is not None


def test_features_of_one_type_are_x() -> None:
    with pytest.raises(InputError, match="give x= for nodes of one type"):
        Graph.from_edges([0, 1], [1, 2], features=torch.zeros(3, 2))


def test_a_table_of_pandas_keeps_its_names_and_its_columns_of_yes_and_no() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"b": [1.0, 2.0, 3.0], "a": [True, False, True]})
    graph = Graph.from_edges([0, 1], [1, 2], x=table)
    assert graph.feature_names == ("b", "a")
    assert graph.x is not None
    assert graph.x.to_dense().tolist() == [[1.0, 1.0], [2.0, 0.0], [3.0, 1.0]]
    fixed = np.eye(3, dtype=np.float32)
    fixed.flags.writeable = False
    assert Graph.from_edges([0, 1], [1, 2], x=fixed).num_features == (3,)
    with pytest.raises(InputError, match="x must be numbers, got 'red'"):
        Graph.from_edges([0, 1], [1, 2], x=table.assign(a=["red", "green", "blue"]))
