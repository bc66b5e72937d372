"""Work that does not wait for other work, two at a time: each on half of the processor's cores.

Evaluation and layout are many small steps, of which a second core makes each hardly faster; two of them at once are.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager

import torch

_NUM_AT_ONCE = 2


@contextmanager
def side_by_side() -> Iterator[Executor]:
    """Takes functions by `submit`. With one core, or where one was asked for, they run one after the other."""
    _import_for_all()
    num_threads = torch.get_num_threads()
    num_at_once = min(_NUM_AT_ONCE, num_threads)
    share = num_threads // num_at_once
    torch.set_num_threads(share)
    executor = ThreadPoolExecutor(num_at_once, initializer=_take, initargs=(share,))
    try:
        yield executor
    finally:
        executor.shutdown(cancel_futures=True)
        torch.set_num_threads(num_threads)


def _import_for_all() -> None:
    """What work imports where it needs it: two threads that enter a package by different doors can each find a module
    of it half made, so that one thread goes first."""
    import sklearn.cluster
    import sklearn.linear_model
    import sklearn.metrics
    import sklearn.multiclass
    import sklearn.preprocessing  # noqa: F401


def _take(num_threads: int) -> None:
    """For PyTorch, and for scikit-learn, which counts threads for itself."""
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(num_threads)
    threadpool_limits(num_threads)
