"""Explanations of a predicted rating or of a ranking score, by external ids and titles.

`explain` and `explain_ranking` say how a prediction would change without each interaction of the
user, and without the interactions of other users. The changes are exact counterfactuals of the
model, given its parameters, and no statement about causes. They do not add up, because f is not
linear. In a ranking model a removed interaction leaves the time order too: the history is replayed
without it (`ops.encode.without_each`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
import polars as pl

from cfuica.inference.counterfactual import (
    FEWEST_RATERS,
    LabelGroup,
    counterfactuals,
    may_be_shown,
)

if TYPE_CHECKING:
    from cfuica.data.vocabulary import LabelScale
    from cfuica.inference.scores import Distributions
    from cfuica.live.events import UserProfile
    from cfuica.live.ranking_state import RankingState
    from cfuica.live.rating_state import RatingState
    from cfuica.model.pairs import SideName
# (n,) indices to a column of n: `Vocabulary.decode` is one.
Lookup: TypeAlias = Callable[[np.ndarray], pl.Series]

CONTRIBUTIONS: dict[SideName, str] = {"items": "IIC", "users": "UUC"}
SHOWN = 5  # Interactions of the history that are shown where all cannot be.


class BaseExplanation(ABC):
    """What explanations of both tasks have: the history, and the contribution of each side."""

    user: Any
    item: Any
    title: str | None
    history: pl.DataFrame
    contributions: pl.DataFrame
    too_few: ClassVar[str]  # Why other users are not shown, where that is so.
    noun: ClassVar[str]  # What an interaction is called.
    read_as: ClassVar[dict[str, str]]  # What each contribution is, in words.

    def as_json(self) -> dict[str, Any]:
        """The same as plain values, tables as lists of rows."""
        return {
            name: value.to_dicts() if isinstance(value, pl.DataFrame) else value
            for name, value in vars(self).items()
        }

    def __repr__(self) -> str:
        of = "an anonymous user with this history" if self.user is None else f"user {self.user}"
        answer, *more = self._answer()
        lines = [f"{titled(self.item, self.title)} for {of}: {answer}", *more]
        for contribution, interactions, without, change in self.contributions.iter_rows():
            read_as = self.read_as[contribution]
            if interactions is None:
                lines.append(f"Not shown: {read_as}, because {self.too_few} ({contribution}).")
                continue
            lines.append(
                f"{signed(change, 2)} by {read_as} "
                f"({contribution}, {counted(interactions, self.noun)}; {without:.2f} without)"
            )
            lines += self._own() if contribution == CONTRIBUTIONS["items"] else self._others()
        return "\n".join(lines)

    def _own(self) -> list[str]:
        """The largest changes by interactions of the user."""
        rows = self.history.head(SHOWN).iter_rows(named=True)
        lines = [f"  {signed(row['change'], 3)}  {self._interaction(row)}" for row in rows]
        more = self.history.height - SHOWN
        return [*lines, f"  and {more} more in .history"] if more > 0 else lines

    @abstractmethod
    def _answer(self) -> list[str]:
        """What is explained; its first line ends a sentence."""

    def _interaction(self, row: dict[str, Any]) -> str:
        """A row of the history."""
        return titled(row["item"], row["title"])

    def _others(self) -> list[str]:
        """The changes by groups of other users, where they are known."""
        return []


def signed(change: float, digits: int) -> str:
    """A change as it is shown."""
    return f"{round(change, digits) + 0.0:+.{digits}f}"  # no "-0.00"


def titled(item: Any, title: str | None) -> str:
    """An item as it is shown."""
    return f"item {item}" if title is None else f"{title} (item {item})"


def counted(count: int, what: str) -> str:
    """How many there are, in words."""
    return f"{count:,} {what}" + "s" * (count != 1)


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(BaseExplanation):
    """Why the expected rating of an item for a user is what it is.

    Every `change` is the expected rating less what it would be had the model never observed
    something: a positive change raised the prediction. It is exact given the parameters, which were
    learned with it, and no statement about causes. Changes do not add up to the prediction.

    Other users are never named: their ratings of the item are grouped by rating, and a rating that
    fewer than 5 of them gave is folded into its neighbour. Fewer than 5 in all are not shown: their
    change would reveal how a single one of them rated.
    """

    user: Any  # Null for an anonymous user.
    item: Any
    title: str | None
    expected: float
    # item, title, rating, change: what the user rated, the largest changes first, the item itself
    # left out. Empty for a model without IIC, which does not read it.
    history: pl.DataFrame
    # contribution ("IIC": all that the user rated, "UUC": all ratings of the item by others),
    # interactions, expected_without, change; a row per side of the model. UUC is null where there
    # are 1 to 4 other raters.
    contributions: pl.DataFrame
    # rating (as text, a folded group reads "1-2"), raters, change: the other users' ratings of the
    # item, all of one group removed. Empty for a model without UUC, and where there are 1 to 4
    # other raters.
    raters: pl.DataFrame
    distribution: pl.DataFrame  # rating, probability.
    too_few: ClassVar[str] = f"fewer than {FEWEST_RATERS} others rated the item"
    noun: ClassVar[str] = "rating"
    read_as: ClassVar[dict[str, str]] = {
        "IIC": "what the user rated",
        "UUC": "what others rated the item",
    }

    def as_json(self) -> dict[str, Any]:
        """The same as plain values, tables as lists of rows."""
        return {**super().as_json(), "fewest_raters": FEWEST_RATERS}

    def _answer(self) -> list[str]:
        return [
            f"expected rating {self.expected:.2f}",
            "  " + "  ".join(f"{value:g}: {p:.0%}" for value, p in self.distribution.iter_rows()),
        ]

    def _interaction(self, row: dict[str, Any]) -> str:
        return f"rated {row['rating']:g}: {titled(row['item'], row['title'])}"

    def _others(self) -> list[str]:
        return [
            f"  {signed(change, 3)}  {counted(raters, 'user')} who rated it {rating}"
            for rating, raters, change in self.raters.iter_rows()
        ]


def explain(
    state: RatingState,
    profile: UserProfile,
    item: int,
    *,
    user_id: Any,
    item_id: Any,
    item_ids: Lookup,
    titles: Lookup | None,
    scale: LabelScale,
    distributions: Distributions,
) -> Explanation:
    """Explain the predicted rating of an item (an index) for a user profile.

    `user_id` and `item_id` are the external ids, None for an anonymous user; `item_ids` and
    `titles` look up indices of items; `distributions` is `Calibration.distributions`."""
    values_k = scale.values_array()
    found = counterfactuals(state, profile, item, values_k)
    listed = np.append(found.items, np.int32(item))
    names = pl.Series([None] * listed.size, dtype=pl.String) if titles is None else titles(listed)
    ratings_k = np.asarray(scale.values)
    contributions = [
        (name, found.contributions[name]) for name in CONTRIBUTIONS if name in found.contributions
    ]
    others = found.contributions.get("users")
    withheld = others is not None and not may_be_shown(others.interactions)
    groups = [] if withheld else found.groups
    return Explanation(
        user=user_id,
        item=item_id,
        title=names[-1],
        expected=found.expected,
        history=pl.DataFrame(
            {
                "item": item_ids(found.items),
                "title": names[:-1],
                "rating": ratings_k[found.labels],
                "change": found.expected - found.expected_without,
            }
        ).sort(pl.col("change").abs(), "item", descending=[True, False]),
        contributions=pl.DataFrame(
            {
                "contribution": [CONTRIBUTIONS[name] for name, _ in contributions],
                "interactions": [contribution.interactions for _, contribution in contributions],
                "expected_without": [
                    contribution.expected_without for _, contribution in contributions
                ],
                "change": [
                    found.expected - contribution.expected_without
                    for _, contribution in contributions
                ],
            },
            schema_overrides={"interactions": pl.Int64},
        ).with_columns(
            # The user's own ratings are shown, however few.
            pl.when(pl.lit(not withheld) | (pl.col("contribution") != "UUC")).then(
                pl.exclude("contribution")
            )
        ),
        raters=pl.DataFrame(
            {
                "rating": [_rating_text(group, ratings_k) for group in groups],
                "raters": [group.raters for group in groups],
                "change": [found.expected - group.expected_without for group in groups],
            },
            schema={"rating": pl.String, "raters": pl.Int64, "change": pl.Float64},
        ),
        distribution=pl.DataFrame(
            {
                "rating": ratings_k,
                "probability": distributions(found.logits_k[None], values_k)[0],
            },
            schema_overrides={"probability": pl.Float64},
        ),
    )


def _rating_text(group: LabelGroup, ratings_k: np.ndarray) -> str:
    low, high = ratings_k[group.first], ratings_k[group.last]
    if group.first == group.last:
        return f"{low:g}"
    return f"{low:g}-{high:g}" if low >= 0 else f"{low:g} to {high:g}"


@dataclass(frozen=True, eq=False, repr=False)
class RankingExplanation(BaseExplanation):
    """Why the score of an item for a user is what it is.

    The score is the logit that items are ranked by. Every `change` is the score less what it would
    be without something: a positive change raised the item.

    Other users are never named, only counted; fewer than 5 of them are not shown.
    """

    user: Any  # Null for an anonymous user.
    item: Any
    title: str | None
    score: float
    # item, title, change: the user's interactions, the largest changes first, the item itself left
    # out. Empty for a model without IIC, which does not read it.
    history: pl.DataFrame
    # contribution ("IIC": all interactions of the user, "UUC": all interactions of others with the
    # item), interactions, score_without, change; a row per side of the model. UUC is null where
    # there are 1 to 4 other users.
    contributions: pl.DataFrame
    too_few: ClassVar[str] = f"fewer than {FEWEST_RATERS} others interacted with the item"
    noun: ClassVar[str] = "interaction"
    read_as: ClassVar[dict[str, str]] = {
        "IIC": "the user's history",
        "UUC": "the item's other users",
    }

    def as_json(self) -> dict[str, Any]:
        """The same as plain values, tables as lists of rows."""
        return {**super().as_json(), "fewest_users": FEWEST_RATERS}

    def _answer(self) -> list[str]:
        return [f"score {self.score:.2f}"]


def explain_ranking(
    state: RankingState,
    user: int | None,
    history: np.ndarray,
    item: int,
    *,
    user_id: Any,
    item_id: Any,
    item_ids: Lookup,
    titles: Lookup | None,
) -> RankingExplanation:
    """Explain the score of an item (an index) for a user (None: an anonymous user) with this
    history, newest last.

    `user_id` and `item_id` are the external ids, None for an anonymous user; `item_ids` and
    `titles` look up indices of items. An interaction of the user with the item itself is removed
    first, from the history and from the item's sum."""
    others = history != item
    is_observed = user is not None and not others.all()
    rest = history[others]
    if "items" not in state.network.sides:  # the model does not read the history
        rest = rest[:0]
    one_item = np.array([item])
    item_h = state.item_vectors()[item]
    if is_observed:
        item_h = state.item_vectors_without(one_item, np.array([user]))[0]
    each_nh = state.vectors_without_each(
        np.array([0, len(rest)]), rest, None if user is None else np.array([user])
    )
    whole_h, empty_h = (state.vectors_after(one, user)[0] for one in (rest, rest[:0]))
    # The whole context, without each interaction, without the history; without other users.
    users_qh = np.vstack((whole_h, each_nh, empty_h, whole_h))
    items_qh = np.tile(item_h, (len(users_qh), 1))
    items_qh[-1] = state.item_vectors_without(one_item, None)[0]
    scores_q = state.pair_scores(users_qh, items_qh, np.full(len(users_qh), item))
    score, *each, no_history, no_others = scores_q.astype(np.float64).tolist()
    n_others = int(state.support("items")[item]) - is_observed
    contributions: list[tuple[str, int | None, float | None, float | None]] = []
    if "items" in state.network.sides:
        contributions.append(("IIC", len(rest), no_history, score - no_history))
    if "users" in state.network.sides:
        shown = (n_others, no_others, score - no_others)
        contributions.append(("UUC", *(shown if may_be_shown(n_others) else (None, None, None))))
    return RankingExplanation(
        user=user_id,
        item=item_id,
        title=None if titles is None else titles(one_item)[0],
        score=score,
        history=pl.DataFrame(
            {
                "item": item_ids(rest),
                "title": pl.Series([None] * len(rest), dtype=pl.String)
                if titles is None
                else titles(rest),
                "change": score - np.array(each),
            }
        ).sort(pl.col("change").abs(), "item", descending=[True, False]),
        contributions=pl.DataFrame(
            contributions,
            schema={
                "contribution": pl.String,
                "interactions": pl.Int64,
                "score_without": pl.Float64,
                "change": pl.Float64,
            },
            orient="row",
        ),
    )
