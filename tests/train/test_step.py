"""Steps follow the schedule; a captured step is the eager step, draws new views at every replay, and moves no weight by
being captured."""

from __future__ import annotations

import math

import pytest
import torch
from conftest import make_communities

from graphstrap.graph import Graph
from graphstrap.nn.methods import build_method
from graphstrap.run.recipe import Recipe, TrainRecipe
from graphstrap.train.loop import make_step
from graphstrap.train.step import CapturedStep, EagerStep, learning_rate_at


def test_schedule_is_the_papers() -> None:
    train = TrainRecipe(steps=10_000, warmup_steps=1_000, learning_rate=5e-4)
    for step in (1, 500, 1_000, 5_500, 9_999):
        if step <= 1_000:
            expected = step * 5e-4 / 1_000
        else:
            expected = 5e-4 * (1 + math.cos((step - 1_000) * math.pi / 9_000)) * 0.5
        assert learning_rate_at(step, train) == pytest.approx(expected)


def test_ends_at_zero_and_needs_no_warmup() -> None:
    def rate_at(step: int, *, warmup_steps: int, steps: int) -> float:
        return learning_rate_at(step, TrainRecipe(steps=steps, warmup_steps=warmup_steps, learning_rate=1.0))

    assert rate_at(100, warmup_steps=10, steps=100) == pytest.approx(0, abs=1e-12)
    assert rate_at(0, warmup_steps=0, steps=100) == 1.0
    assert rate_at(5, warmup_steps=5, steps=5) == 1.0


def test_a_constant_rate_is_constant_after_the_warm_up() -> None:
    train = TrainRecipe(steps=20, warmup_steps=4, learning_rate=0.1, schedule="constant")
    rates = [learning_rate_at(step, train) for step in range(21)]
    assert rates[:5] == pytest.approx([0.0, 0.025, 0.05, 0.075, 0.1])
    assert set(rates[4:]) == {0.1}


RECIPE = Recipe().with_settings(
    {
        "encoder.hidden_sizes": [32],
        "encoder.embedding_size": 16,
        "train.steps": 40,
        "train.learning_rate": 0.01,
        "train.precision": "fp32",
    }
)


def make_graph(device: str) -> Graph:
    return make_communities(num_nodes=300, num_classes=3, seed=0).to(device)


def run_steps(
    kind: type[EagerStep], *, device: str, steps: range, recipe: Recipe = RECIPE
) -> tuple[list[float], torch.nn.Module]:
    graph = make_graph(device)
    method = build_method(recipe, input_sizes=graph.num_features, seed=0).to(device)
    step = kind(method, graph, recipe=recipe, seed=0)
    return [float(step(number)[0]) for number in steps], method


def test_an_eager_step_follows_the_schedule_and_trains() -> None:
    graph = make_graph("cpu")
    method = build_method(RECIPE, input_sizes=graph.num_features, seed=0)
    step = make_step(method, graph, recipe=RECIPE, seed=0)
    assert type(step) is EagerStep
    losses = [float(step(number)[0]) for number in range(1, 41)]
    assert float(step.optimizer.rate) == pytest.approx(0, abs=1e-9)
    assert losses[-1] < losses[0]


@pytest.mark.gpu
@pytest.mark.parametrize("target_hops", [0, 1])
def test_captured_equals_eager(target_hops: int) -> None:
    recipe = RECIPE.with_settings({"method.target_hops": target_hops})
    eager, eager_method = run_steps(EagerStep, device="cuda", steps=range(1, 21), recipe=recipe)
    captured, captured_method = run_steps(CapturedStep, device="cuda", steps=range(1, 21), recipe=recipe)
    assert captured == pytest.approx(eager, rel=1e-4)
    for ours, theirs in zip(captured_method.parameters(), eager_method.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.gpu
def test_captured_runs_repeat_bit_for_bit() -> None:
    first, second = (run_steps(CapturedStep, device="cuda", steps=range(1, 21)) for _ in range(2))
    assert first[0] == second[0]
    assert all(torch.equal(a, b) for a, b in zip(first[1].parameters(), second[1].parameters(), strict=True))


@pytest.mark.gpu
def test_two_replays_draw_different_views() -> None:
    """With the learning rate at zero nothing but the views can change the loss."""
    graph = make_graph("cuda")
    frozen = RECIPE.with_settings({"train.learning_rate": 0.0, "method.target_decay": 1.0})
    method = build_method(frozen, input_sizes=graph.num_features, seed=0).to("cuda")
    step = CapturedStep(method, graph, recipe=frozen, seed=0)
    first, second, again = (float(step(number)[0]) for number in (1, 2, 1))
    assert first == again != second


@pytest.mark.gpu
def test_cuda_keeps_the_same_edges_as_cpu() -> None:
    from graphstrap.graph import View, ViewSpec
    from graphstrap.ops._torch import kept_edges

    view = View(ViewSpec(edge_drop_prob=0.4), 123456789012345)
    on_cpu, on_cuda = (kept_edges(make_graph(device), view) for device in ("cpu", "cuda"))
    assert on_cpu is not None
    assert on_cuda is not None
    assert torch.equal(on_cpu, on_cuda.cpu())


@pytest.mark.gpu
def test_a_run_on_cuda_resumes_bit_for_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    _, whole = run_steps(CapturedStep, device="cuda", steps=range(1, 31))
    graph = make_graph("cuda")
    method = build_method(RECIPE, input_sizes=graph.num_features, seed=0).to("cuda")
    first = CapturedStep(method, graph, recipe=RECIPE, seed=0)
    for number in range(1, 13):
        first(number)
    resumed = build_method(RECIPE, input_sizes=graph.num_features, seed=0).to("cuda")
    second = CapturedStep(resumed, graph, recipe=RECIPE, seed=0)
    resumed.load_state_dict(method.state_dict())
    for old, new in zip(first.optimizer.state.values(), resumed_parameters(second), strict=True):
        second.optimizer.state[new] = {name: tensor.clone() for name, tensor in old.items()}
    for number in range(13, 31):
        second(number)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), resumed.parameters(), strict=True))


def resumed_parameters(step: EagerStep) -> list[torch.Tensor]:
    return step.optimizer.parameters
