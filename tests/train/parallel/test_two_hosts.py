"""Two hosts, each a network namespace with one end of a virtual cable: they meet and train as one process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import train
from test_parallel_training import make_graph, make_method, recipe

TESTS = Path(__file__).parents[2]


@pytest.fixture
def hosts() -> Iterator[tuple[str, str]]:
    """The names of two namespaces that reach each other as 10.77.0.1 and 10.77.0.2, and nothing else."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("two network namespaces need root and the command `ip`")
    number = os.getpid()
    first, second = f"graphstrap-{number}-1", f"graphstrap-{number}-2"
    if subprocess.run(["ip", "netns", "add", first], capture_output=True).returncode:
        pytest.skip("this system makes no network namespaces")
    try:
        ip("netns", "add", second)
        ip("link", "add", "cable", "netns", first, "type", "veth", "peer", "name", "cable", "netns", second)
        for name, address in ((first, "10.77.0.1"), (second, "10.77.0.2")):
            ip("-n", name, "address", "add", f"{address}/24", "dev", "cable")
            ip("-n", name, "link", "set", "cable", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield first, second
    finally:
        for name in (first, second):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@pytest.mark.distributed
def test_two_hosts_give_the_loss_curve_of_one_process(hosts: tuple[str, str], tmp_path: Path) -> None:
    paths = [str(TESTS.parent), str(TESTS), str(TESTS / "train" / "parallel"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "cable", "OMP_NUM_THREADS": "1", "PYTHONPATH": ":".join(paths)}
    jobs = []
    for number, name in enumerate(hosts):
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
        torchrun += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "10.77.0.1:29500", "--rdzv-id", "two-hosts"]
        torchrun += ["--rdzv-conf", f"is_host={1 - number}", "--local-addr", f"10.77.0.{number + 1}"]
        program = [str(TESTS / "train" / "parallel" / "two_hosts_program.py"), str(tmp_path)]
        jobs.append(subprocess.Popen(["ip", "netns", "exec", name, *torchrun, *program], env=environment))
    try:
        assert [job.wait(timeout=300) for job in jobs] == [0, 0]
    finally:
        for job in jobs:
            job.kill()
    settings, graph = recipe(), make_graph()
    alone = [record["loss"] for record in train(make_method(graph, settings), graph, recipe=settings, seed=0)]
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first["size"] == second["size"] == 2
    assert len(alone) == 50
    assert first["losses"] == second["losses"] == pytest.approx(alone, rel=1e-6)
