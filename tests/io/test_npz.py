from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.io.npz import read_npz, write_npz
from raw_files import make_arrays, make_hetero_arrays, save_arrays
from same_graph import assert_same_graph, make_full_graph, make_hetero_graph


def test_a_file_is_cleaned_on_the_way_in(tmp_path: Path) -> None:
    graph = read_npz(save_arrays(tmp_path / "small.npz", make_arrays()))
    assert graph.name == "small"
    assert list(zip(graph.indices.tolist(), graph.targets.tolist(), strict=True)) == [(1, 0), (0, 1), (2, 1), (1, 2)]
    assert (graph.cleaning.num_self_loops_dropped, graph.cleaning.num_duplicates_merged) == (1, 1)
    assert isinstance(graph.x, SparseMatrix)
    assert graph.x.to_dense().tolist() == [[1, 0, 0, 0, 3], [0] * 5, [0, 2, 0, 0, 0], [0] * 5]
    assert graph.labels is not None
    assert graph.labels.tolist() == [0, 1, 1, -1]
    assert graph.class_names == ("even", "odd")
    assert graph.splits is not None
    assert graph.splits.val.tolist() == [[False], [True], [False], [False]]


def test_directed_and_binarized_only_when_asked(tmp_path: Path) -> None:
    graph = read_npz(save_arrays(tmp_path / "g.npz", make_arrays()), directed=True, binarize=True)
    assert list(zip(graph.indices.tolist(), graph.targets.tolist(), strict=True)) == [(1, 0), (0, 1), (1, 2)]
    assert isinstance(graph.x, SparseMatrix)
    assert graph.x.values.tolist() == [1.0, 1.0, 1.0]


def test_dense_features_several_labels_and_no_features(tmp_path: Path) -> None:
    edges = {"edge_index": np.array([[0], [1]])}
    several = np.array([[1, 0, 1], [0, 0, 0]], dtype=np.uint8)
    graph = read_npz(
        save_arrays(tmp_path / "a.npz", edges | {"x": np.array([[-2.0, 3.0], [0.0, 0.5]]), "y": several}), binarize=True
    )
    assert isinstance(graph.x, torch.Tensor)
    assert graph.x.tolist() == [[-2.0, 1.0], [0.0, 1.0]]
    assert graph.labels is not None
    assert (graph.labels.dtype, graph.num_classes) == (torch.uint8, 3)
    bare = read_npz(save_arrays(tmp_path / "b.npz", edges | {"num_nodes": np.int64(5)}))
    assert (bare.num_nodes, bare.x, bare.labels, bare.splits) == (5, None, None, None)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("directed", [True, False])
def test_a_graph_survives_the_way_there_and_back(seed: int, directed: bool, tmp_path: Path) -> None:
    graph = make_full_graph(seed=seed, directed=directed)
    write_npz(tmp_path / "full.npz", graph)
    assert_same_graph(read_npz(tmp_path / "full.npz"), graph)


def test_self_loops_and_parallel_edges_survive_too(tmp_path: Path) -> None:
    graph = Graph.from_edges([0, 0, 1], [1, 1, 1], directed=True, self_loops="keep", duplicates="keep", name="g")
    write_npz(tmp_path / "g.npz", graph)
    assert_same_graph(read_npz(tmp_path / "g.npz"), graph)
    assert read_npz(tmp_path / "g.npz", directed=False).is_symmetric


def test_writing_the_same_graph_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.npz", "b.npz"):
        write_npz(tmp_path / name, make_full_graph(seed=1))
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "b.npz"]


def test_writing_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="one node type"):
        write_npz(tmp_path / "h.npz", make_hetero_graph(seed=0))
    with pytest.raises(InputError, match="nowhere"):
        write_npz(tmp_path / "nowhere" / "g.npz", make_full_graph(seed=0))


def test_several_node_types_share_one_numbering(tmp_path: Path) -> None:
    graph = read_npz(save_arrays(tmp_path / "h.npz", make_hetero_arrays()))
    assert graph.type_offsets == (0, 3, 5)
    assert graph.num_features == (2, 0)
    names = graph.edge_type_names
    assert names == (
        "author|writes|paper",
        "paper|cites|paper",
        "reverse_author|writes|paper",
        "reverse_paper|cites|paper",
    )
    assert graph.edge_types is not None
    edges = zip(graph.indices.tolist(), graph.targets.tolist(), graph.edge_types.tolist(), strict=True)
    assert sorted(edges) == [(0, 1, 1), (0, 4, 2), (1, 0, 3), (2, 3, 2), (3, 2, 0), (4, 0, 0)]
    assert graph.labels is not None
    assert graph.labels.tolist() == [1, 0, -1, -1, -1]
    assert graph.splits is not None
    assert graph.splits.train.T.tolist() == [[True] + [False] * 4, [False, True] + [False] * 3]
    assert graph.splits.val.T.tolist() == [[False] * 5, [True] + [False] * 4]
    assert read_npz(tmp_path / "h.npz", directed=True).num_edges == 3
