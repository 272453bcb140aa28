"""The nonlinearity f of Eqns. (3) and (4)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from cfuica.kernels.encode import RELU, SIGMOID, TANH

ActivationName = Literal["tanh", "sigmoid", "relu"]

# How the CPU kernels know them.
ACTIVATION_CODES: dict[ActivationName, int] = {"tanh": TANH, "sigmoid": SIGMOID, "relu": RELU}


def slope_of(values_qh: Tensor, name: ActivationName) -> Tensor:
    """f' where f has these values."""
    if name == "tanh":
        return 1 - values_qh * values_qh
    return values_qh * (1 - values_qh) if name == "sigmoid" else (values_qh > 0).to(values_qh)


def activate(sums_qh: Tensor, name: ActivationName) -> Tensor:
    """f, elementwise: the definition."""
    if name == "tanh":
        return torch.tanh(sums_qh)
    return torch.sigmoid(sums_qh) if name == "sigmoid" else torch.relu(sums_qh)
