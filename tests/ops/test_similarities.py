"""Every way to sum up how alike each row is to all others equals the reference in float64, forward and gradient, for
any shape and tiling; without a GPU, Triton's interpreter runs the kernels."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from graphstrap.ops import _torch, _triton, log_total_others
from graphstrap.ops._csr import similarities as csr_similarities
from graphstrap.ops._triton import similarities as triton_similarities
from graphstrap.ops._triton.similarities import LARGEST_BOUND

Op = Callable[[Tensor], Tensor]

has_triton = _triton.IS_AVAILABLE and (torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
WAYS: dict[str, Op] = {"csr": csr_similarities.log_total_others}
UNBOUNDED = WAYS.copy()
if has_triton:
    UNBOUNDED["triton"] = WAYS["triton"] = _triton.log_total_others
    WAYS["triton, bounded"] = partial(_triton.log_total_others, bound=LARGEST_BOUND)
every_way = pytest.mark.parametrize("op", WAYS.values(), ids=WAYS.keys())


def draw_keys(num_rows: int, num_columns: int, *, seed: int, scale: float = 1.0) -> Tensor:
    keys = torch.randn(num_rows, num_columns, generator=torch.Generator().manual_seed(seed))
    return keys.mul(scale / num_columns**0.25).to(DEVICE)


def with_gradient(op: Op, keys: Tensor) -> tuple[Tensor, Tensor]:
    """The totals, and the gradient of their sum, each with a weight of its own."""
    keys = keys.clone().requires_grad_()
    total = op(keys)
    weights = torch.linspace(-1.0, 2.0, len(keys), dtype=total.dtype, device=keys.device)
    return total.detach(), torch.autograd.grad((weights * total).sum(), keys)[0]


def draw_bounded_keys(num_rows: int, num_columns: int, *, seed: int, bound: float) -> Tensor:
    """Rows of one length, none of whose products exceeds the bound."""
    keys = draw_keys(num_rows, num_columns, seed=seed)
    return keys.div(keys.norm(dim=1, keepdim=True)).mul(bound**0.5)


@every_way
@settings(max_examples=15, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(num_rows=st.integers(2, 150), num_columns=st.integers(1, 40), seed=st.integers(0, 2**31))
def test_every_way_equals_the_reference(op: Op, num_rows: int, num_columns: int, seed: int) -> None:
    keys = draw_keys(num_rows, num_columns, seed=seed)
    total, gradient = with_gradient(op, keys)
    expected_total, expected_gradient = with_gradient(_torch.log_total_others, keys.double())
    torch.testing.assert_close(total.double(), expected_total, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient.double(), expected_gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not has_triton, reason="neither a GPU nor Triton's interpreter")
@settings(max_examples=40, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    num_rows=st.integers(2, 150),
    num_columns=st.integers(1, 40),
    bound=st.floats(0.5, LARGEST_BOUND),
    tiles=st.sampled_from([(16, 16), (32, 16), (16, 32), (64, 32), (32, 64)]),
    seed=st.integers(0, 2**31),
)
def test_a_bound_gives_the_same_whatever_the_tiles(
    num_rows: int, num_columns: int, bound: float, tiles: tuple[int, int], seed: int
) -> None:
    keys = draw_bounded_keys(num_rows, num_columns, seed=seed, bound=bound)
    usual = triton_similarities._tiles(keys)
    of_this_size = {**usual, "rows_per_tile": tiles[0], "others_per_tile": tiles[1]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(triton_similarities, "_tiles", lambda keys: of_this_size)
        total, gradient = with_gradient(partial(_triton.log_total_others, bound=bound), keys)
    expected_total, expected_gradient = with_gradient(_torch.log_total_others, keys.double())
    torch.testing.assert_close(total.double(), expected_total, rtol=1e-5, atol=1e-5)
    largest = float(expected_gradient.abs().max())
    torch.testing.assert_close(gradient.double(), expected_gradient, rtol=1e-4, atol=1e-5 * max(1.0, largest))


@pytest.mark.skipif(not has_triton, reason="neither a GPU nor Triton's interpreter")
def test_the_largest_bound_neither_overflows_nor_vanishes() -> None:
    keys = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], device=DEVICE) * LARGEST_BOUND**0.5
    for rows in (keys, keys.repeat(40, 1)):
        bounded = partial(_triton.log_total_others, bound=LARGEST_BOUND)
        total, gradient = with_gradient(bounded, rows)
        expected_total, expected_gradient = with_gradient(_torch.log_total_others, rows.double())
        torch.testing.assert_close(total.double(), expected_total, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(gradient.double(), expected_gradient, rtol=1e-4, atol=1e-4)


@every_way
def test_bfloat16_is_near_the_reference(op: Op) -> None:
    if op is not csr_similarities.log_total_others and DEVICE.type == "cpu":
        pytest.skip("Triton's interpreter has no products in bfloat16")
    keys = draw_keys(140, 20, seed=0).bfloat16()
    total, gradient = with_gradient(op, keys)
    expected_total, expected_gradient = with_gradient(_torch.log_total_others, keys.double())
    assert gradient.dtype == torch.bfloat16
    torch.testing.assert_close(total.double(), expected_total, rtol=0.02, atol=0.02)
    torch.testing.assert_close(gradient.double(), expected_gradient, rtol=0.05, atol=0.02)


@pytest.mark.parametrize("op", UNBOUNDED.values(), ids=UNBOUNDED.keys())
def test_large_similarities_neither_overflow_nor_count_a_row_itself(op: Op) -> None:
    keys = draw_keys(9, 4, seed=1, scale=30.0)
    total, gradient = with_gradient(op, keys)
    expected_total, expected_gradient = with_gradient(_torch.log_total_others, keys.double())
    torch.testing.assert_close(total.double(), expected_total, rtol=1e-5, atol=1e-2)
    torch.testing.assert_close(gradient.double(), expected_gradient, rtol=1e-2, atol=1e-2)


@every_way
def test_bad_numbers_are_not_hidden(op: Op) -> None:
    keys = draw_keys(8, 4, seed=2)
    keys[3, 1] = torch.nan
    assert bool(op(keys).isnan().all())


@pytest.mark.parametrize("numbers", [1, 40, 95, 10**6])
def test_blocks_of_any_size_give_the_same(numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = draw_keys(19, 5, seed=3)
    whole = with_gradient(csr_similarities.log_total_others, keys)
    monkeypatch.setattr(csr_similarities, "NUMBERS_PER_BLOCK", numbers)
    for ours, expected in zip(with_gradient(csr_similarities.log_total_others, keys), whole, strict=True):
        torch.testing.assert_close(ours, expected)


@pytest.mark.skipif(not has_triton, reason="neither a GPU nor Triton's interpreter")
def test_more_columns_than_a_program_holds_go_the_other_way() -> None:
    keys = draw_keys(20, 300, seed=4)
    for ours, expected in zip(
        with_gradient(_triton.log_total_others, keys), with_gradient(_torch.log_total_others, keys), strict=True
    ):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


def test_double_precision_passes_gradcheck() -> None:
    keys = draw_keys(7, 3, seed=5).double().requires_grad_()
    assert torch.autograd.gradcheck(log_total_others, (keys,))


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("num_columns", "dtype"),
    [(64, torch.bfloat16), (200, torch.bfloat16), (256, torch.bfloat16), (128, torch.float32), (256, torch.float32)],
)
def test_at_the_size_of_a_graph(num_columns: int, dtype: torch.dtype) -> None:
    keys = draw_bounded_keys(5001, num_columns, seed=6, bound=1.0 / 0.3).to(dtype)
    bounded = partial(_triton.log_total_others, bound=1.0 / 0.3)
    total, gradient = with_gradient(bounded, keys)
    expected_total, expected_gradient = with_gradient(_torch.log_total_others, keys.double())
    loose = 4e-3 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(total.double(), expected_total, rtol=loose, atol=0)
    error = (gradient.double() - expected_gradient).norm() / expected_gradient.norm()
    assert float(error) < loose
    again = with_gradient(bounded, keys)
    assert torch.equal(again[0], total)
    assert torch.equal(again[1], gradient)
