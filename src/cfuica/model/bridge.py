"""The bridge: a bilinear form between what is read of the item and what is read of the user.

The paper's activations are two decoders side by side: V_U of the user on h_U of the item, V_I of
the item on h_I of the user. The hidden vectors never meet, so what others did on an item counts for
a user only through that user's own row of V. The bridge adds

    h_U(item)' A_k h_I(user)

for each label k: a row of V made from the user's history (and, the other way round, one made from
what was done on the item). Those who have no row of their own, strangers, gain the most.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """A of G networks that were joined into one, each between its own hidden units.

    table (G, H, K, U): H units of the items side (IIC), U of the users side (UUC), per network.
    """

    table_ghku: Tensor

    @classmethod
    def initial(cls, *, hidden_users: int, hidden_items: int, labels: int) -> Bridge:
        """All zero: nothing crosses yet."""
        return cls(memory.zeros(1, hidden_items, labels, hidden_users))

    @classmethod
    def joined(cls, bridges: Sequence[Bridge]) -> Bridge:
        """One whose form is the mean of theirs, of the concatenated hidden units."""
        share = 1.0 / len(bridges)
        return cls(torch.cat([each.table_ghku for each in bridges]).mul_(share))

    def asked(self, hidden_qh: Tensor) -> Tensor:
        """(Q, K, U): the rows of V that hidden vectors (Q, H) of the items side make."""
        blocks, _, labels, units = self.table_ghku.shape
        if hidden_qh.device.type != "cpu":
            return definition.bridge(hidden_qh, self.table_ghku)
        out_qku = memory.empty(len(hidden_qh), labels, blocks * units)
        run_rows(
            bridge.bridge,
            len(hidden_qh),
            hidden_qh.numpy(),
            self.table_ghku.numpy(),
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
        blocks, _, labels, units = self.table_ghku.shape
        if activation_pk.device.type != "cpu":
            rows_qku = self.asked(hidden["items"]) if asked_qku is None else asked_qku
            device = activation_pk.device
            users_p, items_p = (
                torch.from_numpy(side.query_of_pair).to(device, torch.int64)
                for side in (pairs.items, pairs.users)
            )
            activation_pk += torch.einsum("pku,pu->pk", rows_qku[users_p], hidden["users"][items_p])
            return
        step = max(1, _BYTES_AT_A_TIME // (4 * labels * blocks * units))
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
