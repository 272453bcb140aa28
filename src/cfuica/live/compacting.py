"""A model without the parameters of those who were forgotten, for saving."""

from __future__ import annotations

import numpy as np
import torch

from cfuica.model.conditional import CoAutoregressive
from cfuica.model.pairs import SideName
from cfuica.model.side import Side


def compacted(
    network: CoAutoregressive, rows: dict[SideName, np.ndarray]
) -> tuple[CoAutoregressive, dict[SideName, np.ndarray]]:
    """The model without table rows that nobody uses, and everyone's rows in it.

    The shared row stays, as the last one. An axis without a side has no table, and all its rows
    are 0. What was given is not changed.
    """
    sides: dict[SideName, Side] = {}
    new_rows = {axis: np.zeros_like(own) for axis, own in rows.items()}
    for name, side in network.sides.items():
        used = np.unique(np.append(rows[name], side.shared_row))
        new_rows[name] = np.searchsorted(used, rows[name]).astype(np.int32)
        if len(used) == side.shared_row + 1:
            sides[name] = side
            continue
        tensors = side.tensors()
        kept = torch.from_numpy(used).to(network.device, torch.int64)
        for table in ("encoder_nkh", "decoder_nkh", "decoder_bias_nk"):
            tensors[table] = tensors[table][kept]
        sides[name] = side.with_tensors(tensors)
    return CoAutoregressive(sides, network.bridge), new_rows
