"""The recurrent state of each user: what the items side (IIC) reads of a history in time order.

A new interaction that is the latest takes one step of the recurrence. Any other change of a
history, a late event or a removal, replays it. Both use one kernel, so a state has the bits of a
fresh load however it came about.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfuica.live.context_sums import CACHE_BYTES
from cfuica.live.histories import LiveHistories
from cfuica.live.live_rows import GrowingArray
from cfuica.model.layers import ACTIVATION_CODES
from cfuica.model.side import Side
from cfuica.ops import encode
from cfuica.ops.runtime import run_rows


@dataclass
class RunningStates:
    """States (N, H) float32 of N users, computed on first use and cached for the first
    `most_cached`.

    `histories` and `item_rows`, the table row of each item, belong to the live state, which reports
    every change.
    """

    side: Side
    histories: LiveHistories
    item_rows: GrowingArray
    most_cached: int
    _decay_h: np.ndarray
    _scale_h: np.ndarray
    _states_uh: GrowingArray
    _has_state: GrowingArray

    @classmethod
    def of(
        cls,
        side: Side,
        histories: LiveHistories,
        item_rows: GrowingArray,
        *,
        cache_bytes: int = CACHE_BYTES,
    ) -> RunningStates:
        """Of a side on the CPU; nothing is computed yet."""
        units = len(side.encoder_bias_h)
        most_cached = cache_bytes // max(1, units * 4)
        cached = min(histories.n_users, most_cached)
        decay_h, scale_h = side.decay_and_scale()
        return cls(
            side,
            histories,
            item_rows,
            most_cached,
            decay_h.numpy(),
            scale_h.numpy(),
            GrowingArray.of(np.empty((cached, units), np.float32)),
            GrowingArray.of(np.zeros(cached, np.bool_)),
        )

    def extend(self, count: int) -> None:
        """`count` more users, whom `histories` has already."""
        count = min(count, self.most_cached - self._has_state.size)
        if count > 0:
            self._states_uh.extend(count)
            self._has_state.append(count, 0)

    def step(self, user: int, item: int) -> None:
        """Follow an interaction that is the user's latest."""
        if user < self._has_state.size and self._has_state.values[user]:
            entries = self._entries(np.array([item]))
            self._advance(np.array([0, 1]), entries, self._states_uh.values[user : user + 1])

    def replay(self, user: int) -> None:
        """Drop the state of a user whose history changed otherwise: it is replayed on next use."""
        if user < self._has_state.size:
            self._has_state.values[user] = False

    def hidden(self, users: np.ndarray) -> np.ndarray:
        """(U, H) float32 hidden vectors of these users' histories, as the decoder reads them."""
        cached = users < self._has_state.size
        lacking = np.unique(users[cached][~self._has_state.values[users[cached]]])
        if lacking.size:
            self._states_uh.values[lacking] = self._scanned(lacking)
            self._has_state.values[lacking] = True
        if cached.all():
            return self._read(self._states_uh.values[users])
        states_uh = np.empty((len(users), len(self._decay_h)), np.float32)
        states_uh[cached] = self._states_uh.values[users[cached]]
        states_uh[~cached] = self._scanned(users[~cached])
        return self._read(states_uh)

    def hidden_of(self, items: np.ndarray) -> np.ndarray:
        """(H,) float32 hidden vector of an ad-hoc history, oldest first."""
        state_uh = np.zeros((1, len(self._decay_h)), np.float32)
        self._advance(np.array([0, len(items)]), self._entries(items), state_uh)
        hidden_h: np.ndarray = self._read(state_uh)[0]
        return hidden_h

    def hidden_without_each(self, offsets: np.ndarray, items: np.ndarray) -> np.ndarray:
        """(B, H) float32 hidden vectors of histories (compressed rows, oldest first), with each
        interaction left out in turn."""
        states_bh = np.empty((len(items), len(self._decay_h)), np.float32)
        run_rows(
            encode.without_each,
            len(offsets) - 1,
            self._rows_rh,
            offsets,
            self._entries(items),
            self._decay_h,
            states_bh,
            work=offsets,
        )
        return self._read(states_bh)

    @property
    def _rows_rh(self) -> np.ndarray:
        rows_rh: np.ndarray = self.side.encoder_nkh.flatten(0, 1).numpy()
        return rows_rh

    def _entries(self, items: np.ndarray) -> np.ndarray:
        """The row of W of each item: there is one label."""
        rows: np.ndarray = self.item_rows.values[items].astype(np.int64)
        return rows

    def _scanned(self, users: np.ndarray) -> np.ndarray:
        """(U, H) states after the whole histories of these users."""
        offsets, items = self.histories.together(users)
        states_uh = np.zeros((len(users), len(self._decay_h)), np.float32)
        self._advance(offsets, self._entries(items), states_uh)
        return states_uh

    def _advance(self, offsets: np.ndarray, entries: np.ndarray, states_uh: np.ndarray) -> None:
        run_rows(
            encode.advance,
            len(states_uh),
            self._rows_rh,
            offsets,
            entries,
            self._decay_h,
            states_uh,
            work=offsets,
        )

    def _read(self, states_uh: np.ndarray) -> np.ndarray:
        hidden_uh = np.empty_like(states_uh)
        run_rows(
            encode.read,
            len(states_uh),
            states_uh,
            self._scale_h,
            self.side.encoder_bias_h.numpy(),
            ACTIVATION_CODES[self.side.activation],
            hidden_uh,
        )
        return hidden_uh
