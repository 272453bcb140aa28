"""The layers of a side beyond the paper, each a torch module.

*Learned decay.* Each hidden unit of the items side may weight an interaction t places back by
decay^t, a diagonal linear recurrence. A decay of 1 is the paper's sum. The parameter is the
logarithm of the time constant -1 / log(decay), in interactions, so that a step of the optimiser
means the same for short and long time constants.

*Residual layers* stand between the hidden vector of a user and the decoder. `make_layer` chooses
one by the settings: to add a layer, write its module here and give it a name in `LAYERS`. A
layer multiplies by `linear`, so that in inference a user's bits do not depend on others.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from cfuica.ops import runtime
from cfuica.ops.decode import linear
from cfuica.settings import RankingSettings

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
        inner_qu = torch.relu(linear(hidden_qh, self.into, self.bias))
        if keep_qu is not None:
            inner_qu = inner_qu * keep_qu
        return linear(inner_qu, self.back, hidden_qh)


class GatedResidualLayer(nn.Module):
    """h + sigmoid(gate(n)) * down(silu(a(n)) * b(n)) with n = norm(h): a gated SwiGLU layer of U
    units that begins as the identity."""

    def __init__(self, hidden: int, units: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.into = nn.Parameter(runtime.zeros(hidden, 2 * units))
        self.into_bias = nn.Parameter(runtime.zeros(2 * units))
        self.down = nn.Parameter(runtime.zeros(units, hidden))
        self.down_bias = nn.Parameter(runtime.zeros(hidden))
        self.gate = nn.Parameter(runtime.zeros(hidden, hidden))
        self.gate_bias = nn.Parameter(runtime.zeros(hidden))

    def initialise(self, generator: torch.Generator) -> None:
        """Glorot-uniform into the layer, zero out of it, the gate half open."""
        bound = (6.0 / sum(self.into.shape)) ** 0.5
        nn.init.uniform_(self.into, -bound, bound, generator=generator)

    def forward(self, hidden_qh: Tensor, keep_qu: Tensor | None = None) -> Tensor:
        """(Q, H); `keep_qu` is the dropout mask of the layer's units."""
        normed_qh = self.norm(hidden_qh)
        first_qu, second_qu = linear(normed_qh, self.into, self.into_bias).chunk(2, dim=1)
        inner_qu = functional.silu(first_qu) * second_qu
        if keep_qu is not None:
            inner_qu = inner_qu * keep_qu
        gate_qh = torch.sigmoid(linear(normed_qh, self.gate, self.gate_bias))
        return hidden_qh + gate_qh * linear(inner_qu, self.down, self.down_bias)


# The residual layers by the name that `RankingSettings.residual_layer` gives them.
LAYERS: dict[str, Callable[[int, int], nn.Module]] = {
    "feed-forward": ResidualLayer,
    "gated": GatedResidualLayer,
}


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


def make_layer(settings: RankingSettings, hidden: int, members: int) -> MemberLayers:
    """The residual layer that the settings ask for; `hidden` units in all members."""
    kind, units = LAYERS[settings.residual_layer], settings.residual_units
    return MemberLayers([kind(hidden // members, units) for _ in range(members)])
