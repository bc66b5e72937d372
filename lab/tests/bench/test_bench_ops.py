"""Floors are what the docstring says, and every part of a step runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from graphstrap.graph import Graph
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.run.recipe import Recipe
from graphstrap_lab.bench.ops import Floors, Rates, _time_parts, copy_rate, find_cache_bytes, parts_of_step, together

CPU = torch.device("cpu")
SMALL = Recipe().with_settings(
    {"encoder.hidden_sizes": [16], "encoder.embedding_size": 8, "method.predictor_hidden_size": 12}
)
NO_CACHE = Rates(1e9, 4e9, 0, {"fp32": 1e12, "bf16": 2e12})


def test_floors_count_bytes_and_flops(communities: Graph) -> None:
    recipe = SMALL.with_settings({"views.edge_drop_probs": [0.5, 0.3]})
    floors = Floors(communities, recipe, NO_CACHE, "fp32")
    nodes, edges = communities.num_nodes, communities.num_edges
    kept = 0.6 * edges + nodes
    propagate = floors.propagate(16)
    assert propagate.num_bytes == pytest.approx(kept * 16 * 4 + kept * 4 + nodes * 16 * 4)
    assert propagate.seconds == pytest.approx(propagate.num_bytes / 1e9)
    product = floors.matmul(1000, 2000, 3000)
    assert product.flops == 2 * 1000 * 2000 * 3000
    assert product.seconds == max(product.flops / 1e12, product.num_bytes / 1e9)
    assert floors.passes(3, width=8).num_bytes == 3 * nodes * 8 * 4
    assert together(product, product).seconds == 2 * product.seconds


def test_a_table_that_fits_is_read_at_the_rate_of_the_cache(communities: Graph) -> None:
    in_cache = Floors(communities, SMALL, replace(NO_CACHE, cache_bytes=1 << 30), "fp32")
    assert Floors(communities, SMALL, NO_CACHE, "fp32").propagate(16).seconds == pytest.approx(
        4 * in_cache.propagate(16).seconds
    )


def test_projection_takes_the_cheaper_of_sparse_and_dense(communities: Graph) -> None:
    assert isinstance(communities.x, SparseMatrix)
    slow_products = replace(NO_CACHE, flops_per_second={"fp32": 1e3})
    fast_memory = replace(NO_CACHE, memory_bytes_per_second=1e15)
    entries = len(communities.x.values)
    assert Floors(communities, SMALL, slow_products, "fp32").project(16).flops == 2 * entries * 16
    dense = Floors(communities.with_features(communities.x.to_dense()), SMALL, fast_memory, "fp32").project(16)
    assert dense.flops == 2 * communities.num_nodes * 30 * 16


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_every_part_of_a_step_runs(communities: Graph, precision: str) -> None:
    parts = list(parts_of_step(communities, SMALL, floors=Floors(communities, SMALL, NO_CACHE, precision)))
    names = [part.name for part in parts]
    assert len(set(names)) == len(names)
    assert {"draw a view", "propagate 16, both networks, backward", "cosine 8", "weight 16 x 8"} <= set(names)
    times = _time_parts(parts, device=CPU, rounds=2)
    assert all(times[part.name] > 0 for part in parts if part.less is None)
    assert all(part.floor.seconds > 0 for part in parts)


def test_rates_are_measured() -> None:
    assert copy_rate(1 << 20, device=CPU, times=2) > 1e6
    assert find_cache_bytes(CPU) >= 1 << 16
