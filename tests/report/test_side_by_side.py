"""Work side by side: the same answers as one after the other, and the threads of PyTorch as they were before."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from graphstrap.report.build import side_by_side


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_threads_are_shared_and_given_back(num_threads: int) -> None:
    torch.set_num_threads(num_threads)
    with side_by_side() as executor:
        found = list(executor.map(lambda _: (threading.get_ident(), torch.get_num_threads()), range(8)))
    assert {share for _, share in found} == {max(1, num_threads // 2)}
    assert len({thread for thread, _ in found}) <= min(2, num_threads)
    assert torch.get_num_threads() == num_threads


@pytest.mark.usefixtures("threads")
def test_two_run_at_once() -> None:
    torch.set_num_threads(2)
    meeting = threading.Barrier(2)
    with side_by_side() as executor:
        both = [executor.submit(meeting.wait, timeout=60) for _ in range(2)]
        assert sorted(one.result() for one in both) == [0, 1]


@pytest.mark.usefixtures("threads")
def test_a_failure_is_not_swallowed_and_threads_are_given_back() -> None:
    torch.set_num_threads(2)
    with pytest.raises(ZeroDivisionError), side_by_side() as executor:
        executor.submit(lambda: 1 // 0).result()
    assert torch.get_num_threads() == 2
