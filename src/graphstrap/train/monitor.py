"""Signs of collapse: how far embeddings spread, how long they are, how many directions they use."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.no_grad()
def monitor_embeddings(h: Tensor) -> dict[str, float]:
    """`spread`: standard deviation over nodes divided by the mean norm (0 when all nodes are alike); `mean_norm`;
    `effective_rank`: exp of the entropy of the normalised singular values (Roy and Vetterli, 2007), from 1 to D."""
    h = h.float()
    centred = h - h.mean(0)
    mean_norm = h.norm(dim=1).mean()
    deviation = centred.square().sum(1).mean().sqrt()
    covariance = centred.T @ centred / len(h)  # (D, D)
    singular = torch.linalg.eigvalsh(covariance.double()).clamp(min=0).sqrt()
    share = singular / singular.sum().clamp(min=1e-12)
    entropy = -(share * share.clamp(min=1e-12).log()).sum()
    values = torch.stack(
        [deviation.double() / mean_norm.double().clamp(min=1e-12), mean_norm.double(), entropy.exp()]
    ).tolist()
    return dict(zip(("spread", "mean_norm", "effective_rank"), values, strict=True))
