"""The layers of a side beyond the paper, each a torch module, and length normalisation.

*Length normalisation.* The paper's Eqns. (3) and (4) sum rows of W, so the input of f grows with
the number of interactions, and f saturates for long histories. Length normalisation multiplies a
sum of n rows by ((typical + offset) / (n + offset))^power. A power of 1 makes f read something
like a mean, a power of 0 is the paper's sum.

*Learned decay.* Each hidden unit of the items side may weight an interaction t places back by
decay^t, a diagonal linear recurrence. A decay of 1 is the paper's sum. The parameter is the
logarithm of the time constant -1 / log(decay), in interactions, so that a step of the optimiser
means the same for short and long time constants.

*Residual layers* stand between the hidden vector of a user and the decoder. `make_layer` chooses
one by the settings: to add a layer, write its module here and give it a name in `LAYERS`. A
layer multiplies by `linear`, so that in inference a user's bits do not depend on others.

*Bilinear interaction.* The paper adds two decoders: V_U[user] on h_U(item) and V_I[item] on
h_I(user). Interactions of other users therefore count for a user only through that user's own row
of V. The bilinear interaction adds h_U(item)' A_k h_I(user) to the logit of label k: a row of V
that is computed from the user's history. Cold-start users and items have no trained row of V and
gain by it; warm ones do not, so only the cold-start network has a bilinear interaction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from cfuica.ops import runtime
from cfuica.ops.decode import linear, pair_products
from cfuica.ops.tables import SidePairs
from cfuica.settings import CommonSettings

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

    def of(self, sizes: np.ndarray) -> np.ndarray:
        """The factors (Q,) float32 of sums of so many interactions (Q,)."""
        if self.power == 0:
            return np.ones(len(sizes), np.float32)
        factors: np.ndarray = ((self.typical + self.offset) / (sizes + self.offset)) ** self.power
        return factors.astype(np.float32)


# The range of the initial time constants, in interactions.
SHORTEST, LONGEST = 0.3, 200.0
# The standard deviation of a scaled state, in units of that of one row of W.
STRENGTH = 3.0


class LearnedDecay(nn.Module):
    """The decay of each of H units, and the scale of its state in the input of f."""

    def __init__(self, hidden: int, members: int = 1) -> None:
        super().__init__()
        evenly = torch.linspace(math.log(SHORTEST), math.log(LONGEST), hidden // members)
        self.log_time_constants = nn.Parameter(evenly.repeat(members))

    def forward(self) -> tuple[Tensor, Tensor]:
        """(H,) decays and scales.

        A state of independent interactions has the variance 1 / (1 - decay²); the scale evens it
        out.
        """
        rate_h = torch.exp(-self.log_time_constants)
        return torch.exp(-rate_h), STRENGTH * torch.sqrt(-torch.expm1(-2 * rate_h))


class ResidualLayer(nn.Module):
    """h + relu(h into + bias) back, a feed-forward layer of U units that begins as the identity."""

    def __init__(self, hidden: int, units: int) -> None:
        super().__init__()
        self.into = nn.Parameter(runtime.zeros(hidden, units))
        self.bias = nn.Parameter(runtime.zeros(units))
        self.back = nn.Parameter(runtime.zeros(units, hidden))

    def initialise(self, generator: torch.Generator) -> None:
        """Glorot-uniform into the layer, zero out of it."""
        bound = (6.0 / sum(self.into.shape)) ** 0.5
        nn.init.uniform_(self.into, -bound, bound, generator=generator)

    def forward(self, hidden_qh: Tensor, keep_qu: Tensor | None = None) -> Tensor:
        """(Q, H); `keep_qu` is the dropout mask of the layer's units."""
        inner_qu = torch.relu(linear(hidden_qh, self.into) + self.bias)
        if keep_qu is not None:
            inner_qu = inner_qu * keep_qu
        return hidden_qh + linear(inner_qu, self.back)


# The residual layers by the name that `RankingSettings.residual_layer` gives them.
LAYERS: dict[str, Callable[[int, int], nn.Module]] = {"feed-forward": ResidualLayer}


class MemberLayers(nn.ModuleList):
    """The layers of an ensemble's members, each on the hidden units of its own member."""

    def initialise(self, generator: torch.Generator) -> None:
        """Draw the initial parameters of each."""
        for layer in self:
            layer.initialise(generator)  # type: ignore[operator]

    def forward(self, hidden_qh: Tensor, keep_qu: Tensor | None = None) -> Tensor:
        """(Q, H); dropout is for training, where a network has one member."""
        if len(self) == 1:
            whole: Tensor = self[0](hidden_qh, keep_qu)
            return whole
        slices = hidden_qh.tensor_split(len(self), dim=1)
        return torch.cat([layer(own) for layer, own in zip(self, slices, strict=True)], dim=1)


def make_layer(settings: CommonSettings, hidden: int, members: int) -> MemberLayers | None:
    """The residual layer that the settings ask for, or none; `hidden` units in all members."""
    units = getattr(settings, "residual_units", 0)
    if not units:
        return None
    kind = LAYERS["feed-forward"]
    return MemberLayers([kind(hidden // members, units) for _ in range(members)])


class BilinearInteraction(nn.Module):
    """A (H, K, U) between the H units of the items side (IIC) and the U of the users side (UUC);
    all zero at first, which gives the paper's logits."""

    def __init__(self, *, hidden_users: int, hidden_items: int, labels: int) -> None:
        super().__init__()
        self.A = nn.Parameter(runtime.zeros(hidden_items, labels, hidden_users))

    def query_rows(self, hidden_qh: Tensor) -> Tensor:
        """(Q, K, U): the rows of V that A computes from hidden vectors (Q, H) of the items side."""
        return linear(hidden_qh, self.A.flatten(1)).view(len(hidden_qh), *self.A.shape[1:])

    def forward(
        self, users: SidePairs, items: SidePairs, hidden_users: Tensor, hidden_items: Tensor
    ) -> Tensor:
        """h_U(item)' A_k h_I(user) of each pair, (P, K): a user's query has a row of V."""
        crossed = SidePairs(
            rows=np.arange(len(hidden_items), dtype=np.int32),
            query_of_pair=users.query_of_pair,
            row_of_pair=items.query_of_pair,
            by_row=items.by_query,
            by_query=users.by_query,
        )
        return pair_products(self.query_rows(hidden_items), crossed, hidden_users)
