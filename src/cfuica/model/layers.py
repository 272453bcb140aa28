"""The layers of a side's encoder and decoder: the paper's nonlinearity f and three additions.

*Length normalisation.* The paper's Eqns. (3) and (4) sum rows of W, so the input of f grows with
the number of interactions, and f saturates for long histories. Length normalisation multiplies a
sum of n rows by ((typical + offset) / (n + offset))^power. A power of 1 makes f read something
like a mean, a power of 0 is the paper's sum.

*Learned decay.* Each hidden unit of the items side may weight an interaction t places back by
decay^t, a diagonal linear recurrence. A decay of 1 is the paper's sum. The parameter is the
logarithm of the time constant -1 / log(decay), in interactions, so that a step of the optimiser
means the same for short and long time constants.

*Bilinear interaction.* The paper adds two decoders: V_U[user] on h_U(item) and V_I[item] on
h_I(user). Interactions of other users therefore count for a user only through that user's own row
of V. The bilinear interaction adds h_U(item)' A_k h_I(user) to the logit of label k: a row of V
that is computed from the user's history. Cold-start users and items have no trained row of V and
gain by it; warm ones do not, so only the cold-start network has a bilinear interaction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from cfuica.model.pairs import Pairs, SideName
from cfuica.ops import decode, reference, runtime
from cfuica.ops.encode import RELU, SIGMOID, TANH
from cfuica.ops.runtime import run_rows

ActivationName = Literal["tanh", "sigmoid", "relu"]

# The codes of f in the CPU kernels.
ACTIVATION_CODES: dict[ActivationName, int] = {"tanh": TANH, "sigmoid": SIGMOID, "relu": RELU}


def derivative_of(values_qh: Tensor, name: ActivationName) -> Tensor:
    """f', computed from the values of f. (Q, H)"""
    if name == "tanh":
        return 1 - values_qh * values_qh
    return values_qh * (1 - values_qh) if name == "sigmoid" else (values_qh > 0).to(values_qh)


def activate(sums_qh: Tensor, name: ActivationName) -> Tensor:
    """f of Eqns. (3) and (4), elementwise, by definition. (Q, H)"""
    if name == "tanh":
        return torch.tanh(sums_qh)
    return torch.sigmoid(sums_qh) if name == "sigmoid" else torch.relu(sums_qh)


# The offsets of the warm and of the cold-start network, both chosen on validation data. The larger
# one shrinks short histories; it improved predictions for cold-start users at every length.
OFFSET, COLD_START_OFFSET = 10.0, 40.0


@dataclass(frozen=True)
class LengthNormalisation:
    """The factor of a sum of n interactions: ((typical + offset) / (n + offset)) ** power.

    A sum of `typical` interactions stays as it is, so that initial values and learning rates mean
    the same for every power."""

    power: float = 0.0
    typical: float = 0.0
    offset: float = OFFSET

    @classmethod
    def for_rows(
        cls, power: float, offsets: np.ndarray, offset: float = OFFSET
    ) -> LengthNormalisation:
        """For contexts like these compressed rows: `typical` is the mean size of a nonempty row."""
        sizes = np.diff(offsets)
        nonempty = sizes[sizes > 0]
        return cls(power, float(nonempty.mean()) if power and nonempty.size else 0.0, offset)

    @classmethod
    def restored(cls, power: float, typical: float, offset: float = OFFSET) -> LengthNormalisation:
        """That of a saved model; a ValueError where `typical` is out of range."""
        if not 0.0 <= typical < math.inf:
            raise ValueError(f"the typical size {typical} is no number of interactions")
        return cls(power, float(typical), offset)

    def of(self, sizes: np.ndarray) -> np.ndarray:
        """The factors (Q,) float32 of sums of so many interactions (Q,)."""
        if self.power == 0:
            return np.ones(len(sizes), np.float32)
        factors: np.ndarray = ((self.typical + self.offset) / (sizes + self.offset)) ** self.power
        return factors.astype(np.float32)


NO_NORMALISATION = LengthNormalisation()

# The range of the initial time constants, in interactions.
SHORTEST, LONGEST = 0.3, 200.0
# The standard deviation of a scaled state, in units of that of one row of W.
STRENGTH = 3.0


def initial_log_time_constants(hidden: int) -> Tensor:
    """(H,) the logarithms of time constants, evenly spaced between SHORTEST and LONGEST."""
    return torch.linspace(math.log(SHORTEST), math.log(LONGEST), hidden)


def decay_and_scale(log_time_constants_h: Tensor) -> tuple[Tensor, Tensor]:
    """(H,) the decay of each unit, and the scale of its state in the input of f.

    A state of independent interactions has the variance 1 / (1 - decay²); the scale evens it out.
    """
    rate_h = torch.exp(-log_time_constants_h)
    return torch.exp(-rate_h), STRENGTH * torch.sqrt(-torch.expm1(-2 * rate_h))


def log_time_constants_gradient(
    log_time_constants_h: Tensor, by_decay_h: Tensor, by_scale_h: Tensor
) -> Tensor:
    """(H,) the gradient by the logarithms of the time constants, from those by decay and scale."""
    leaf = log_time_constants_h.detach().requires_grad_()
    with torch.enable_grad():
        outputs = decay_and_scale(leaf)
    (gradient,) = torch.autograd.grad(outputs, leaf, (by_decay_h, by_scale_h))
    return gradient


# Bytes of computed rows of V (Q, K, U) that are in memory at a time.
_BYTES_AT_A_TIME = 64 << 20


@dataclass
class BilinearInteraction:
    """A (H, K, U) between the H units of the items side (IIC) and the U of the users side (UUC)."""

    table_hku: Tensor

    @classmethod
    def initial(cls, *, hidden_users: int, hidden_items: int, labels: int) -> BilinearInteraction:
        """All zero: the paper's logits."""
        return cls(runtime.zeros(hidden_items, labels, hidden_users))

    def query_rows(self, hidden_qh: Tensor) -> Tensor:
        """(Q, K, U): the rows of V that A computes from hidden vectors (Q, H) of the items side."""
        _, labels, units = self.table_hku.shape
        if hidden_qh.device.type != "cpu":
            return reference.bilinear(hidden_qh, self.table_hku)
        out_qku = runtime.empty(len(hidden_qh), labels, units)
        run_rows(
            decode.bilinear,
            len(hidden_qh),
            hidden_qh.numpy(),
            self.table_hku.numpy(),
            out_qku.numpy(),
        )
        return out_qku

    def cross_into(
        self,
        logits_pk: Tensor,
        pairs: Pairs,
        hidden: dict[SideName, Tensor],
        bilinear_qku: Tensor | None = None,
    ) -> None:
        """Add h_U(item)' A_k h_I(user) to the logits (P, K) of all pairs, in place.

        `bilinear_qku` is `query_rows(hidden["items"])`, where it was computed before.
        """
        queries = len(hidden["items"])
        _, labels, units = self.table_hku.shape
        if logits_pk.device.type != "cpu":
            rows_qku = self.query_rows(hidden["items"]) if bilinear_qku is None else bilinear_qku
            device = logits_pk.device
            users_p, items_p = (
                torch.from_numpy(side.query_of_pair).to(device, torch.int64)
                for side in (pairs.items, pairs.users)
            )
            logits_pk += torch.einsum("pku,pu->pk", rows_qku[users_p], hidden["users"][items_p])
            return
        step = max(1, _BYTES_AT_A_TIME // (4 * labels * units))
        grouping = pairs.items.by_query
        for start in range(0, queries, step):
            stop = min(start + step, queries)
            rows_qku = (
                self.query_rows(hidden["items"][start:stop])
                if bilinear_qku is None
                else bilinear_qku[start:stop]
            )
            run_rows(
                decode.decode,
                stop - start,
                rows_qku.numpy(),
                np.zeros((stop - start, labels), np.float32),
                np.arange(stop - start, dtype=np.int32),
                grouping.offsets[start : stop + 1],
                grouping.indices,
                pairs.users.query_of_pair,
                hidden["users"].numpy(),
                logits_pk.numpy(),
                work=grouping.offsets[start : stop + 1],
            )
