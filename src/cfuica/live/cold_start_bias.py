"""The bias of a cold-start user, estimated from their history at prediction time.

A warm user has a row of b that was trained on their ratings. A cold-start user has the shared
row, so the network may be wrong about all of their ratings in the same direction. The history
shows this: each of its ratings is predicted from the others, and the residuals are averaged.
The bias is one Newton step from there, damped as if DAMPING more ratings had a residual of 0:

    t = n / (n + DAMPING) * mean(rating - expected) / mean(predicted variance).

The logit of label k gets t times the position of k on the rating scale, from -1 to 1. The bias
is a function of the current interactions: nothing is trained, so forgetting leaves nothing
behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from cfuica.live.contexts import ExactSums, UserProfile
from cfuica.live.interactions import GrowingArray
from cfuica.model.network import BilinearInteraction
from cfuica.ops import encode, running_sums
from cfuica.ops.runtime import run_rows
from cfuica.ops.tables import SideName

# Chosen on users hidden from training: 10 to 30 are as good.
DAMPING = 20.0
# A larger bias would put all of any distribution at one end of the scale.
LARGEST = 3.0
# Memory for cached decoders of items.
DECODER_BYTES = 256 << 20

# (K, H), (K,): the logits of an item are affine in a hidden vector of the items side.
Decoder = tuple[np.ndarray, np.ndarray]


@dataclass
class ColdStartBias:
    """The biases of cold-start users under a network with both sides, by its contexts in a state;
    `values_k` (ascending) are the ratings of the labels."""

    contexts: Mapping[SideName, ExactSums]
    item_rows: GrowingArray  # The row of each item, as the live state has it.
    bilinear: BilinearInteraction | None
    values_k: np.ndarray
    # By item, then by the user whose own rating is left out of the item's sum; None for an
    # anonymous user, who has no rating there.
    _decoders: dict[int, dict[int | None, Decoder]] = field(default_factory=dict)
    _cached: int = 0

    @cached_property
    def place_k(self) -> np.ndarray:
        """(K,) float32: the labels' places from -1 to 1."""
        low, high = self.values_k[0], self.values_k[-1]
        place_k: np.ndarray = (self.values_k - (high + low) / 2) / ((high - low) / 2)
        return place_k.astype(np.float32)

    def changed(self, item: int) -> None:
        """Drop the cached decoders of an item whose interactions changed."""
        self._cached -= len(self._decoders.pop(item, ()))

    def added(self, profile: UserProfile, removed_r: np.ndarray) -> np.ndarray:
        """(R, K) float32 that the biases add to the logits of a profile: of versions without
        interaction removed[r] of the history (-1: the whole history)."""
        n = len(profile.items)
        if n == 0:
            return np.zeros((len(removed_r), len(self.place_k)), np.float32)
        side = self.contexts["items"].side
        entries_n = self.contexts["items"].entries(profile.items, profile.labels)
        sums_rh = np.repeat(profile.sums_h[None], len(removed_r), 0)
        for sums_h, removed in zip(sums_rh, removed_r.tolist(), strict=True):
            if removed >= 0:
                running_sums.shift(side.W.rows, sums_h, int(entries_n[removed]), -1)
        decoder_nkh, base_nk = self._decoders_of(profile)
        size_r = n - (removed_r >= 0)
        surplus_r, variance_r = np.empty((2, len(removed_r)))
        run_rows(
            running_sums.residuals,
            len(removed_r),
            side.W.rows,
            side.c.detach().numpy(),
            sums_rh,
            removed_r,
            side.length_norm.of(np.maximum(size_r - 1, 0)),
            entries_n,
            profile.labels,
            decoder_nkh,
            base_nk,
            self.place_k,
            encode.CODES[side.activation],
            surplus_r,
            variance_r,
        )
        # No history, or a predicted variance of 0, says nothing about the bias.
        safe_r = np.maximum(variance_r * (1 + DAMPING / np.maximum(size_r, 1)), 1e-6)
        tilt_r = np.clip(surplus_r / safe_r, -LARGEST, LARGEST).astype(np.float32)
        added_rk: np.ndarray = tilt_r[:, None] * self.place_k
        return added_rk

    def _decoders_of(self, profile: UserProfile) -> tuple[np.ndarray, np.ndarray]:
        """(n, K, H), (n, K): the decoders of a history's items."""
        _, labels, units = self.contexts["items"].side.V.values.shape
        if (self._cached + len(profile.items)) * labels * units * 4 > DECODER_BYTES:
            self._decoders.clear()
            self._cached = 0
        own = [self._decoders.setdefault(item, {}) for item in profile.items.tolist()]
        lacking = np.array(
            [n for n, cached in enumerate(own) if profile.user not in cached], np.int64
        )
        if len(lacking):
            made = self._new_decoders(profile, lacking)
            for n, decoder_kh, base_k in zip(lacking.tolist(), *made, strict=True):
                own[n][profile.user] = decoder_kh, base_k
            self._cached += len(lacking)
        decoders = [cached[profile.user] for cached in own]
        return np.stack([each[0] for each in decoders]), np.stack([each[1] for each in decoders])

    def _new_decoders(
        self, profile: UserProfile, places: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(n, K, H), (n, K): the decoders of the items in these places of a history."""
        users, items = self.contexts["users"].side, self.contexts["items"].side
        rated = profile.items[places]
        item_rows = self.item_rows.values[rated]
        left_out = np.full(len(places), -1 if profile.user is None else profile.user)
        hidden_nu = self.contexts["users"].hidden(rated, left_out, profile.labels[places]).numpy()
        decoder_nkh = items.V.array[items.table_rows(item_rows)]
        if self.bilinear is not None:
            table_hku = self.bilinear.A.detach().numpy()
            crossed = _products(table_hku.reshape(-1, table_hku.shape[2]), hidden_nu)
            decoder_nkh += crossed.reshape(*table_hku.shape[:2], -1).transpose(2, 1, 0)
        base_nk = items.b.array[item_rows, :, 0]
        base_nk += users.b.array[profile.row, :, 0]
        base_nk += _products(users.V.array[users.table_row(profile.row)], hidden_nu).T
        return decoder_nkh, base_nk


def _products(vectors_mh: np.ndarray, query_bh: np.ndarray) -> np.ndarray:
    """(M, B) inner products, whose bits do not depend on the other rows of the call."""
    out_mb = np.empty((len(vectors_mh), len(query_bh)), np.float32)
    run_rows(running_sums.products, len(vectors_mh), vectors_mh, query_bh, out_mb)
    return out_mb
