"""The fused kernels equal plain PyTorch in float64, forward and every gradient, for any shape and any sharing out of
the work; they write every element, repeat their bits and hide no bad number. Without a GPU, Triton's interpreter runs
them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from graphstrap.ops import _triton
from graphstrap.ops._triton import batch_norm as batch_norm_module
from graphstrap.ops._triton import tiles

pytestmark = [
    pytest.mark.skipif(not _triton.IS_AVAILABLE, reason="Triton is not installed"),
    pytest.mark.skipif(
        not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1",
        reason="neither a GPU nor Triton's interpreter",
    ),
]

EPS = 1e-2  # a row of two close numbers is ill-conditioned with less, in any float32 code
Inputs = dict[str, Tensor]


class Op(NamedTuple):
    run: Callable[[Inputs], Tensor]
    before_prelu: Callable[[Inputs], Tensor]  # the reference
    vectors: tuple[str, ...]  # the inputs of shape (D,)
    launches: tuple[int, int]  # forward, backward


def run_batch_norm(inputs: Inputs) -> Tensor:
    x, slope, weight, bias = inputs.values()
    return _triton.batch_norm_prelu(x, as_norm(weight, bias), slope)


def run_layer_norm(inputs: Inputs) -> Tensor:
    x, slope, shift, weight, bias = inputs.values()
    return _triton.layer_norm_prelu(x, as_norm(weight, bias), slope, shift)


def run_bias(inputs: Inputs) -> Tensor:
    return _triton.bias_prelu(inputs["x"], inputs["bias"], inputs["slope"])


def as_norm(weight: Tensor, bias: Tensor, **statistics: Any) -> Any:
    """What an epilogue reads of a norm layer, with weights that need not be parameters."""
    running = {"running_mean": torch.zeros_like(weight), "running_var": torch.ones_like(weight), "momentum": 0.1}
    return SimpleNamespace(weight=weight, bias=bias, eps=EPS, **running | statistics)


def batch_norm(inputs: Inputs) -> Tensor:
    return F.batch_norm(inputs["x"], None, None, inputs["weight"], inputs["bias"], training=True, eps=EPS)


def layer_norm(inputs: Inputs) -> Tensor:
    shifted = inputs["x"] + inputs["shift"]
    return F.layer_norm(shifted, shifted.shape[1:], inputs["weight"], inputs["bias"], EPS)


OPS = {
    "batch_norm": Op(run_batch_norm, batch_norm, ("weight", "bias"), (3, 3)),
    "layer_norm": Op(run_layer_norm, layer_norm, ("shift", "weight", "bias"), (1, 2)),
    "bias": Op(run_bias, lambda inputs: inputs["x"] + inputs["bias"], ("bias",), (1, 2)),
}
every_op = pytest.mark.parametrize("op", OPS.values(), ids=OPS.keys())
shapes = st.tuples(st.integers(1, 70), st.integers(1, 70))
sharing = st.tuples(st.sampled_from([256, 1024]), st.sampled_from([1, 5, 1000]))
seeds = st.integers(0, 2**31)


@pytest.fixture(scope="module")
def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


@every_op
@settings(max_examples=12, deadline=None)
@given(shape=shapes, sizes=sharing, seed=seeds)
def test_equals_the_reference(op: Op, device: str, shape: tuple[int, int], sizes: tuple[int, int], seed: int) -> None:
    assume(shape[0] > 1 or op is not OPS["batch_norm"])  # PyTorch takes no batch of one row
    inputs, upstream = make_inputs(op, shape, seed, device)
    assume(far_from_the_kink(op, inputs))
    with poisoned_memory(), shared_out(*sizes):
        ours = value_and_gradients(op.run, inputs, upstream)
    assert_same(ours, value_and_gradients(reference(op), widened(inputs), upstream.double()), 2e-5)


@every_op
@settings(max_examples=6, deadline=None)
@given(shape=shapes, seed=seeds)
def test_bfloat16_is_rounded_only_at_the_ends(op: Op, device: str, shape: tuple[int, int], seed: int) -> None:
    assume(shape[0] > 1 or op is not OPS["batch_norm"])
    inputs, upstream = make_inputs(op, shape, seed, device)
    inputs["x"], upstream = inputs["x"].bfloat16(), upstream.bfloat16()
    assume(far_from_the_kink(op, inputs))
    with poisoned_memory():
        ours = value_and_gradients(op.run, inputs, upstream)
    expected = value_and_gradients(reference(op), widened(inputs), upstream.double())
    assert [name for name, value in ours.items() if value.dtype == torch.bfloat16] == ["value", "x"]
    assert_same({name: ours[name] for name in ("value", "x")}, expected, 1e-2)
    assert_same({name: value for name, value in ours.items() if name not in ("value", "x")}, expected, 2e-5)


@settings(max_examples=12, deadline=None)
@given(shape=shapes, sizes=sharing, seed=seeds, narrow=st.booleans())
def test_row_cosine_equals_the_reference(
    device: str, shape: tuple[int, int], sizes: tuple[int, int], seed: int, narrow: bool
) -> None:
    generator = torch.Generator().manual_seed(seed)
    q, t = (torch.randn(shape, generator=generator).to(device) for _ in range(2))
    upstream = torch.randn(shape[0], generator=generator).to(device)
    q[::3], t[1::4] = 0.0, 0.0
    q[3::6] = 5e-9 / shape[1] ** 0.5  # as good as 0
    if narrow:
        q, t = q.bfloat16(), t.bfloat16()
    with poisoned_memory(), shared_out(*sizes):
        ours = value_and_gradients(lambda inputs: _triton.row_cosine(inputs["q"], t), {"q": q}, upstream)
    expected = value_and_gradients(lambda inputs: cosine(inputs["q"], t.double()), {"q": q.double()}, upstream.double())
    assert ours["value"].dtype == torch.float32
    assert ours["q"].dtype == q.dtype
    assert_same({"value": ours["value"]}, expected, 2e-5)
    length = q.double().norm(dim=1, keepdim=True)  # the gradient is of the order of 1 / length
    assert_same({"q": ours["q"] * length}, {"q": expected["q"] * length}, 1e-2 if narrow else 2e-5)
    assert not ours["q"][::3].any()


def test_row_cosine_takes_a_gradient_that_is_one_number_for_all_rows(device: str) -> None:
    q, t = torch.randn(5, 3, device=device, requires_grad=True), torch.randn(5, 3, device=device, requires_grad=True)
    for_q, for_t = torch.autograd.grad(_triton.row_cosine(q, t).sum(), (q, t), allow_unused=True)
    (expected,) = torch.autograd.grad(cosine(q.double(), t.double()).sum(), q)
    torch.testing.assert_close(for_q, expected)
    assert for_t is None


@settings(max_examples=8, deadline=None)
@given(shape=shapes, sizes=sharing, seed=seeds, new_batch_weight=st.floats(0.0, 1.0))
def test_running_statistics_are_those_of_batch_norm(
    device: str, shape: tuple[int, int], sizes: tuple[int, int], seed: int, new_batch_weight: float
) -> None:
    assume(shape[0] > 1)
    inputs, _ = make_inputs(OPS["batch_norm"], shape, seed, device)
    layer = torch.nn.BatchNorm1d(shape[1], momentum=new_batch_weight, device=device, dtype=torch.float64)
    mean, var = torch.zeros(shape[1], device=device), torch.ones(shape[1], device=device)
    for step in range(2):
        layer(inputs["x"].double() + step)
        with shared_out(*sizes):
            statistics = {"running_mean": mean, "running_var": var, "momentum": new_batch_weight}
            norm = as_norm(inputs["weight"], inputs["bias"], **statistics)
            _triton.batch_norm_prelu(inputs["x"] + step, norm, inputs["slope"])
    assert layer.running_mean is not None
    assert layer.running_var is not None
    assert_same({"mean": mean, "var": var}, {"mean": layer.running_mean, "var": layer.running_var}, 2e-5)


def test_one_row_leaves_the_running_statistics_alone(device: str) -> None:
    inputs, _ = make_inputs(OPS["batch_norm"], (1, 5), 0, device)
    mean, var = torch.full((5,), 0.5, device=device), torch.full((5,), 2.0, device=device)
    inputs = {name: value.detach() for name, value in inputs.items()}
    norm = as_norm(inputs["weight"], inputs["bias"], running_mean=mean, running_var=var, momentum=0.3)
    _triton.batch_norm_prelu(inputs["x"], norm, inputs["slope"])
    assert (mean.tolist(), var.tolist()) == ([0.5] * 5, [2.0] * 5)


@pytest.mark.parametrize("offset", [1e4, -3e5])
@pytest.mark.parametrize("sizes", [(64, 3), (1024, 1000)])
def test_a_large_mean_does_not_hide_a_small_variance(device: str, offset: float, sizes: tuple[int, int]) -> None:
    op = OPS["batch_norm"]
    inputs, upstream = make_inputs(op, (60, 5), 0, device)
    inputs["x"] = offset + inputs["x"] * torch.tensor([0.1, 0.5, 1.0, 10.0, 100.0], device=device)
    with shared_out(*sizes):
        ours = value_and_gradients(op.run, inputs, upstream)
    assert_same(ours, value_and_gradients(reference(op), widened(inputs), upstream.double()), 2e-5)


def test_an_unusual_first_row_costs_no_accuracy(device: str) -> None:
    op = OPS["batch_norm"]
    inputs, upstream = make_inputs(op, (60, 5), 0, device)
    inputs["x"][0] = 1000.0
    ours = value_and_gradients(op.run, inputs, upstream)
    assert_same(ours, value_and_gradients(reference(op), widened(inputs), upstream.double()), 2e-5)


@every_op
def test_the_slope_rules_at_zero(op: Op, device: str) -> None:
    inputs, upstream = make_inputs(op, (6, 4), 0, device)
    for name in op.vectors:
        inputs[name] = torch.zeros_like(inputs[name])
    if "weight" not in inputs:
        inputs["x"] = torch.zeros_like(inputs["x"])
    ours = value_and_gradients(op.run, inputs, upstream)
    assert (ours["value"] == 0).all()
    assert ours["slope"] == 0
    torch.testing.assert_close(ours["bias"], (inputs["slope"] * upstream).sum(0))


@every_op
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_bad_number_shows_where_it_reaches_and_nowhere_else(op: Op, device: str, bad: float) -> None:
    inputs, _ = make_inputs(op, (7, 5), 0, device)
    inputs["x"][3, 2] = bad
    reached = torch.zeros(7, 5, dtype=torch.bool, device=device)
    reached[slice(None) if op is OPS["batch_norm"] else 3, slice(None) if op is OPS["layer_norm"] else 2] = True
    with np.errstate(all="ignore"):
        out = op.run(inputs)
    assert torch.equal(~out.isfinite(), reached)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_bad_number_shows_in_the_cosine_of_its_row(device: str, bad: float) -> None:
    for spoil in (0, 1):
        rows = [torch.randn(4, 3, device=device), torch.randn(4, 3, device=device)]
        rows[spoil][2, 1] = bad
        q = rows[0].requires_grad_()
        with np.errstate(all="ignore"):
            value = _triton.row_cosine(q, rows[1])
            (gradient,) = torch.autograd.grad(value.sum(), q)
        assert (~value.isfinite()).tolist() == [False, False, True, False]
        assert (~gradient.isfinite()).any(dim=1).tolist() == [False, False, True, False]


def test_parts_of_any_number_add_up(device: str) -> None:
    parts, slope_parts = torch.rand(3, 2, 13, device=device), torch.rand(2500, device=device)
    sums, slope_sum = tiles.add_parts(parts, slope_parts)
    torch.testing.assert_close(sums, parts.sum(0))
    torch.testing.assert_close(slope_sum, slope_parts.sum(0, keepdim=True))


@every_op
def test_the_same_bits_every_time(op: Op, device: str) -> None:
    inputs, upstream = make_inputs(op, (61, 37), 0, device)
    with shared_out(256, 4):
        first, second = (value_and_gradients(op.run, inputs, upstream) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


@every_op
def test_one_activation_is_kept(op: Op, device: str) -> None:
    inputs, _ = make_inputs(op, (9, 5), 0, device)
    kept: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, note):
        op.run(inputs)
        assert not kept
        op.run({name: value.clone().requires_grad_() for name, value in inputs.items()})
    assert sum(tensor.dim() == 2 for tensor in kept) == 1


@every_op
def test_number_of_launches(op: Op, device: str) -> None:
    inputs, upstream = make_inputs(op, (9, 5), 0, device)
    leaves = {name: value.requires_grad_() for name, value in inputs.items()}
    launch = mock.Mock(wraps=tiles.launch_on)
    with mock.patch.object(tiles, "launch_on", launch), mock.patch.object(batch_norm_module, "launch_on", launch):
        out = op.run(leaves)
        forward = launch.call_count
        torch.autograd.grad(out, list(leaves.values()), upstream)
    assert (forward, launch.call_count - forward) == op.launches


@every_op
def test_rows_need_not_be_contiguous(op: Op, device: str) -> None:
    inputs, upstream = make_inputs(op, (9, 5), 0, device)
    ours = value_and_gradients(op.run, inputs, upstream)
    inputs["x"], upstream = inputs["x"].t().contiguous().t(), upstream.t().contiguous().t()
    again = value_and_gradients(op.run, inputs, upstream)
    assert all(torch.equal(ours[name], again[name]) for name in ours)


@pytest.mark.gpu
@every_op
def test_a_cuda_graph_can_hold_it(op: Op) -> None:
    inputs, upstream = make_inputs(op, (5000, 130), 0, "cuda")
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        value_and_gradients(op.run, inputs, upstream)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        held = value_and_gradients(op.run, inputs, upstream)
    inputs["x"].mul_(2.0)
    graph.replay()
    fresh = value_and_gradients(op.run, inputs, upstream)
    assert all(torch.equal(held[name], fresh[name]) for name in held)


# ---- the parts that the laws above are made of ----------------------------------------------------------------------


def make_inputs(op: Op, shape: tuple[int, int], seed: int, device: str) -> tuple[Inputs, Tensor]:
    """Named inputs in the order of the op's arguments, and a gradient for its output."""
    generator = torch.Generator().manual_seed(seed)
    inputs = {"x": torch.randn(shape, generator=generator), "slope": torch.tensor([0.25])}
    inputs |= {name: torch.randn(shape[1], generator=generator) for name in op.vectors}
    upstream = torch.randn(shape, generator=generator)
    return {name: value.to(device) for name, value in inputs.items()}, upstream.to(device)


def reference(op: Op) -> Callable[[Inputs], Tensor]:
    def run(inputs: Inputs) -> Tensor:
        z = op.before_prelu(inputs)
        return torch.where(z > 0, z, inputs["slope"] * z)

    return run


def far_from_the_kink(op: Op, inputs: Inputs) -> bool:
    """Nowhere so near 0 before the PReLU that float32 and float64 may fall on different sides."""
    return bool((op.before_prelu(widened(inputs)).abs() > 1e-5).all())


def cosine(q: Tensor, t: Tensor) -> Tensor:
    """0, with no gradient, where q is 0."""
    value = F.cosine_similarity(q, t.detach(), dim=1)
    return torch.where(q.detach().norm(dim=1) > 1e-8, value, 0.0)


def widened(inputs: Inputs) -> Inputs:
    return {name: value.double() for name, value in inputs.items()}


def value_and_gradients(run: Callable[[Inputs], Tensor], inputs: Inputs, upstream: Tensor) -> Inputs:
    leaves = {name: value.detach().requires_grad_() for name, value in inputs.items()}
    value = run(leaves)
    gradients = torch.autograd.grad(value, list(leaves.values()), upstream)
    return {"value": value.detach(), **dict(zip(leaves, gradients, strict=True))}


def assert_same(ours: Inputs, expected: Inputs, tolerance: float) -> None:
    """Equal up to a fraction of each tensor's largest element."""
    scales = {name: expected[name].abs().max().clamp(min=1.0) for name in ours}
    torch.testing.assert_close(
        {name: value.double() / scales[name] for name, value in ours.items()},
        {name: expected[name] / scales[name] for name in ours},
        rtol=tolerance,
        atol=tolerance,
    )


def poisoned_memory() -> AbstractContextManager[Any]:
    """Fresh memory is NaN: an element that no kernel writes shows."""
    empty, empty_like = torch.empty, torch.empty_like

    def poison(tensor: Tensor) -> Tensor:
        return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor

    return mock.patch.multiple(
        torch,
        empty=lambda *size, **options: poison(empty(*size, **options)),
        empty_like=lambda like, **options: poison(empty_like(like, **options)),
    )


def shared_out(tile: int, max_programs: int) -> AbstractContextManager[Any]:
    """Other sizes of tiles and numbers of programs, so that small matrices too take several of either."""
    limits = "MAX_PROGRAMS", "MAX_MOMENT_PROGRAMS", "MAX_SUM_PROGRAMS", "MAX_PARTS"
    sizes: dict[str, Any] = {"TILE": tile, "SUM_TILE": tile, **dict.fromkeys(limits, max_programs)}
    patch: AbstractContextManager[Any] = mock.patch.multiple(tiles, **sizes)
    return patch
