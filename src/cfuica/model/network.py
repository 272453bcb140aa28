"""The conditional of the paper: two sides, summed logits, a softmax (Eqns. 2 to 7)."""

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

# How the bilinear interaction's tensor is called.
BILINEAR = "bridge"


@dataclass
class Network:
    """p(R_ij = k | what other users did on j, what user i did on other items).

    `sides` maps "users" (UUC) and "items" (IIC) to their parameters. A model with one of them
    only is a relative of CF-NADE: item-based (UUC) or user-based (IIC).
    """

    sides: dict[SideName, Side]
    bilinear: BilinearInteraction | None = None
    """Not in the paper; needs both sides."""

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
        """Untrained parameters for the sides named in `hidden` (their hidden units).

        `learns_decay` and `layer_units` are of the items side (see `Side.initial`).
        """
        bilinear = None
        if with_bilinear and len(hidden) == 2:
            bilinear = BilinearInteraction.initial(
                hidden_users=hidden["users"], hidden_items=hidden["items"], labels=n_labels
            )
        generator = torch.Generator().manual_seed(seed)
        indices: dict[SideName, int] = {"users": n_users, "items": n_items}
        model = cls(
            {
                side: Side.initial(
                    indices[side],
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
            # So that what is read of a user counts for items of which nothing is known, and the
            # other way round: a bias made from a history.
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
        """The model whose `tensors()` these are."""
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
        """How each side's sums are scaled."""
        return {name: side.length_norm for name, side in self.sides.items()}

    @property
    def n_labels(self) -> int:
        return next(iter(self.sides.values())).decoder_bias_nk.shape[1]

    @property
    def device(self) -> torch.device:
        return next(iter(self.sides.values())).decoder_bias_nk.device

    def to(self, device: torch.device | str) -> Network:
        """This model with its tensors on another device."""
        bilinear = (
            None
            if self.bilinear is None
            else BilinearInteraction(self.bilinear.table_hku.to(device))
        )
        sides = {name: side.to(device) for name, side in self.sides.items()}
        return Network(sides, bilinear)

    def parameter_count(self) -> int:
        return sum(tensor.numel() for tensor in self.tensors().values())

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by name, `users.encoder_nkh` and so on; the bilinear interaction is
        `bilinear`."""
        tensors = {
            f"{name}.{key}": tensor
            for name, side in self.sides.items()
            for key, tensor in side.tensors().items()
        }
        return tensors if self.bilinear is None else tensors | {BILINEAR: self.bilinear.table_hku}

    def hidden(self, bags: dict[SideName, Csr]) -> dict[SideName, Tensor]:
        """Hidden vectors (Q, H) of each side's queries."""
        return {name: side.encode(bags[name]).values_qh for name, side in self.sides.items()}

    def logits(
        self, pairs: Pairs, hidden: dict[SideName, Tensor], bilinear_qku: Tensor | None = None
    ) -> Tensor:
        """s^U + s^I of each pair, (P, K), and the bilinear term of
        `BilinearInteraction.cross_into`."""
        logits_pk = runtime.zeros(pairs.size, self.n_labels).to(self.device)
        for name, side in self.sides.items():
            side.decode_into(logits_pk, pairs.seen_by(name), hidden[name])
        if self.bilinear is not None:
            self.bilinear.cross_into(logits_pk, pairs, hidden, bilinear_qku)
        return logits_pk
