"""The nonlinearity f of Eqns. (3) and (4).

How a sum of interactions is scaled by their number.

The paper adds up rows of W, so what enters f grows with the number of interactions: one who rated
twenty items and one who rated two thousand are read on different scales, and as data keep coming
in, f saturates. With a power of 1 the sum is divided by the number of its addends (plus a few, so
that one interaction alone is not taken for the whole truth) and f reads something like their mean;
with a power of 0 it is the paper's sum.

How long each hidden unit remembers: a decay per unit, learned.

With a decay of 1 a unit's state is the paper's sum. A decay below 1 makes it a diagonal linear
recurrence: what happened t interactions ago counts decay^t. What is learned is the logarithm of the
time constant, -1 / log(decay), in interactions, so that a step means the same for short and long.

The bilinear interaction: a bilinear form between what is read of the item and what is read of the
user.

The paper's logits are two decoders side by side: V_U of the user on h_U of the item, V_I of
the item on h_I of the user. The hidden vectors never meet, so what others did on an item counts for
a user only through that user's own row of V. The bilinear interaction adds

    h_U(item)' A_k h_I(user)

for each label k: a row of V made from the user's history (and, the other way round, one made from
what was done on the item). Cold-start users and items, who have no row of their own, gain by it;
those who have one do not, so only the cold-start network has a bilinear interaction."""

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

# How the CPU kernels know them.
ACTIVATION_CODES: dict[ActivationName, int] = {"tanh": TANH, "sigmoid": SIGMOID, "relu": RELU}


def derivative_of(values_qh: Tensor, name: ActivationName) -> Tensor:
    """f' where f has these values."""
    if name == "tanh":
        return 1 - values_qh * values_qh
    return values_qh * (1 - values_qh) if name == "sigmoid" else (values_qh > 0).to(values_qh)


def activate(sums_qh: Tensor, name: ActivationName) -> Tensor:
    """f, elementwise: the definition."""
    if name == "tanh":
        return torch.tanh(sums_qh)
    return torch.sigmoid(sums_qh) if name == "sigmoid" else torch.relu(sums_qh)


# What is added to the number: that of a network of those who are known, who have parameters of
# their own, and that of cold-start users and items, of whom a few ratings must not be taken for the
# whole truth. Both were chosen on validation data; 40 made cold-start users and items better at
# every length of their history.
OFFSET, COLD_START_OFFSET = 10.0, 40.0


@dataclass(frozen=True)
class LengthNormalisation:
    """What the sum of n interactions is multiplied by: ((typical + offset) / (n + offset)) **
    power.

    `typical` is a number of interactions at which the sum stays as it is, so that initial values
    and rates mean the same for every power."""

    power: float = 0.0
    typical: float = 0.0
    offset: float = OFFSET

    @classmethod
    def for_rows(
        cls, power: float, offsets: np.ndarray, offset: float = OFFSET
    ) -> LengthNormalisation:
        """The gain for contexts like these compressed rows: the mean row is typical."""
        sizes = np.diff(offsets)
        used = sizes[sizes > 0]
        return cls(power, float(used.mean()) if power and used.size else 0.0, offset)

    @classmethod
    def restored(cls, power: float, typical: float, offset: float = OFFSET) -> LengthNormalisation:
        """The gain of a saved model; a ValueError where it cannot be one."""
        if not 0.0 <= typical < math.inf:
            raise ValueError(f"the typical size {typical} is no number of interactions")
        return cls(power, float(typical), offset)

    def of(self, sizes: np.ndarray) -> np.ndarray:
        """Gains (Q,) float32 for sums of so many interactions (Q,)."""
        if self.power == 0:
            return np.ones(len(sizes), np.float32)
        length_norms: np.ndarray = (
            (self.typical + self.offset) / (sizes + self.offset)
        ) ** self.power
        return length_norms.astype(np.float32)


NO_NORMALISATION = LengthNormalisation()


SHORTEST, LONGEST = 0.3, 200.0
# A state of independent interactions has a variance of 1 / (1 - decay^2); this evens it out.
STRENGTH = 3.0


def initial_log_time_constants(hidden: int) -> Tensor:
    """(H,) time constants spread evenly, by their logarithm, between SHORTEST and LONGEST."""
    return torch.linspace(math.log(SHORTEST), math.log(LONGEST), hidden)


def decay_and_scale(log_time_constants_h: Tensor) -> tuple[Tensor, Tensor]:
    """(H,) the decay of each unit, and what f reads its state multiplied by."""
    rate_h = torch.exp(-log_time_constants_h)
    return torch.exp(-rate_h), STRENGTH * torch.sqrt(-torch.expm1(-2 * rate_h))


def log_time_constants_gradient(
    log_time_constants_h: Tensor, by_decay_h: Tensor, by_scale_h: Tensor
) -> Tensor:
    """(H,) the gradient by the log times, from those by decay and scale."""
    leaf = log_time_constants_h.detach().requires_grad_()
    with torch.enable_grad():
        outputs = decay_and_scale(leaf)
    (gradient,) = torch.autograd.grad(outputs, leaf, (by_decay_h, by_scale_h))
    return gradient


# Rows that are made from hidden vectors at a time, in bytes.
_BYTES_AT_A_TIME = 64 << 20


@dataclass
class BilinearInteraction:
    """A: table (H, K, U) between H units of the items side (IIC) and U of the users side (UUC)."""

    table_hku: Tensor

    @classmethod
    def initial(cls, *, hidden_users: int, hidden_items: int, labels: int) -> BilinearInteraction:
        """All zero: nothing crosses yet."""
        return cls(runtime.zeros(hidden_items, labels, hidden_users))

    def query_rows(self, hidden_qh: Tensor) -> Tensor:
        """(Q, K, U): the rows of V that hidden vectors (Q, H) of the items side make."""
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
        """Add the form to the logits (P, K) of all pairs, in place.

        `bilinear_qku` is `asked(hidden["items"])`, where it is at hand.
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
