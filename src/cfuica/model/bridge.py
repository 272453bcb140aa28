"""The bridge: a bilinear form between what is read of the item and what is read of the user.

The paper's activations are two decoders side by side: V_U of the user on h_U of the item, V_I of
the item on h_I of the user. The hidden vectors never meet, so what others did on an item counts for
a user only through that user's own row of V. The bridge adds

    h_U(item)' A_k h_I(user)

for each label k: a row of V made from the user's history (and, the other way round, one made from
what was done on the item). Strangers, who have no row of their own, gain by it; those who have one
do not, so only the strangers' network has a bridge.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cfuica.kernels import bridge, decode, definition, memory
from cfuica.kernels.threads import run_rows
from cfuica.model.pairs import Pairs, SideName

# Rows that are made from hidden vectors at a time, in bytes.
_BYTES_AT_A_TIME = 64 << 20


@dataclass
class Bridge:
    """A: table (H, K, U) between H units of the items side (IIC) and U of the users side (UUC)."""

    table_hku: Tensor

    @classmethod
    def initial(cls, *, hidden_users: int, hidden_items: int, labels: int) -> Bridge:
        """All zero: nothing crosses yet."""
        return cls(memory.zeros(hidden_items, labels, hidden_users))

    def asked(self, hidden_qh: Tensor) -> Tensor:
        """(Q, K, U): the rows of V that hidden vectors (Q, H) of the items side make."""
        _, labels, units = self.table_hku.shape
        if hidden_qh.device.type != "cpu":
            return definition.bridge(hidden_qh, self.table_hku)
        out_qku = memory.empty(len(hidden_qh), labels, units)
        run_rows(
            bridge.bridge,
            len(hidden_qh),
            hidden_qh.numpy(),
            self.table_hku.numpy(),
            out_qku.numpy(),
        )
        return out_qku

    def cross_into(
        self,
        activation_pk: Tensor,
        pairs: Pairs,
        hidden: dict[SideName, Tensor],
        asked_qku: Tensor | None = None,
    ) -> None:
        """Add the form to the activations (P, K) of all pairs, in place.

        `asked_qku` is `asked(hidden["items"])`, where it is at hand.
        """
        queries = len(hidden["items"])
        _, labels, units = self.table_hku.shape
        if activation_pk.device.type != "cpu":
            rows_qku = self.asked(hidden["items"]) if asked_qku is None else asked_qku
            device = activation_pk.device
            users_p, items_p = (
                torch.from_numpy(side.query_of_pair).to(device, torch.int64)
                for side in (pairs.items, pairs.users)
            )
            activation_pk += torch.einsum("pku,pu->pk", rows_qku[users_p], hidden["users"][items_p])
            return
        step = max(1, _BYTES_AT_A_TIME // (4 * labels * units))
        grouping = pairs.items.by_query
        for start in range(0, queries, step):
            stop = min(start + step, queries)
            rows_qku = (
                self.asked(hidden["items"][start:stop])
                if asked_qku is None
                else asked_qku[start:stop]
            )
            run_rows(
                decode.decode,
                stop - start,
                rows_qku.numpy(),
                np.zeros((stop - start, labels), np.float32),
                np.arange(stop - start, dtype=np.int32),
                grouping.offsets[start : stop + 1],
                grouping.order,
                pairs.users.query_of_pair,
                hidden["users"].numpy(),
                activation_pk.numpy(),
                work=grouping.offsets[start : stop + 1],
            )
