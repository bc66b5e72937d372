"""AdamW (Loshchilov and Hutter, Decoupled Weight Decay Regularization, ICLR 2019, algorithm 2), by PyTorch's kernel:

    m      <-  b1 m + (1 - b1) g                  v  <-  b2 v + (1 - b2) g^2
    theta  <-  theta - rate * decay * theta - rate * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)

`torch.optim.AdamW(fused=True)` gives the same bits (tests/ops/test_adamw.py) and imports PyTorch's compiler to do so:
more than a second of every command that trains.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor

BETAS, EPS = (0.9, 0.999), 1e-8


class AdamW:
    """The optimiser of everything that learns.

    Args:
        parameters: what it moves.
        rate: the learning rate; a tensor on their device where a captured program is to read it anew in every step.
        weight_decay: how much of a parameter a step takes away, times the rate.

    `state` has, for each parameter that ever had a gradient, the number of its steps and both averages, m and v.
    """

    def __init__(
        self, parameters: Iterable[Tensor], *, rate: float | Tensor = 1e-3, weight_decay: float = 1e-2
    ) -> None:
        self.parameters, self.rate, self.weight_decay = list(parameters), rate, weight_decay
        self.state: defaultdict[Tensor, dict[str, Tensor]] = defaultdict(dict)

    def forget_gradients(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        moved = [(parameter, parameter.grad) for parameter in self.parameters if parameter.grad is not None]
        if not moved:
            return
        moments = [self.moments(parameter) for parameter, _ in moved]
        steps = [moment["step"] for moment in moments]
        torch._foreach_add_(steps, 1)
        torch._fused_adamw_(
            [parameter for parameter, _ in moved],
            [gradient for _, gradient in moved],
            [moment["exp_avg"] for moment in moments],
            [moment["exp_avg_sq"] for moment in moments],
            [],
            steps,
            lr=self.rate,
            beta1=BETAS[0],
            beta2=BETAS[1],
            weight_decay=self.weight_decay,
            eps=EPS,
            amsgrad=False,
            maximize=False,
        )

    def moments(self, parameter: Tensor) -> dict[str, Tensor]:
        """The state of a parameter; zeros where it has none yet."""
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), device=parameter.device)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        return state
