"""Histories in time order: what the items side encodes where the order matters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Histories:
    """U histories with B behaviours in all, as compressed rows in time order.

    offsets (U + 1) int64; entries (B) int32, each a row of W, or -1 for one that is left out as if
    it had not happened; moments (B) int32: counted from 0 in each history, equal for
    behaviours that do not know of each other; moment_offsets (U + 1) int64: where the moments of
    each history begin among all Q. A history has one moment more than its behaviours: after all.
    Where only some moments are there, a behaviour has the last one not after it, or -1.
    """

    offsets: np.ndarray
    entries: np.ndarray
    moments: np.ndarray
    moment_offsets: np.ndarray

    @property
    def size(self) -> int:
        """Q: how many moments there are to encode."""
        return int(self.moment_offsets[-1])

    @property
    def last_moments(self) -> np.ndarray:
        """(U,) the moment after all of each history; all moments must be there."""
        return self.moment_offsets[1:] - 1

    def only(self, moment_p: np.ndarray) -> tuple[Histories, np.ndarray]:
        """The same with these of its moments only, and where they are then. (P,)"""
        stays_q = np.zeros(self.size, bool)
        stays_q[moment_p] = True
        earlier_q = np.append(0, np.cumsum(stays_q))  # of those that stay
        moment_offsets = earlier_q[self.moment_offsets]
        lengths = np.diff(self.offsets)
        own_b = np.repeat(self.moment_offsets[:-1], lengths) + self.moments
        moments = earlier_q[own_b + 1] - 1 - np.repeat(moment_offsets[:-1], lengths)
        kept = Histories(self.offsets, self.entries, moments.astype(np.int32), moment_offsets)
        return kept, earlier_q[moment_p].astype(np.int32)

    def on(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The four arrays, in the order of the fields, as int64 tensors on a device."""
        offsets, entries, moments, moment_offsets = (
            torch.from_numpy(array).to(device, torch.int64)
            for array in (self.offsets, self.entries, self.moments, self.moment_offsets)
        )
        return offsets, entries, moments, moment_offsets
