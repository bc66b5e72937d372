"""Laws of many graphs in one: each is what it is alone, a batch is part of the whole, and draws repeat."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import make_communities, make_random_graph

import graphstrap as gs
from graphstrap.errors import InputError
from graphstrap.graph import Graph, Splits, View, ViewSpec
from graphstrap.graph.many import GraphBatches, draw_graphs, join_graphs, take_graphs, training_graphs
from graphstrap.io.npz import read_npz, write_npz
from graphstrap.nn.encoders.gcn import GCN
from graphstrap.ops._torch import kept_edges
from same_graph import assert_same_graph, make_full_graph

VIEW = View(ViewSpec(edge_drop_prob=0.4, feature_mask_prob=0.3, mask_elements=True), 91)


def make_parts(number: int = 4, *, dense: bool = False) -> list[Graph]:
    parts = [
        make_random_graph(num_nodes=10 + 7 * i, num_edges=40 + 10 * i, seed=i, weighted=True) for i in range(number)
    ]
    if dense:
        parts = [part.with_features(part.x.to_dense()) for part in parts]  # type: ignore[union-attr]
    return [replace(part, name=f"part-{i}") for i, part in enumerate(parts)]


def make_split_graph(number: int = 5, *, last_seed: int = 4) -> Graph:
    """Communities in several graphs; the last is for testing, the one before for validation."""
    seeds = [*range(number - 1), last_seed]
    parts = [make_communities(num_nodes=40 + 5 * i, num_classes=3, seed=seed) for i, seed in enumerate(seeds)]
    graph = join_graphs(parts)
    masks = [graph.graph_ids < number - 2, graph.graph_ids == number - 2, graph.graph_ids == number - 1]
    return replace(graph, splits=Splits(*(mask[:, None] for mask in masks)))


def make_encoder(norm: str) -> GCN:
    return GCN((12,), (16, 8), norm=norm, generator=torch.Generator().manual_seed(0))


# ---- joining and taking ----------------------------------------------------------------------------------------------


def test_graphs_that_are_joined_come_out_again_with_all_that_they_have() -> None:
    parts = [replace(make_full_graph(seed=seed, num_nodes=20 + seed), name=f"part-{seed}") for seed in range(3)]
    joined = join_graphs(parts)
    assert (joined.num_graphs, joined.num_nodes) == (3, sum(part.num_nodes for part in parts))
    for number, part in enumerate(parts):
        taken = take_graphs(joined, [number])
        ids = np.array([f"{part.name}/{one}" for one in part.external_ids])
        assert_same_graph(taken, replace(part, ids=ids, name="joined"))


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("numbers", [[2], [0, 1, 2], [3, 1], [0, 3]])
def test_a_batch_is_the_join_of_its_graphs(numbers: list[int], dense: bool) -> None:
    parts = make_parts(dense=dense)
    batch = take_graphs(join_graphs(parts), numbers)
    assert batch.num_roots is None
    assert batch.num_graphs == len(numbers)
    expected = join_graphs([parts[number] for number in numbers])
    assert_same_graph(batch, expected)
    assert batch.graph_offsets == expected.graph_offsets


def test_joining_what_is_joined_keeps_every_graph() -> None:
    parts = make_parts()
    nested = join_graphs([replace(join_graphs(parts[:2]), ids=None), parts[2]])
    assert nested.graph_offsets == join_graphs(parts[:3]).graph_offsets
    assert torch.equal(nested.indices, join_graphs(parts[:3]).indices)


def test_graphs_of_one_name_get_ids_that_differ() -> None:
    part = make_parts(1)[0]
    assert len(set(join_graphs([part, part]).external_ids.tolist())) == 2 * part.num_nodes


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"features": (torch.zeros(10, 3),)}, "12 and 3 feature columns"),
        ({"labels": torch.zeros(10, dtype=torch.int64)}, "labels"),
        ({"edge_weights": None}, "edge_weights"),
        ({"features": (torch.zeros(10, 12),)}, "dense and some sparse"),
    ],
)
def test_graphs_that_differ_are_not_joined(change: dict[str, object], words: str) -> None:
    parts = make_parts(2)
    with pytest.raises(InputError, match=words):
        join_graphs([parts[1], replace(parts[0], **change)])  # type: ignore[arg-type]


def test_wrong_numbers_and_offsets_are_refused() -> None:
    joined = join_graphs(make_parts(2))
    for numbers in ([2], [-1], [0, 0], []):
        with pytest.raises(InputError, match="different numbers from 0 to 1"):
            take_graphs(joined, numbers)
    with pytest.raises(ValueError, match="rise from 0"):
        replace(joined, graph_offsets=(0, 20, 10, joined.num_nodes))
    with pytest.raises(InputError, match="at least one graph"):
        join_graphs([])


def test_where_graphs_begin_is_written_read_and_part_of_the_fingerprint(tmp_path: Path) -> None:
    joined = join_graphs(make_parts())
    write_npz(tmp_path / "joined.npz", joined)
    again = read_npz(tmp_path / "joined.npz")
    assert again.graph_offsets == joined.graph_offsets
    assert again.fingerprint == joined.fingerprint != replace(joined, graph_offsets=()).fingerprint
    damaged = replace(joined, graph_offsets=(0, 12, joined.num_nodes))
    write_npz(tmp_path / "damaged.npz", damaged)
    with pytest.raises(InputError, match="graph_offsets"):
        read_npz(tmp_path / "damaged.npz")


# ---- embeddings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["layer", "graph", "none"])
def test_joined_graphs_embed_like_each_alone(norm: str) -> None:
    parts = make_parts()
    encoder = make_encoder(norm)
    alone = torch.cat([encoder(part) for part in parts])
    torch.testing.assert_close(encoder(join_graphs(parts)), alone, rtol=1e-4, atol=1e-5)


def test_the_norm_over_a_graph_is_not_that_over_all_graphs() -> None:
    joined = join_graphs(make_parts())
    encoder = make_encoder("graph")
    assert not torch.allclose(encoder(joined), encoder(replace(joined, graph_offsets=())), atol=1e-3)


@pytest.mark.parametrize("norm", ["layer", "graph", "none"])
def test_a_view_of_a_batch_is_that_part_of_the_view_of_the_whole(norm: str) -> None:
    joined = join_graphs(make_parts())
    encoder = make_encoder(norm)
    batch = take_graphs(joined, [3, 1])
    assert batch.node_ids is not None
    kept, whole = kept_edges(batch, VIEW), kept_edges(joined, VIEW)
    assert kept is not None
    assert whole is not None
    assert torch.equal(kept, whole[batch.edge_ids])
    torch.testing.assert_close(encoder(batch, VIEW), encoder(joined, VIEW)[batch.node_ids], rtol=1e-4, atol=1e-5)


# ---- draws -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_graphs", "num_drawn"), [(6, 1), (6, 2), (7, 3), (5, 5)])
def test_draws_repeat_and_an_epoch_sees_no_graph_twice(num_graphs: int, num_drawn: int) -> None:
    draws = [draw_graphs(num_graphs, num_drawn, seed=3, step=step) for step in range(1, 401)]
    assert draws == [draw_graphs(num_graphs, num_drawn, seed=3, step=step) for step in range(1, 401)]
    per_epoch = num_graphs // num_drawn
    for start in range(0, 400 - per_epoch, per_epoch):
        seen = [number for draw in draws[start : start + per_epoch] for number in draw]
        assert len(seen) == len(set(seen)) == per_epoch * num_drawn
    share = np.array([Counter(n for draw in draws for n in draw)[n] for n in range(num_graphs)]) / (400 * num_drawn)
    assert np.abs(share - 1 / num_graphs).max() < 0.02


def test_other_seeds_draw_otherwise() -> None:
    first, second = ([draw_graphs(8, 2, seed=s, step=step) for step in range(1, 30)] for s in (0, 1))
    assert first != second


def test_batches_drawn_before_are_kept() -> None:
    joined = join_graphs(make_parts())
    batches = GraphBatches(joined, num_drawn=1, seed=0)
    assert len({id(batches(step)) for step in range(1, 100)}) == 4
    with pytest.raises(InputError, match="between 1 and the 4 graphs, got 5"):
        GraphBatches(joined, num_drawn=5, seed=0)


# ---- training --------------------------------------------------------------------------------------------------------

SETTINGS = {
    "encoder.hidden_sizes": [16],
    "encoder.embedding_size": 8,
    "encoder.own_features": 0,
    "encoder.norm": "graph",
    "train.steps": 20,
    "train.checkpoint_seconds": 0.0,
    "data.training_graphs": "train-val",
    "train.graphs_per_step": 2,
}


@pytest.mark.parametrize("method", ["bgrl", "grace", "dgi", "gmi", "barlow-twins"])
def test_test_graphs_are_embedded_and_never_trained_on(method: str) -> None:
    graph = make_split_graph()
    estimator = gs.Embedder(settings={**SETTINGS, "method.name": method}, device="cpu")
    h = estimator.fit(graph).embed(graph)
    assert h.shape == (graph.num_nodes, 8)
    seen, spoiled = take_graphs(graph, [0, 1, 2, 3]), make_split_graph(last_seed=77)
    assert spoiled.fingerprint != graph.fingerprint
    again = gs.Embedder(settings={**SETTINGS, "method.name": method}, device="cpu").fit(spoiled)
    np.testing.assert_array_equal(again.embed(seen), h[: seen.num_nodes])


def test_only_the_named_parts_are_trained_on() -> None:
    graph = make_split_graph()
    assert training_graphs(graph, "all") is graph
    assert training_graphs(graph, "train").num_graphs == 3
    part = training_graphs(graph, "train-val")
    assert (part.num_graphs, part.node_ids, part.edge_ids) == (4, None, None)
    with pytest.raises(InputError, match="use all"):
        training_graphs(replace(graph, splits=None), "train")


def test_a_run_over_drawn_graphs_resumes_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make_split_graph()
    whole = gs.Embedder(settings=SETTINGS, device="cpu").fit(graph).embed(graph)
    calls = 0

    def cut(batches: GraphBatches, step: int, original: object = GraphBatches.__call__) -> Graph:
        nonlocal calls
        calls += 1
        if calls == 8:
            raise RuntimeError("power cut")
        return original(batches, step)  # type: ignore[operator,no-any-return]

    with monkeypatch.context() as patch:
        patch.setattr(GraphBatches, "__call__", cut)
        with pytest.raises(RuntimeError, match="power cut"):
            gs.Embedder(settings=SETTINGS, device="cpu").fit(graph, run=tmp_path / "run")
    resumed = gs.Embedder.resume(tmp_path / "run", graph)
    np.testing.assert_array_equal(resumed.embed(graph), whole)


def test_all_graphs_at_once_are_the_graph_itself() -> None:
    graph = make_split_graph()
    settings = {**SETTINGS, "data.training_graphs": "all"}
    first, second = (
        gs.Embedder(settings={**settings, "train.graphs_per_step": number}, device="cpu").fit(graph).embed(graph)
        for number in (0, graph.num_graphs)
    )
    np.testing.assert_array_equal(first, second)


def test_walks_know_nodes_by_number_and_refuse_drawn_graphs() -> None:
    with pytest.raises(InputError, match="graphs_per_step=0"):
        gs.Recipe().with_settings({"method.name": "deepwalk", "train.graphs_per_step": 1})


@pytest.mark.gpu
@pytest.mark.parametrize("graphs_per_step", [0, 2])
def test_training_on_cuda_repeats_captured_or_drawn(graphs_per_step: int) -> None:
    graph = make_split_graph()
    settings = {**SETTINGS, "train.graphs_per_step": graphs_per_step}
    first, second = (gs.Embedder(settings=settings, device="cuda").fit(graph).embed(graph) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.gpu
def test_the_norm_over_graphs_on_cuda_is_that_of_the_cpu() -> None:
    joined = join_graphs(make_parts())
    encoder = make_encoder("graph")
    expected = encoder(joined, VIEW)
    on_cuda = encoder.cuda()(joined.to("cuda"), VIEW)
    torch.testing.assert_close(on_cuda.cpu(), expected, rtol=1e-3, atol=1e-4)
