"""AdamW is PyTorch's own, bit for bit, and does without PyTorch's compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from graphstrap.ops.adamw import AdamW

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_same_bits_as_pytorchs(device: str, dtype: torch.dtype) -> None:
    """Rates that change, weights that decay, and a parameter that has no gradient in every third step."""
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(shape, generator=generator, dtype=dtype) for shape in ((7, 5), (5,), ())]
    ours, theirs = ([tensor.clone().to(device).requires_grad_() for tensor in start] for _ in range(2))
    optimizer = AdamW(ours, rate=0.0, weight_decay=0.1)
    reference = torch.optim.AdamW(theirs, weight_decay=0.1, fused=True)
    for step in range(12):
        rate = 0.01 * (step + 1)
        optimizer.rate, reference.param_groups[0]["lr"] = rate, rate
        optimizer.forget_gradients()
        reference.zero_grad(set_to_none=True)
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            if index != step % 3:
                one.grad = torch.randn(one.shape, generator=generator, dtype=dtype).to(device)
                other.grad = one.grad.clone()
        optimizer.step()
        reference.step()
        assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
    for one, other in zip(ours, theirs, strict=True):
        state = reference.state[other]
        assert optimizer.state[one].keys() == state.keys()
        assert all(torch.equal(tensor, state[name]) for name, tensor in optimizer.state[one].items())


@pytest.mark.gpu
def test_a_rate_on_the_device_is_the_rate() -> None:
    results = []
    for rate in (0.1, torch.tensor(0.1, device="cuda")):
        parameter = torch.ones(5, device="cuda", requires_grad=True)
        parameter.grad = torch.arange(5.0, device="cuda")
        AdamW([parameter], rate=rate).step()
        results.append(parameter.detach())
    assert torch.equal(*results)


def test_training_does_not_import_the_compiler() -> None:
    """It takes longer than many a training."""
    code = """
import sys
import graphstrap as gs
graph = gs.Graph.from_edges([0, 1, 2], [1, 2, 0], num_nodes=3)
gs.BGRL(settings={"train.steps": 2}, device="cpu").fit(graph)
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
