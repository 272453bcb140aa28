"""One side of the co-autoregressive model: an encoder (Eqns. 3, 4) and a decoder (Eqns. 5, 6).

The *users* side (UUC) has a row of parameters for each user. It encodes an item from the other
users' interactions with it. The *items* side (IIC) has a row for each item. It encodes a user from
that user's interactions with other items. Both are the class `Side`, as the model is symmetric.
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

# The tensors of the paper, which every side has, and those of the residual layer.
PAPERS = ("encoder_nkh", "encoder_bias_h", "decoder_nkh", "decoder_bias_nk")
LAYER = ("into_hu", "bias_u", "back_uh")
# The tables: tensors with a row for each user or item and, last, the shared row.
TABLES = ("encoder_nkh", "decoder_nkh", "decoder_bias_nk")
# The bias of a constant unit: tanh(2) is 0.96, and its gradient so small that it hardly moves.
CONSTANT = 2.0


@dataclass(frozen=True)
class Hidden:
    """Q encoded queries: the sums of Eqns. (3) and (4), and f of them, both (Q, H)."""

    sums_qh: Tensor
    values_qh: Tensor


@dataclass
class Side:
    """W, c (encoder) and V, b (decoder) of one side: n rows, K labels, H hidden units.

    There is a row for each user or item and, last, the shared row of all cold-start ones.

    The tables hold the columns *in use*. With label sharing the learned and penalised parameters
    are their differences over labels (`reference.differences`). Only the initial values and the
    optimiser depend on that, prediction does not.
    """

    encoder_nkh: Tensor
    encoder_bias_h: Tensor
    decoder_nkh: Tensor
    decoder_bias_nk: Tensor
    activation: ActivationName = "tanh"
    length_norm: LengthNormalisation = NO_NORMALISATION
    # The logarithms of the learned decay's time constants; None: a sum, as in the paper.
    log_time_constants_h: Tensor | None = None
    # The residual layer of U units, with `bias_u` and `back_uh`; not in the paper.
    into_hu: Tensor | None = None
    bias_u: Tensor | None = None
    back_uh: Tensor | None = None

    @classmethod
    def initial(
        cls,
        rows: int,
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
        """Stored columns Glorot-uniform over (n + H) * K; biases and the shared row zero.

        `learns_decay` adds a learned decay for each unit, `layer_units` a residual layer, which
        begins as the identity.
        """
        bound = (6.0 / ((rows + hidden) * labels)) ** 0.5

        def table() -> Tensor:
            table_nkh = runtime.zeros(rows + 1, labels, hidden)
            own_nkh = table_nkh[:rows].uniform_(-bound, bound, generator=generator)
            if share:
                own_nkh.copy_(reference.accumulate(own_nkh))
            return table_nkh

        return cls(
            table(),
            torch.zeros(hidden),
            table(),
            torch.zeros(rows + 1, labels),
            activation,
            length_norm,
            initial_log_time_constants(hidden) if learns_decay else None,
            **_initial_residual_layer(hidden, layer_units, generator),
        )

    @property
    def shared_row(self) -> int:
        """The row of cold-start users or items."""
        return self.decoder_bias_nk.shape[0] - 1

    def make_constant(self, unit: int) -> None:
        """Initialise a hidden unit to about 1 whatever the context."""
        self.encoder_nkh[:, :, unit] = 0.0
        self.encoder_bias_h[unit] = CONSTANT

    def share_the_mean(self, rows: Tensor, tables: tuple[str, ...] = TABLES) -> None:
        """Set the shared row to the mean of these rows, in the tables of these names."""
        for name in tables:
            table = self.tensors()[name]
            # numpy sums in one order whatever the number of threads; torch does not.
            mean = table[rows].numpy().mean(0, dtype=np.float64)
            table[-1] = torch.from_numpy(mean)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors by name, as a saved model lists them."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    def with_tensors(self, tensors: dict[str, Tensor]) -> Side:
        """A side that differs in its parameters only."""
        return Side(**tensors, activation=self.activation, length_norm=self.length_norm)

    def encode(self, context: Csr | Histories) -> Hidden:
        """Eqns. (3) and (4) for the queries of bags, or for the positions of histories."""
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
        """into (H, U), bias (U) and back (U, H), where the side has a residual layer."""
        if self.into_hu is None or self.bias_u is None or self.back_uh is None:
            return None
        return self.into_hu, self.bias_u, self.back_uh

    def with_residual_layer(self, hidden_qh: Tensor) -> Tensor:
        """The input of the decoder, h + relu(h into + bias) back for each hidden vector h; h itself
        where there is no residual layer. (Q, H)"""
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
        """The input of f in Eqns. (3) and (4) by the reference, on any device. (Q, H)"""
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
        """(H,) the decay of each unit's state, and its scale in the input of f."""
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
        """Add s of Eqns. (5) and (6) to the logits (P, K) of all pairs, in place."""
        device = logits_pk.device
        if device.type != "cpu":
            rows_p = torch.from_numpy(pairs.row_of_pair).to(device, torch.int64)
            queries_p = torch.from_numpy(pairs.query_of_pair).to(device, torch.int64)
            logits_pk += reference.decode(
                self.decoder_nkh, self.decoder_bias_nk, rows_p, hidden_qh[queries_p]
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


def _initial_residual_layer(
    hidden: int, units: int, generator: torch.Generator
) -> dict[str, Tensor]:
    if units == 0:
        return {}
    bound = (6.0 / (hidden + units)) ** 0.5
    into_hu = runtime.zeros(hidden, units).uniform_(-bound, bound, generator=generator)
    return {
        "into_hu": into_hu,
        "bias_u": runtime.zeros(units),
        "back_uh": runtime.zeros(units, hidden),
    }
