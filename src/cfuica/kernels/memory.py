"""Memory for the large tensors of the CPU.

numpy asks Linux for huge pages, torch does not: gathering rows of a table on 4 KB pages costs a
tenth of a minibatch in address translation. And filling a tensor in torch wakes its OpenMP
threads, which then spin beside the kernels.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def empty(*shape: int) -> Tensor:
    """An uninitialised float32 tensor on the CPU."""
    return torch.from_numpy(np.empty(shape, np.float32))


def zeros(*shape: int) -> Tensor:
    """A float32 tensor of zeros on the CPU."""
    return torch.from_numpy(np.zeros(shape, np.float32))


def zeros_like(tensor: Tensor) -> Tensor:
    """Zeros of the tensor's shape on its device."""
    if tensor.device.type != "cpu":
        return torch.zeros_like(tensor)
    return zeros(*tensor.shape)
