"""One side of the co-autoregressive model. Users and items differ only in which axis is which.

The *users* side (UUC) has users as members and encodes items: what other users did on this
item. The *items* side (IIC) has items as members and encodes users: what this user did on other
items. Both are this class.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cfuica.data.matrix import Csr
from cfuica.model.layers import (
    ACTIVATION_CODES,
    NO_NORMALISATION,
    ActivationName,
    LengthNormalisation,
    activate,
    decay_and_scale,
    initial_log_time_constants,
)
from cfuica.model.pairs import Histories, SidePairs
from cfuica.ops import decode, encode, reference, runtime
from cfuica.ops.runtime import run_rows

# Those that every side has, and those of the extra layer.
PAPERS = ("encoder_nkh", "encoder_bias_h", "decoder_nkh", "decoder_bias_nk")
LAYER = ("into_hu", "bias_u", "back_uh")
# The tensors that have a row for each member and, last, the shared one.
TABLES = ("encoder_nkh", "decoder_nkh", "decoder_bias_nk")
# tanh of it is 0.96, and its gradient so small that training hardly moves it.
CONSTANT = 2.0


@dataclass(frozen=True)
class Hidden:
    """Q encoded queries: the sums of Eqns. (3), (4) and f of them, both (Q, H)."""

    sums_qh: Tensor
    values_qh: Tensor


@dataclass
class Side:
    """W, c (encoder) and V, b (decoder) of one side: n rows, K labels, H hidden units.

    The rows are those of the members and, last, the shared row: that of every stranger.

    The tables hold the columns *in use*. With label sharing the parameters that are learned and
    penalised are their differences over labels (`reference.differences`); only the initial
    values and the optimiser know that, prediction never has to.
    """

    encoder_nkh: Tensor
    encoder_bias_h: Tensor
    decoder_nkh: Tensor
    decoder_bias_nk: Tensor
    activation: ActivationName = "tanh"
    length_norm: LengthNormalisation = NO_NORMALISATION
    log_time_constants_h: Tensor | None = None
    """How long each unit remembers; without it, for ever, as in the paper."""
    into_hu: Tensor | None = None
    """With `bias_u` and `back_uh` the residual layer of U units; not in the paper."""
    bias_u: Tensor | None = None
    back_uh: Tensor | None = None

    @classmethod
    def initial(
        cls,
        indices: int,
        labels: int,
        hidden: int,
        *,
        activation: ActivationName,
        share: bool,
        generator: torch.Generator,
        length_norm: LengthNormalisation = NO_NORMALISATION,
        learns_decay: bool = False,
        layer_units: int = 0,
    ) -> Side:
        """Glorot-uniform stored columns over (n + H) * K; biases and the shared row zero.

        A side that `learns_decay` learns how long. Of `layer_units` nothing comes back at first.
        """
        bound = (6.0 / ((indices + hidden) * labels)) ** 0.5

        def table() -> Tensor:
            table_nkh = runtime.zeros(indices + 1, labels, hidden)
            own_nkh = table_nkh[:indices].uniform_(-bound, bound, generator=generator)
            if share:
                own_nkh.copy_(reference.accumulate(own_nkh))
            return table_nkh

        return cls(
            table(),
            torch.zeros(hidden),
            table(),
            torch.zeros(indices + 1, labels),
            activation,
            length_norm,
            initial_log_time_constants(hidden) if learns_decay else None,
            **_initial_layer(hidden, layer_units, generator),
        )

    @property
    def shared_row(self) -> int:
        """The row of strangers."""
        return self.decoder_bias_nk.shape[0] - 1

    def make_constant(self, unit: int) -> None:
        """Let a hidden unit begin as one that reads nothing and is about 1."""
        self.encoder_nkh[:, :, unit] = 0.0
        self.encoder_bias_h[unit] = CONSTANT

    def share_the_mean(self, indices: Tensor, tables: tuple[str, ...] = TABLES) -> None:
        """Make the shared row the mean of these members' rows, in the tables with these names."""
        for name in tables:
            table = self.tensors()[name]
            # In one order whatever the number of threads, which torch does not promise.
            mean = table[indices].numpy().mean(0, dtype=np.float64)
            table[-1] = torch.from_numpy(mean)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors by name, as a saved model lists them."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    def with_tensors(self, tensors: dict[str, Tensor]) -> Side:
        """A side that differs in its parameters only."""
        return Side(**tensors, activation=self.activation, length_norm=self.length_norm)

    def to(self, device: torch.device | str) -> Side:
        """This side with its tensors on another device."""
        moved = {name: tensor.to(device) for name, tensor in self.tensors().items()}
        return self.with_tensors(moved)

    def parameter_count(self) -> int:
        return sum(tensor.numel() for tensor in self.tensors().values())

    def encode(self, context: Csr | Histories) -> Hidden:
        """Eqns. (3), (4) for the queries of a bag, or for the moments of histories."""
        if self.encoder_nkh.device.type != "cpu":
            sums_qh = self.sums(context)
            return Hidden(sums_qh, activate(sums_qh, self.activation))
        shape = (context.n_rows, self.encoder_nkh.shape[2])
        hidden = Hidden(runtime.empty(*shape), runtime.empty(*shape))
        if isinstance(context, Csr):
            self._add_up(context, hidden)
        else:
            self._scan(context, hidden)
        return hidden

    @property
    def residual_tensors(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """into (H, U), bias (U) and back (U, H), where the side has them."""
        if self.into_hu is None or self.bias_u is None or self.back_uh is None:
            return None
        return self.into_hu, self.bias_u, self.back_uh

    def with_residual_layer(self, hidden_qh: Tensor) -> Tensor:
        """(Q, H): what is decoded. With the extra layer the units of a hidden vector h (a row) also
        speak together, h + max(h into + bias, 0) back; without it, each for itself."""
        tensors = self.residual_tensors
        if tensors is None:
            return hidden_qh
        if hidden_qh.device.type != "cpu":
            return reference.residual_layer(hidden_qh, *tensors)
        out_qh = runtime.empty(*hidden_qh.shape)
        run_rows(
            decode.residual_layer,
            len(hidden_qh),
            hidden_qh.numpy(),
            *(tensor.numpy() for tensor in tensors),
            out_qh.numpy(),
        )
        return out_qh

    def sums(self, context: Csr | Histories) -> Tensor:
        """What f is applied to, by definition, on any device. (Q, H)"""
        device = self.encoder_nkh.device
        if isinstance(context, Histories):
            return reference.scan(
                self.encoder_nkh,
                self.encoder_bias_h,
                *context.on(device),
                *self.decay_and_scale(),
            )
        return reference.encode(
            self.encoder_nkh,
            self.encoder_bias_h,
            torch.from_numpy(context.offsets).to(device),
            torch.from_numpy(context.indices).to(device, torch.int64),
            torch.from_numpy(self.length_norm.of(np.diff(context.offsets))).to(device),
        )

    def decay_and_scale(self) -> tuple[Tensor, Tensor]:
        """(H,) the decay of each unit's state, and what f reads it multiplied by."""
        if self.log_time_constants_h is None:
            ones_h = torch.ones_like(self.encoder_bias_h)
            return ones_h, ones_h
        return decay_and_scale(self.log_time_constants_h)

    def _add_up(self, bag: Csr, hidden: Hidden) -> None:
        run_rows(
            encode.encode,
            bag.n_rows,
            self.encoder_nkh.flatten(0, 1).numpy(),
            bag.offsets,
            bag.indices,
            self.encoder_bias_h.numpy(),
            self.length_norm.of(np.diff(bag.offsets)),
            ACTIVATION_CODES[self.activation],
            hidden.sums_qh.numpy(),
            hidden.values_qh.numpy(),
            work=bag.offsets,
        )

    def _scan(self, histories: Histories, hidden: Hidden) -> None:
        decay_h, scale_h = self.decay_and_scale()
        run_rows(
            encode.scan,
            len(histories.offsets) - 1,
            self.encoder_nkh.flatten(0, 1).numpy(),
            histories.offsets,
            histories.indices,
            histories.positions,
            histories.position_offsets,
            decay_h.numpy(),
            scale_h.numpy(),
            self.encoder_bias_h.numpy(),
            ACTIVATION_CODES[self.activation],
            hidden.sums_qh.numpy(),
            hidden.values_qh.numpy(),
            work=histories.offsets,
        )

    def decode_into(self, logits_pk: Tensor, pairs: SidePairs, hidden_qh: Tensor) -> None:
        """Add Eqns. (5), (6) to the logits (P, K) of all pairs, in place."""
        device = logits_pk.device
        if device.type != "cpu":
            members_p = torch.from_numpy(pairs.row_of_pair).to(device, torch.int64)
            queries_p = torch.from_numpy(pairs.query_of_pair).to(device, torch.int64)
            logits_pk += reference.decode(
                self.decoder_nkh, self.decoder_bias_nk, members_p, hidden_qh[queries_p]
            )
            return
        run_rows(
            decode.decode,
            len(pairs.indices),
            self.decoder_nkh.numpy(),
            self.decoder_bias_nk.numpy(),
            pairs.indices,
            pairs.by_row.offsets,
            pairs.by_row.indices,
            pairs.query_of_pair,
            hidden_qh.numpy(),
            logits_pk.numpy(),
            work=pairs.by_row.offsets,
        )


def _initial_layer(hidden: int, units: int, generator: torch.Generator) -> dict[str, Tensor]:
    if units == 0:
        return {}
    bound = (6.0 / (hidden + units)) ** 0.5
    into_hu = runtime.zeros(hidden, units).uniform_(-bound, bound, generator=generator)
    return {
        "into_hu": into_hu,
        "bias_u": runtime.zeros(units),
        "back_uh": runtime.zeros(units, hidden),
    }
