"""An ensemble as one wide network.

`merge` joins networks that were trained apart on the same users and items. Hidden units are
independent until the decoder sums them, so the merged network has the hidden units of all, and its
logits are the mean of theirs: a geometric mean of the distributions. It is saved, served and
explained like any single network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from cfuica.model.network import Network
from cfuica.model.side import Side


def merge(models: Sequence[Network]) -> Network:
    """One network whose logits are the mean of those of the given ones."""
    if len(models) == 1:
        return models[0]
    return Network(
        {name: _merge_sides([model.sides[name] for model in models]) for name in models[0].sides}
    )


def _merge_sides(sides: Sequence[Side]) -> Side:
    share = 1.0 / len(sides)
    return Side(
        encoder_nkh=torch.cat([side.encoder_nkh for side in sides], dim=2),
        encoder_bias_h=torch.cat([side.encoder_bias_h for side in sides]),
        decoder_nkh=torch.cat([side.decoder_nkh for side in sides], dim=2).mul_(share),
        decoder_bias_nk=torch.stack([side.decoder_bias_nk for side in sides]).mean(0),
        activation=sides[0].activation,
        length_norm=sides[0].length_norm,
        log_time_constants_h=_joined([side.log_time_constants_h for side in sides]),
        # The residual layer of each ensemble member reads the units of that member alone.
        into_hu=_joined([side.into_hu for side in sides], torch.block_diag),
        bias_u=_joined([side.bias_u for side in sides]),
        back_uh=_joined([side.back_uh for side in sides], torch.block_diag),
    )


def _joined(
    tensors: Sequence[Tensor | None],
    join: Callable[..., Tensor] = lambda *present: torch.cat(present),
) -> Tensor | None:
    present = [tensor for tensor in tensors if tensor is not None]
    return join(*present) if present else None
