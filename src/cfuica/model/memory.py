"""How long each hidden unit remembers: a decay per unit, learned.

With a decay of 1 a unit's state is the paper's sum. A decay below 1 makes it a diagonal linear
recurrence: what happened t behaviours ago counts decay^t. What is learned is the logarithm of the
time constant, -1 / log(decay), in behaviours, so that a step means the same for short and long.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

SHORTEST, LONGEST = 0.3, 200.0
# A state of independent behaviours has a variance of 1 / (1 - decay^2); this evens it out.
STRENGTH = 3.0


def initial_log_times(hidden: int) -> Tensor:
    """(H,) time constants spread evenly, by their logarithm, between SHORTEST and LONGEST."""
    return torch.linspace(math.log(SHORTEST), math.log(LONGEST), hidden)


def decay_and_scale(log_times_h: Tensor) -> tuple[Tensor, Tensor]:
    """(H,) the decay of each unit, and what f reads its state multiplied by."""
    rate_h = torch.exp(-log_times_h)
    return torch.exp(-rate_h), STRENGTH * torch.sqrt(-torch.expm1(-2 * rate_h))


def log_times_gradient(log_times_h: Tensor, by_decay_h: Tensor, by_scale_h: Tensor) -> Tensor:
    """(H,) the gradient by the log times, from those by decay and scale."""
    leaf = log_times_h.detach().requires_grad_()
    with torch.enable_grad():
        outputs = decay_and_scale(leaf)
    (gradient,) = torch.autograd.grad(outputs, leaf, (by_decay_h, by_scale_h))
    return gradient
