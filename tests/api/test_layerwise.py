"""Layer by layer gives the numbers of a full pass, in blocks of any size, also when it was cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_communities, make_random_graph
from torch import nn

from graphstrap.api import layerwise
from graphstrap.api.layerwise import embed_layers, recalibrate_layers
from graphstrap.errors import InputError
from graphstrap.graph import CLEAN, Graph, View, ViewSpec
from graphstrap.nn.encoders import recalibrate_batch_norm
from graphstrap.run.recipe import ENCODERS


def make_encoder(
    graph: Graph, *, name: str = "gcn", norm: str = "batch", sizes: tuple[int, ...] = (16, 12, 8)
) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    encoder: nn.Module = ENCODERS.get(name)(
        graph.num_features, sizes, norm=norm, weight_standardization=True, generator=generator
    )
    encoder.train()
    encoder(graph, View(ViewSpec(edge_drop_prob=0.3), 1))  # batch norm's statistics are no longer 0 and 1
    return encoder.eval()


def full_pass(encoder: nn.Module, graph: Graph) -> np.ndarray[Any, Any]:
    with torch.no_grad():
        result: np.ndarray[Any, Any] = encoder(graph, CLEAN).numpy()
    return result


@pytest.mark.parametrize("name", ["gcn", "mlp"])
@pytest.mark.parametrize("norm", ["batch", "layer", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_same_numbers_as_a_full_pass(name: str, norm: str, weighted: bool) -> None:
    graph = make_random_graph(num_nodes=200, num_edges=1500, seed=0, weighted=weighted)
    encoder = make_encoder(graph, name=name, norm=norm)
    expected = full_pass(encoder, graph)
    for rows_per_block in (1, 7, 64, 1000):
        h = embed_layers(encoder, graph, rows_per_block=rows_per_block)
        np.testing.assert_allclose(h, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["gcn", "mlp"])
def test_one_layer(name: str) -> None:
    graph = make_random_graph(num_nodes=60, num_edges=300, seed=0)
    encoder = make_encoder(graph, name=name, sizes=(6,))
    np.testing.assert_allclose(embed_layers(encoder, graph), full_pass(encoder, graph), rtol=1e-4, atol=1e-6)


def test_dense_features_and_node_types() -> None:
    graph = make_random_graph(num_nodes=100, num_edges=700, seed=0)
    typed = replace(
        graph,
        features=(torch.rand(40, 5), None, torch.rand(30, 3)),
        type_offsets=(0, 40, 70, 100),
        node_types=("a", "b", "c"),
    )
    encoder = make_encoder(typed)
    np.testing.assert_allclose(
        embed_layers(encoder, typed, rows_per_block=13), full_pass(encoder, typed), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("cut", [1, 4, 8, 13, 27])
def test_a_cut_run_goes_on_where_it_was_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int) -> None:
    graph = make_random_graph(num_nodes=200, num_edges=1500, seed=0)
    encoder = make_encoder(graph)
    calls = count_blocks(monkeypatch, stop_after=cut)
    with pytest.raises(RuntimeError, match="power cut"):
        embed_layers(encoder, graph, folder=tmp_path, rows_per_block=30)
    monkeypatch.undo()
    calls = count_blocks(monkeypatch, stop_after=10**6)
    h = embed_layers(encoder, graph, folder=tmp_path, rows_per_block=30)
    assert len(calls) == 4 * 7 - cut  # no block twice: 4 tables of 7 blocks
    np.testing.assert_allclose(h, full_pass(encoder, graph), rtol=1e-4, atol=1e-6)


def test_other_weights_begin_anew(tmp_path: Path) -> None:
    graph = make_random_graph(num_nodes=200, num_edges=1500, seed=0)
    embed_layers(make_encoder(graph), graph, folder=tmp_path)
    other = make_encoder(graph)
    with torch.no_grad():
        next(other.parameters()).mul_(2.0)
    np.testing.assert_allclose(
        embed_layers(other, graph, folder=tmp_path), full_pass(other, graph), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("name", ["gcn", "mlp"])
def test_recalibration_in_blocks_is_recalibration(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """But for the N or N - 1 that a variance is divided by: there later layers see the one, here the other."""
    monkeypatch.setattr(layerwise, "ROWS_PER_BLOCK", 17)
    graph = make_communities(num_nodes=120, num_classes=3, seed=0)
    one, other = make_encoder(graph, name=name), make_encoder(graph, name=name)
    recalibrate_batch_norm(one, [graph])
    recalibrate_layers(other, graph)
    for ours, theirs in zip(other.buffers(), one.buffers(), strict=True):
        if ours.is_floating_point():
            torch.testing.assert_close(ours, theirs, rtol=2 / 120, atol=1e-5)


def test_unknown_encoders_are_refused() -> None:
    graph = make_random_graph(num_nodes=20, num_edges=30, seed=0)
    with pytest.raises(InputError, match="embed full"):
        embed_layers(nn.Linear(2, 2), graph)


def count_blocks(monkeypatch: pytest.MonkeyPatch, *, stop_after: int) -> list[tuple[int, int]]:
    """Every block that is computed; the one after the last fails."""
    calls: list[tuple[int, int]] = []

    def counted(rows: Callable[[int, int], torch.Tensor]) -> Callable[[int, int], torch.Tensor]:
        def call(first: int, last: int) -> torch.Tensor:
            if len(calls) == stop_after:
                raise RuntimeError("power cut")
            calls.append((first, last))
            return rows(first, last)

        return call

    make = layerwise.LayerWork.make
    monkeypatch.setattr(
        layerwise.LayerWork, "make", lambda self, number, width, rows: make(self, number, width, counted(rows))
    )
    return calls


def test_a_norm_over_the_graph_has_no_layers_of_its_own() -> None:
    assert not layerwise.has_layers(ENCODERS.get("gcn")((3,), (4, 2), norm="graph"))
    assert layerwise.has_layers(ENCODERS.get("gcn")((3,), (4, 2), norm="layer"))
