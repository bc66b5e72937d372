"""The made graphs keep their promises, the slope is exact, and growth ends where it should."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from graphstrap_lab.bench import scale
from graphstrap_lab.bench.graphs import load_with_recipe, power_law_graph, wikics_like
from graphstrap_lab.bench.scale import ScaleSettings, fit_slopes, log_slope, measure_growth

CPU = torch.device("cpu")


@pytest.mark.parametrize("num_nodes", [64, 1000, 5001])
def test_the_generator_makes_sixteen_edges_a_node(num_nodes: int) -> None:
    graph = power_law_graph(num_nodes, num_features=4, seed=0, device=CPU)
    num_edges = 2 * (num_nodes * 16 // 2)
    assert graph.num_edges == num_edges
    assert int(graph.in_degrees.sum()) == num_edges
    assert int(graph.indices.min()) >= 0
    assert int(graph.indices.max()) < num_nodes
    assert graph.is_symmetric
    assert not (graph.indices == graph.targets).any()
    within = graph.targets[1:] == graph.targets[:-1]
    assert (graph.indices.diff()[within] >= 0).all()  # sorted within a row
    assert graph.num_features == (4,)


def test_degrees_follow_a_power_law() -> None:
    """The node of rank r has a degree close to r ** -0.6, but for the 8 edges that all have."""
    graph = power_law_graph(20_000, num_features=1, seed=1, device=CPU)
    excess = graph.in_degrees.sort(descending=True).values.double() - 8
    ranks = [10, 20, 40, 80, 160, 320]
    slope = log_slope(ranks, [float(excess[rank]) for rank in ranks])
    assert slope == pytest.approx(-0.6, abs=0.05)
    assert int(graph.in_degrees.max()) > 50 * int(graph.in_degrees.double().median())


def test_the_same_seed_makes_the_same_graph() -> None:
    first, second, third = (power_law_graph(200, num_features=3, seed=s, device=CPU) for s in (0, 0, 1))
    assert first.fingerprint == second.fingerprint != third.fingerprint


def test_a_graph_like_wikics_has_its_sizes() -> None:
    graph = wikics_like()
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (11_701, 431_726, (300,))
    assert graph.is_symmetric
    prepared, recipe = load_with_recipe("wikics-like")
    assert recipe.name == "wikics"
    assert isinstance(prepared.x, torch.Tensor)
    assert prepared.x.std(0, correction=0).allclose(torch.ones(300), atol=1e-3)


@pytest.mark.parametrize("power", [0.5, 1.0, 1.37])
def test_the_slope_is_exact(power: float) -> None:
    sizes = [1e5 * 2**k for k in range(6)]
    assert log_slope(sizes, [3.0 * size**power for size in sizes]) == pytest.approx(power, abs=1e-12)
    assert log_slope(sizes[:1], [1.0]) is None


def test_small_sizes_do_not_count_for_the_slope() -> None:
    rows = [{"num_nodes": n, "step_ms": 2.0 * n, "peak_bytes": 5.0 * n**2} for n in (200_000, 400_000, 800_000)]
    small = [{"num_nodes": 10_000, "step_ms": 1e9, "peak_bytes": 1e9}]
    slopes = fit_slopes([*small, *rows])
    assert slopes["time"] == pytest.approx(1.0)
    assert slopes["memory"] == pytest.approx(2.0)
    assert fit_slopes(small) == {"time": None, "memory": None}


def made_up_row(num_nodes: int, settings: ScaleSettings, *, device: torch.device) -> dict[str, Any]:
    if num_nodes > 50_000:
        raise torch.OutOfMemoryError("there is no more")
    return {"num_nodes": num_nodes, "step_ms": 1.0, "peak_bytes": 100 * num_nodes}


def test_growth_ends_at_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "measure_size", made_up_row)
    notes: list[str] = []

    def sizes(**limits: int) -> list[int]:
        rows = measure_growth(ScaleSettings(), device=CPU, note=notes.append, **limits)
        return [row["num_nodes"] for row in rows]

    assert sizes(max_nodes=20_000) == [10_000, 20_000]
    assert sizes(max_bytes=2_000_000) == [10_000, 20_000]
    assert sizes() == [10_000, 20_000, 40_000]
    assert notes == [
        "stopped: 40,000 nodes would take about 4,000,000 bytes, and 2,000,000 are allowed",
        "stopped: 80,000 nodes do not fit",
    ]


def test_a_size_is_measured() -> None:
    settings = ScaleSettings(num_features=4, hidden_size=4, embedding_size=4, predictor_hidden_size=4, rounds=1)
    row = scale.measure_on_cpu(num_nodes=500, **vars(settings))
    assert row["num_edges"] == 8000
    assert row["step_ms"] > 0
    assert row["device"] == "cpu"
