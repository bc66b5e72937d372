"""NCCL sums and sends what gloo does on a CPU. One GPU is enough for a group of one worker, which speaks to itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from conftest import make_communities
from in_processes import in_processes

from graphstrap.api.estimator import Embedder
from graphstrap.run.folder import Run
from graphstrap.train.parallel.workers import ALONE, Workers

pytestmark = pytest.mark.distributed

SETTINGS: dict[str, Any] = {
    "encoder.hidden_sizes": [16],
    "encoder.embedding_size": 8,
    "encoder.norm": "layer",
    "method.predictor_hidden_size": 16,
    "sampling.fan_outs": [4, 3],
    "sampling.batch_size": 32,
    "sampling.disjoint": True,
    "train.steps": 20,
    "train.log_every": 1,
    "train.precision": "fp32",
}
# Two by gloo: see test_parallel_training.py.
GROUPS = [("cpu", 1), *(pytest.param("cuda", size, marks=pytest.mark.gpu) for size in (1, 2))]
BACKENDS = {"cpu": "cpu:gloo", "cuda": "cuda:nccl"}


class Itself(Workers):
    """A worker that has all roots and none beside it, and yet speaks to its group."""

    @property
    def is_alone(self) -> bool:
        return False


def fit(device: str, workers: Workers, run: Path | None = None) -> dict[str, Any]:
    """The loss at every step, and the weights, of 20 steps."""
    graph = make_communities(num_nodes=120, num_classes=3, seed=0)
    model = Embedder(settings=SETTINGS, device=device, seed=0).fit(graph, run=run, workers=workers)
    state = {name: tensor.cpu() for name, tensor in model.model_.module.state_dict().items()}
    return {"losses": [record["loss"] for record in model.metrics_], "state": state}


def fit_in_a_group(workers: Workers, device: str, folder: Path) -> dict[str, Any]:
    """Likewise, by all workers of the group; then once more, from the checkpoint of the first."""
    ours = workers if workers.size > 1 else Itself()
    assert BACKENDS[device] in dist.get_backend_config()
    result = fit(device, ours, folder / "run")
    graph = make_communities(num_nodes=120, num_classes=3, seed=0)
    again = Embedder.resume(folder / "run", graph, workers=ours)
    resumed = {name: tensor.cpu() for name, tensor in again.model_.module.state_dict().items()}
    return {**result, "resumed": resumed, "sums": int(ours.add(torch.ones(3, device=device))[0])}


@pytest.mark.parametrize(("device", "size"), GROUPS)
def test_a_group_learns_what_one_process_learns(tmp_path: Path, device: str, size: int) -> None:
    if device == "cuda" and torch.cuda.device_count() < size:
        pytest.skip(f"{size} GPUs are needed, there are {torch.cuda.device_count()}")
    alone = fit(device, ALONE)
    found = in_processes(fit_in_a_group, device, tmp_path, folder=tmp_path, size=size, device=device)
    assert len(alone["losses"]) == 20
    for one in found:
        assert one["sums"] == size
        assert one["losses"] == pytest.approx(alone["losses"], rel=1e-4)
        for name, tensor in alone["state"].items():
            torch.testing.assert_close(one["state"][name], tensor, rtol=1e-3, atol=1e-4, msg=name)
            assert torch.equal(one["state"][name], found[0]["state"][name]), name
            assert torch.equal(one["resumed"][name], one["state"][name]), name
    assert Run.open(tmp_path / "run").is_finished
