"""What products are computed in, and that nothing of it leaks out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import make_communities, train

from graphstrap.api.estimator import Embedder
from graphstrap.nn.methods import build_method
from graphstrap.ops import precision as precision_module
from graphstrap.ops._triton.launch import may_round_to_tf32
from graphstrap.ops.precision import computing_in, has_part_of_a_gpu, resolve_precision
from graphstrap.run.recipe import METHODS, Recipe

CPU = torch.device("cpu")


@pytest.mark.parametrize("has_bf16", [True, False])
def test_auto_on_a_cpu_is_bfloat16_where_the_processor_has_it(has_bf16: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision_module, "processor_has_bf16", lambda: has_bf16)
    assert resolve_precision("auto", CPU) == ("bf16" if has_bf16 else "fp32")
    assert resolve_precision("fp32", CPU) == "fp32"


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_settings_hold_within_the_block_alone(precision: str) -> None:
    before = torch.backends.cuda.matmul.fp32_precision
    with computing_in(precision, CPU):
        assert torch.backends.cuda.matmul.fp32_precision == ("ieee" if precision == "fp32" else "tf32")
        assert may_round_to_tf32() == (precision != "fp32")
        product = torch.randn(4, 4) @ torch.randn(4, 4)
        assert product.dtype == (torch.bfloat16 if precision == "bf16" else torch.float32)
    assert torch.backends.cuda.matmul.fp32_precision == before
    assert not torch.is_autocast_enabled("cpu")


def test_float32_on_a_cpu_is_float32_whichever_library_computes_it() -> None:
    a, b = torch.randn(300, 200), torch.randn(200, 100)
    onednn: Any = torch.backends.mkldnn
    before = onednn.matmul.fp32_precision
    with computing_in("fp32", CPU):
        product = a @ b
    assert onednn.matmul.fp32_precision == before
    exact = a.double() @ b.double()
    assert float((product.double() - exact).norm() / exact.norm()) < 1e-6


def test_bfloat16_trains_like_float32() -> None:
    graph = make_communities(num_nodes=200, num_classes=3, seed=0)
    losses = {}
    for precision in ("fp32", "bf16"):
        recipe = Recipe().with_settings(
            {"encoder.hidden_sizes": [32], "encoder.embedding_size": 16, "train.steps": 30,
             "train.learning_rate": 0.01, "train.precision": precision}
        )  # fmt: skip
        method = build_method(recipe, input_sizes=graph.num_features, seed=0)
        losses[precision] = [record["loss"] for record in train(method, graph, recipe=recipe, seed=0)]
        assert all(parameter.dtype == torch.float32 for parameter in method.parameters())
    assert losses["bf16"] != losses["fp32"]
    assert losses["bf16"] == pytest.approx(losses["fp32"], rel=0.02)


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["bgrl", "grace", "dgi", "barlow-twins"])
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_methods_train_in_every_precision_on_a_gpu(method: str, precision: str) -> None:
    assert method in METHODS
    graph = make_communities(num_nodes=200, num_classes=3, seed=0)
    settings = {"method.name": method, "train.precision": precision, "train.steps": 5, "train.warmup_steps": 1}
    model = Embedder(recipe=Recipe().with_settings(settings), device="cuda").fit(graph)
    assert bool(torch.from_numpy(model.embed(graph)).isfinite().all())


@pytest.mark.parametrize(
    ("limit", "expected"), [(None, False), ("100", False), ("44", True), ("2.5", True), ("", False)]
)
def test_a_limit_of_mps_is_seen(monkeypatch: pytest.MonkeyPatch, limit: str | None, expected: bool) -> None:
    monkeypatch.delenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", raising=False)
    if limit is not None:
        monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", limit)
    assert has_part_of_a_gpu() is expected


CUDA = torch.device("cuda")


@pytest.mark.parametrize(("whole", "right"), [(True, True), (True, False), (False, True)])
def test_auto_is_bfloat16_where_the_gpu_is_whole_and_gets_it_right(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, whole: bool, right: bool
) -> None:
    monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100" if whole else "44")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    monkeypatch.setattr(precision_module, "_multiplies_bf16", lambda *_: right)
    precision_module.gpu_multiplies_bf16.cache_clear()
    reliable = whole and right
    assert resolve_precision("auto", CUDA) == ("bf16" if reliable else "tf32")
    assert not caplog.messages
    assert resolve_precision("bf16", CUDA) == "bf16"
    assert any("tf32" in message for message in caplog.messages) is not reliable
    precision_module.gpu_multiplies_bf16.cache_clear()


def test_a_wrong_product_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    multiplies = precision_module._multiplies_bf16
    assert multiplies(100, 64, 32, device="cpu")
    product = torch.Tensor.__matmul__

    def wrong(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        result = product(a, b)
        return result if result.dtype == torch.float32 else torch.cat([result[:-30], result[:30]])

    monkeypatch.setattr(torch.Tensor, "__matmul__", wrong)
    assert not multiplies(100, 64, 32, device="cpu")


@pytest.mark.gpu
def test_the_gpu_at_hand_is_judged() -> None:
    precision_module.gpu_multiplies_bf16.cache_clear()
    assert precision_module.gpu_multiplies_bf16() is not has_part_of_a_gpu()
