"""The conditional of the paper: two sides, summed activations, a softmax (Eqns. 2 to 7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from cfuica.model.layers import NO_GAIN, ActivationName, Bridge, Gain
from cfuica.model.pairs import Bag, Pairs, SideName
from cfuica.model.side import Side
from cfuica.ops import runtime

# How the bridge's tensor is called.
BRIDGE = "bridge"


@dataclass
class CoAutoregressive:
    """p(R_ij = k | what other users did on j, what user i did on other items).

    `sides` maps "users" (UUC) and "items" (IIC) to their parameters. A model with one of them
    only is a relative of CF-NADE: item-based (UUC) or user-based (IIC).
    """

    sides: dict[SideName, Side]
    bridge: Bridge | None = None
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
        gains: dict[SideName, Gain] | None = None,
        bridged: bool = False,
        remembers: bool = False,
        layer_units: int = 0,
    ) -> CoAutoregressive:
        """Untrained parameters for the sides named in `hidden` (their hidden units).

        `remembers` and `layer_units` are of the items side (see `Side.initial`).
        """
        bridge = None
        if bridged and len(hidden) == 2:
            bridge = Bridge.initial(
                hidden_users=hidden["users"], hidden_items=hidden["items"], labels=n_labels
            )
        generator = torch.Generator().manual_seed(seed)
        members: dict[SideName, int] = {"users": n_users, "items": n_items}
        model = cls(
            {
                side: Side.initial(
                    members[side],
                    n_labels,
                    units,
                    activation=activation,
                    share=share,
                    generator=generator,
                    gain=(gains or {}).get(side, NO_GAIN),
                    remembers=remembers and side == "items",
                    layer_units=layer_units if side == "items" else 0,
                )
                for side, units in hidden.items()
            },
            bridge,
        )
        if bridge is not None:
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
        gains: dict[SideName, Gain] | None = None,
    ) -> CoAutoregressive:
        """The model whose `tensors()` these are."""
        sides: dict[SideName, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            side, _, key = name.partition(".")
            if side != BRIDGE:
                sides.setdefault(cast(SideName, side), {})[key] = tensor
        return cls(
            {
                side: Side(**own, activation=activation, gain=(gains or {}).get(side, NO_GAIN))
                for side, own in sides.items()
            },
            Bridge(tensors[BRIDGE]) if BRIDGE in tensors else None,
        )

    @property
    def gains(self) -> dict[SideName, Gain]:
        """How each side's sums are scaled."""
        return {name: side.gain for name, side in self.sides.items()}

    @property
    def n_labels(self) -> int:
        return next(iter(self.sides.values())).decoder_bias_nk.shape[1]

    @property
    def device(self) -> torch.device:
        return next(iter(self.sides.values())).decoder_bias_nk.device

    def to(self, device: torch.device | str) -> CoAutoregressive:
        """This model with its tensors on another device."""
        bridge = None if self.bridge is None else Bridge(self.bridge.table_hku.to(device))
        sides = {name: side.to(device) for name, side in self.sides.items()}
        return CoAutoregressive(sides, bridge)

    def parameter_count(self) -> int:
        return sum(tensor.numel() for tensor in self.tensors().values())

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by name, `users.encoder_nkh` and so on; the bridge is `bridge`."""
        tensors = {
            f"{name}.{key}": tensor
            for name, side in self.sides.items()
            for key, tensor in side.tensors().items()
        }
        return tensors if self.bridge is None else tensors | {BRIDGE: self.bridge.table_hku}

    def hidden(self, bags: dict[SideName, Bag]) -> dict[SideName, Tensor]:
        """Hidden vectors (Q, H) of each side's queries."""
        return {name: side.encode(bags[name]).values_qh for name, side in self.sides.items()}

    def activations(
        self, pairs: Pairs, hidden: dict[SideName, Tensor], asked_qku: Tensor | None = None
    ) -> Tensor:
        """s^U + s^I of each pair, (P, K), and what crosses the bridge (see `Bridge.cross_into`)."""
        activation_pk = runtime.zeros(pairs.size, self.n_labels).to(self.device)
        for name, side in self.sides.items():
            side.decode_into(activation_pk, pairs.seen_by(name), hidden[name])
        if self.bridge is not None:
            self.bridge.cross_into(activation_pk, pairs, hidden, asked_qku)
        return activation_pk
