"""Items by the activation (logit) that somebody does them next."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from cfuica.live.person import History

if TYPE_CHECKING:
    from cfuica.live.ranking_state import RankingState
    from cfuica.recommending.recommend import Whom

# Behaviours that are left out at a time: this bounds the memory of the vectors without them.
PAIRS_PER_PASS = 8192


@dataclass(frozen=True)
class RankingScorer:
    """Scores of users or visitors for all items.

    What somebody has done is scored as if they had not: it is left out of the user's history, and
    a user is left out of the item's sum.
    """

    state: RankingState

    @property
    def numbers_per_item(self) -> int:
        """A score."""
        return 1

    def block(
        self, whom: Whom, items: np.ndarray, *, seen_too: bool
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """(B, M) scores of all items, and what each has seen, oldest first."""
        state = self.state
        if isinstance(whom, History):
            users, seen = None, [whom.items]
            score_bm = state.scores(state.vectors_after(whom.items))
        else:
            users, seen = whom, [state.histories.of_user(user).items for user in whom.tolist()]
            score_bm = state.scores(state.user_vectors(whom))
        if seen_too:
            offsets = np.cumsum([0, *map(len, seen)])
            # A history is left whole.
            passes = np.searchsorted(offsets, np.arange(0, offsets[-1], PAIRS_PER_PASS))
            for first, end in pairwise(np.unique([*passes, len(seen)]).tolist()):
                some = slice(first, end)
                asked = None if users is None else users[some]
                self._leave_out(score_bm[some], asked, seen[some])
        return score_bm, seen

    def _leave_out(
        self, score_bm: np.ndarray, users: np.ndarray | None, seen: list[np.ndarray]
    ) -> None:
        """Write the scores of what was done, each as if it had not been."""
        state, items_p = self.state, np.concatenate(seen)
        offsets = np.cumsum([0, *map(len, seen)])
        rows_p = np.repeat(np.arange(len(seen)), np.diff(offsets))
        users_ph = state.vectors_without_each(offsets, items_p, users)
        if users is None:  # nobody stored a visitor's behaviours with the items
            items_ph = state.item_vectors()[items_p]
        else:
            items_ph = state.item_vectors_without(items_p, users[rows_p])
        score_bm[rows_p, items_p] = state.pair_scores(users_ph, items_ph, items_p)
