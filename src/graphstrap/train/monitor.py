"""Signs of collapse: how far embeddings spread, how long they are, how many directions they use.

In two halves, so that a GPU never waits: `embedding_moments` is a few small tensors made where the embeddings are,
`describe_moments` turns them into numbers on the CPU, later.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


@torch.no_grad()
def embedding_moments(h: Tensor) -> tuple[Tensor, Tensor]:
    """Mean norm (), and covariance (D, D) over nodes."""
    h = h.float()
    centred = h - h.mean(0)
    return h.norm(dim=1).mean(), centred.T @ centred / len(h)


def describe_moments(mean_norm: Tensor, covariance: Tensor) -> dict[str, float]:
    """`spread`: standard deviation over nodes divided by the mean norm (0 when all nodes are alike); `mean_norm`;
    `effective_rank`: exp of the entropy of the normalised singular values (Roy and Vetterli, 2007), from 1 to D."""
    length, covariance = mean_norm.double(), covariance.double()
    deviation = covariance.trace().sqrt()
    with _one_thread():
        singular = torch.linalg.eigvalsh(covariance).clamp(min=0).sqrt()
    share = singular / singular.sum().clamp(min=1e-12)
    entropy = -(share * share.clamp(min=1e-12).log()).sum()
    values = torch.stack([deviation / length.clamp(min=1e-12), length, entropy.exp()]).tolist()
    return dict(zip(("spread", "mean_norm", "effective_rank"), values, strict=True))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Matrices this small take twice the time on two threads, and many times on sixteen."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def monitor_embeddings(h: Tensor) -> dict[str, float]:
    """Both halves at once."""
    return describe_moments(*embedding_moments(h))
