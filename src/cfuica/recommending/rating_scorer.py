"""Items by their predicted ratings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cfuica.live.person import History
from cfuica.recommending.scores import By, check_by, scores, support_bonus

if TYPE_CHECKING:
    from cfuica.live.model import Answerer, LiveModel
    from cfuica.recommending.recommend import Whom


@dataclass(frozen=True)
class RatingScorer:
    """Scores of users or visitors for all items, each by whoever answers about the pair."""

    live: LiveModel
    by: By
    bonus_m: np.ndarray

    @classmethod
    def of(cls, live: LiveModel, by: By) -> RatingScorer:
        """Of a model as it is now."""
        check_by(by)
        return cls(live, by, support_bonus(live.state.support("items"), live.scale.values_array()))

    @property
    def numbers_per_item(self) -> int:
        """A predicted distribution."""
        return self.live.scale.size

    def block(
        self, whom: Whom, items: np.ndarray, *, seen_too: bool
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """(B, M) scores, those of these `items` as they are predicted; and what each has seen."""
        if isinstance(whom, History):
            seen = [whom.items]
            score_bm = self.of_visitor(whom, seen_too=seen_too)
        else:
            seen = [self.live.state.history("users", user)[0] for user in whom.tolist()]
            score_bm = self.of_users(whom, items)
            if seen_too:
                rows_p = np.repeat(np.arange(len(whom)), [len(own) for own in seen])
                self.correct(score_bm, whom, rows_p, np.concatenate(seen))
        return score_bm, seen

    def of_users(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """(B, M) scores of users for all items; those of these `items` count.

        Items that a user has seen are not left out of what their scores are made from.
        """
        live = self.live
        is_strange_b = live.is_stranger("users")[users]
        score_bm = np.empty((len(users), live.state.size("items")), np.float32)
        for one, is_asked_b in ((live.known, ~is_strange_b), (live.for_strangers, is_strange_b)):
            asked = np.flatnonzero(is_asked_b)
            if len(asked):
                activation_bmk = one.state.item_activations(one.state.people(users[asked]))
                score_bm[asked] = self._scores(one, activation_bmk)
        strange = items[live.is_stranger("items")[items]]
        known = np.flatnonzero(~is_strange_b)
        if live.for_strangers is not live.known and len(strange) and len(known):
            state = live.for_strangers.state
            activation_bmk = state.item_activations(state.people(users[known]), strange)
            found_bm = self._scores(live.for_strangers, activation_bmk, strange)
            score_bm[np.ix_(known, strange)] = found_bm
        return score_bm

    def correct(
        self, score_bm: np.ndarray, users: np.ndarray, rows_p: np.ndarray, items_p: np.ndarray
    ) -> None:
        """Write the scores of some pairs, by row and item, as they are predicted one by one."""
        for one, asked, activation_pk in self.live.answers(users[rows_p], items_p):
            scores_p = self._scores(one, activation_pk[None], items_p[asked])[0]
            score_bm[rows_p[asked], items_p[asked]] = scores_p

    def of_visitor(self, history: History, *, seen_too: bool) -> np.ndarray:
        """(1, M) scores of a visitor, those of the history too or not."""
        live = self.live
        score_bm = np.empty((1, live.state.size("items")), np.float32)
        is_strange_m = live.is_stranger("items")
        if live.is_stranger("users")[live.ids["users"].nobody]:
            is_strange_m[:] = True
        for one, is_asked_m in ((live.known, ~is_strange_m), (live.for_strangers, is_strange_m)):
            if is_asked_m.any():
                visitor = one.state.visitor(history.items, history.labels)
                activation_bmk = one.state.item_activations([visitor])
                if seen_too:
                    activation_bmk[0, visitor.items] = one.state.history_activations(visitor)
                score_bm[:, is_asked_m] = self._scores(one, activation_bmk)[:, is_asked_m]
        return score_bm

    def _scores(
        self, one: Answerer, activation_bmk: np.ndarray, items: np.ndarray | None = None
    ) -> np.ndarray:
        """(B, M) scores of all items, or of those given."""
        bonus_m = self.bonus_m if items is None else self.bonus_m[items]
        values_k, distributions = self.live.scale.values_array(), one.calibration.distributions
        return scores(activation_bmk, values_k, bonus_m, distributions, self.by)
