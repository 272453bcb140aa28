"""The network of the paper: p(R_ij = k | contexts) from two sides (Eqns. 2 to 7).

The users side (UUC) reads the other users' interactions with item j, the items side (IIC) reads
user i's interactions with other items. Both decode logits, which are added; their softmax over the
K labels is the conditional distribution.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from cfuica.data.matrix import Csr
from cfuica.model.layers import (
    NO_NORMALISATION,
    ActivationName,
    BilinearInteraction,
    LengthNormalisation,
)
from cfuica.model.pairs import Pairs, SideName
from cfuica.model.side import Side
from cfuica.ops import runtime

BILINEAR = "bilinear"  # The name of the tensor A of the bilinear interaction.


@dataclass
class Network:
    """p(R_ij = k | other users' interactions with j, user i's interactions with other items).

    `sides` maps "users" (UUC) and "items" (IIC) to their parameters. A network with one side only
    is a relative of CF-NADE: item-based (UUC) or user-based (IIC).
    """

    sides: dict[SideName, Side]
    bilinear: BilinearInteraction | None = None  # Not in the paper; needs both sides.

    @classmethod
    def initial(
        cls,
        *,
        n_users: int,
        n_items: int,
        n_labels: int,
        hidden: dict[SideName, int],
        activation: ActivationName = "tanh",
        share: bool = True,
        seed: int = 0,
        length_norms: dict[SideName, LengthNormalisation] | None = None,
        with_bilinear: bool = False,
        learns_decay: bool = False,
        layer_units: int = 0,
    ) -> Network:
        """Initial parameters for the sides named in `hidden`, which gives their hidden units.

        `learns_decay` and `layer_units` concern the items side (see `Side.initial`).
        """
        bilinear = None
        if with_bilinear and len(hidden) == 2:
            bilinear = BilinearInteraction.initial(
                hidden_users=hidden["users"], hidden_items=hidden["items"], labels=n_labels
            )
        generator = torch.Generator().manual_seed(seed)
        rows: dict[SideName, int] = {"users": n_users, "items": n_items}
        model = cls(
            {
                side: Side.initial(
                    rows[side],
                    n_labels,
                    units,
                    activation=activation,
                    share=share,
                    generator=generator,
                    length_norm=(length_norms or {}).get(side, NO_NORMALISATION),
                    learns_decay=learns_decay and side == "items",
                    layer_units=layer_units if side == "items" else 0,
                )
                for side, units in hidden.items()
            },
            bilinear,
        )
        if bilinear is not None:
            # A constant unit on each side makes the bilinear interaction contain a bias that is
            # computed from one history alone, for users or items without any interaction.
            for side in model.sides.values():
                side.make_constant(0)
        return model

    @classmethod
    def of_tensors(
        cls,
        tensors: dict[str, Tensor],
        activation: ActivationName,
        length_norms: dict[SideName, LengthNormalisation] | None = None,
    ) -> Network:
        """The network whose `tensors()` these are."""
        sides: dict[SideName, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            side, _, key = name.partition(".")
            if side != BILINEAR:
                sides.setdefault(cast(SideName, side), {})[key] = tensor
        return cls(
            {
                side: Side(
                    **own,
                    activation=activation,
                    length_norm=(length_norms or {}).get(side, NO_NORMALISATION),
                )
                for side, own in sides.items()
            },
            BilinearInteraction(tensors[BILINEAR]) if BILINEAR in tensors else None,
        )

    @property
    def length_norms(self) -> dict[SideName, LengthNormalisation]:
        """The length normalisation of each side."""
        return {name: side.length_norm for name, side in self.sides.items()}

    @property
    def n_labels(self) -> int:
        return next(iter(self.sides.values())).decoder_bias_nk.shape[1]

    @property
    def device(self) -> torch.device:
        return next(iter(self.sides.values())).decoder_bias_nk.device

    def to(self, device: torch.device | str) -> Network:
        """This network with its tensors on another device."""
        moved = {name: tensor.to(device) for name, tensor in self.tensors().items()}
        activation = next(iter(self.sides.values())).activation
        return Network.of_tensors(moved, activation, self.length_norms)

    def parameter_count(self) -> int:
        return sum(tensor.numel() for tensor in self.tensors().values())

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by name: `users.encoder_nkh` and so on, and `bilinear`."""
        tensors = {
            f"{name}.{key}": tensor
            for name, side in self.sides.items()
            for key, tensor in side.tensors().items()
        }
        return tensors if self.bilinear is None else tensors | {BILINEAR: self.bilinear.table_hku}

    def hidden(self, bags: dict[SideName, Csr]) -> dict[SideName, Tensor]:
        """Eqns. (3) and (4): the hidden vectors (Q, H) of each side's queries."""
        return {name: side.encode(bags[name]).values_qh for name, side in self.sides.items()}

    def logits(
        self, pairs: Pairs, hidden: dict[SideName, Tensor], bilinear_qku: Tensor | None = None
    ) -> Tensor:
        """The logits s^U + s^I of each pair, Eqns. (5), (6), and the bilinear interaction. (P, K)

        `bilinear_qku` see `BilinearInteraction.cross_into`."""
        logits_pk = runtime.zeros(pairs.size, self.n_labels).to(self.device)
        for name, side in self.sides.items():
            side.decode_into(logits_pk, pairs.seen_by(name), hidden[name])
        if self.bilinear is not None:
            self.bilinear.cross_into(logits_pk, pairs, hidden, bilinear_qku)
        return logits_pk
