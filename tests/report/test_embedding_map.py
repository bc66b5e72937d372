"""The data of the map: what it can be coloured by, and that arrays come out of the page as they went in."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_communities

from graphstrap.graph import Graph, Splits
from graphstrap.report.embedding_map import (
    Packer,
    choose,
    cluster_column,
    graph_columns,
    map_edges,
    quantise,
    shorten_floats,
    text_column,
    traits,
)


def unpack(packer: Packer, name: str) -> Any:
    """What data.js does."""
    entry = packer.entries[name]
    data = zlib.decompress(base64.b64decode(packer.block()))[entry["start"] : entry["start"] + entry["size"]]
    if entry["kind"] == "json":
        return json.loads(data)
    kind = np.dtype(entry["kind"])
    planes = np.frombuffer(data, dtype=np.uint8).reshape(kind.itemsize, -1)
    return np.ascontiguousarray(planes.T).view(kind.newbyteorder("<")).reshape(-1)


def test_arrays_and_values_come_back() -> None:
    random = np.random.default_rng(0)
    arrays: dict[str, np.ndarray[Any, Any]] = {
        "uint8": random.integers(256, size=7).astype(np.uint8),
        "uint16": random.integers(65536, size=(5, 2)).astype(np.uint16),
        "int32": random.integers(-(2**31), 2**31, size=9).astype(np.int32),
        "float32": random.normal(size=4).astype(np.float32),
        "empty": np.zeros(0, dtype=np.int32),
    }
    packer = Packer()
    for name, array in arrays.items():
        packer.add(name, array)
    packer.add_json("texts", ["ä", "</script>", "\u2028"])
    for name, array in arrays.items():
        assert np.array_equal(unpack(packer, name), array.reshape(-1)), name
    assert unpack(packer, "texts") == ["ä", "</script>", "\u2028"]
    assert "<" not in packer.block()


def test_positions_keep_their_shape() -> None:
    positions = np.array([[0.0, 0.0], [10.0, 0.0], [10.0, 5.0]])
    assert quantise(positions).tolist() == [[0, 16384], [65535, 16384], [65535, 49151]]
    assert quantise(np.zeros((3, 2))).tolist() == [[32768, 32768]] * 3


def test_floats_lose_little_and_whole_numbers_nothing() -> None:
    random = np.random.default_rng(0)
    values = (random.normal(size=1000) * 10.0 ** random.integers(-20, 20, size=1000)).astype(np.float32)
    assert np.allclose(shorten_floats(values), values, rtol=2**-16, atol=0)
    whole = random.integers(2**24, size=100).astype(np.float32)
    assert np.array_equal(shorten_floats(whole), whole)
    odd = np.array([np.nan, np.inf, -np.inf, 0.1], dtype=np.float32)
    assert np.array_equal(np.isfinite(shorten_floats(odd)), [False, False, False, True])


def test_a_graph_gives_labels_degrees_and_dense_features() -> None:
    x = torch.arange(12.0).reshape(4, 3)
    labels = torch.tensor([0, 1, -1, 1])
    graph = Graph.from_edges(
        [0, 1, 2], [1, 2, 3], x=x, labels=labels, class_names=("a", "b"), feature_names=("p", "q", "r")
    )
    columns = {column.title: column for column in graph_columns(graph)}
    assert list(columns) == ["label", "degree", "p", "q", "r"]
    assert columns["label"].values.tolist() == [0, 1, -1, 1]
    assert columns["degree"].values.tolist() == [1, 2, 2, 1]
    assert columns["q"].values.tolist() == [1, 4, 7, 10]


def test_splits_and_types_are_columns_too() -> None:
    masks = [torch.tensor([[one] for one in row]) for row in ([True, False], [False, False], [False, True])]
    graph = Graph.from_edges(
        [0],
        [1],
        num_nodes=2,
        features=(None, None),
        node_types=("x", "y"),
        type_offsets=(0, 1, 2),
        splits=Splits(*masks),
    )
    columns = {column.title: column for column in graph_columns(graph)}
    assert columns["type"].values.tolist() == [0, 1]
    assert columns["split"].values.tolist() == [0, 2]


def test_text_is_numbers_or_categories_by_frequency() -> None:
    numbers = text_column("n", np.array(["1", "", "2.5"]))
    assert numbers.names is None
    assert np.isnan(numbers.values[1])
    words = text_column("w", np.array(["b", "a", "", "b"]))
    assert words.names == ("b", "a")
    assert words.values.tolist() == [0, 1, -1, 0]


@pytest.mark.parametrize(
    ("cell", "is_number"),
    [
        *((cell, True) for cell in ("16777215", "-16777216", "33554432", "0", "0.1", "-0.123456789", "1e-3", "2.50")),
        *((cell, False) for cell in ("16777217", "4915112345678", "1699999999.5", "007", "-01", "00.5", "inf", "nan")),
    ],
)
def test_digits_are_never_lost(cell: str, is_number: bool) -> None:
    column = text_column("n", np.array(["1", "", cell]))
    if is_number:
        assert column.names is None
        assert column.values[[0, 2]].tolist() == np.array([1, float(cell)], dtype=np.float32).tolist()
        assert np.isnan(column.values[1])
    else:
        assert column.names is not None
        assert [column.names[code] if code >= 0 else "" for code in column.values] == ["1", "", cell]


def test_traits_are_a_nodes_own_features_the_rarest_first() -> None:
    graph = make_communities(num_nodes=60, num_classes=3, seed=0)
    assert traits(graph) is None  # its columns have no names
    from dataclasses import replace

    named = traits(replace(graph, feature_names=tuple(f"w{i}" for i in range(30))))
    assert named is not None
    assert graph.x is not None
    dense = graph.x.to_dense().numpy()
    counts = (dense > 0).sum(0)
    for node in range(60):
        found = [column for column in named[node].tolist() if column >= 0]
        assert len(found) == min(8, int((dense[node] > 0).sum()))
        assert (dense[node, found] > 0).all()
        assert (np.diff(counts[found]) >= 0).all()


def test_clusters_are_numbered_from_the_largest() -> None:
    h = np.repeat(np.eye(3), [10, 50, 20], axis=0) + 0.01 * np.random.default_rng(0).normal(size=(80, 3))
    column = cluster_column(h, num_clusters=3)
    assert np.bincount(column.values).tolist() == [50, 20, 10]
    assert len(cluster_column(np.ones((20, 3)), num_clusters=12).names or ()) == 1


def test_edges_are_each_shown_once_and_capped(communities: Graph) -> None:
    nodes = np.arange(communities.num_nodes)
    sources, targets, num_all = map_edges(communities, nodes)
    assert len(sources) == num_all == communities.num_edges // 2
    assert (sources <= targets).all()
    assert (np.diff(sources) >= 0).all()
    assert len(map_edges(communities, nodes, limit=10)[0]) == 10
    some = np.array([0, 3, 6, 9])
    inside = map_edges(communities, some)
    assert max(inside[0].tolist() + inside[1].tolist(), default=0) < 4
    assert np.array_equal(choose(5, limit=9), np.arange(5))
    assert len(choose(50, limit=9)) == 9
