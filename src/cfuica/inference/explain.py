"""What every explanation tells, of a rating or of a score.

An explanation as its reader meets it: external ids, titles, ratings.

Why an item is ranked as it is: what its score would be if something had never happened.

An interaction that is left out is left out of time too: those before it are followed by one
interaction less, as if the history were replayed without it (`kernels.scan.without_each`). The
answers are exact given the parameters, which were learned with it, and no statement about causes.
Changes do not add up, because f is not linear."""

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
    may_tell,
    too_few,
)

if TYPE_CHECKING:
    from cfuica.data.labels import LabelScale
    from cfuica.inference.scores import Distributions
    from cfuica.live.events import UserProfile
    from cfuica.live.ranking_state import RankingState
    from cfuica.live.rating_state import LiveState
    from cfuica.model.pairs import SideName
Lookup: TypeAlias = Callable[[np.ndarray], pl.Series]
"""(n,) indices to a column of n: `Vocabulary.decode` is one."""

CONTRIBUTIONS: dict[SideName, str] = {"items": "IIC", "users": "UUC"}
SHOWN = 5
"""Interactions of the history that are shown where all cannot be."""


class BaseExplanation(ABC):
    """What an answer is made of: the history, and the parts."""

    user: Any
    item: Any
    title: str | None
    history: pl.DataFrame
    contributions: pl.DataFrame
    too_few: ClassVar[str]
    """Why nothing is told of others, where that is so."""
    noun: ClassVar[str]
    """What a part has many of."""
    read_as: ClassVar[dict[str, str]]
    """What each part is, in words."""

    def as_json(self) -> dict[str, Any]:
        """The same as plain values, tables as lists of rows."""
        return {
            name: value.to_dicts() if isinstance(value, pl.DataFrame) else value
            for name, value in vars(self).items()
        }

    def __repr__(self) -> str:
        of = "somebody with this history" if self.user is None else f"user {self.user}"
        answer, *more = self._answer()
        lines = [f"{titled(self.item, self.title)} for {of}: {answer}", *more]
        for contribution, interactions, without, change in self.contributions.iter_rows():
            read_as = self.read_as[contribution]
            if interactions is None:
                lines.append(
                    f"{read_as.capitalize()} is not told: {self.too_few} ({contribution})."
                )
                continue
            lines.append(
                f"{signed(change, 2)} by {read_as} "
                f"({contribution}, {counted(interactions, self.noun)}; {without:.2f} without)"
            )
            lines += self._own() if contribution == CONTRIBUTIONS["items"] else self._others()
        return "\n".join(lines)

    def _own(self) -> list[str]:
        """The largest changes by what the user did."""
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
        """What more there is to say of others."""
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

    Every `change` is the expected rating less what it would be without something: where it is
    positive, that raised the prediction. It is the answer that the model would give if that had
    never been observed: exact given the parameters, which were learned with it, and no statement
    about causes. Changes do not add up to the prediction.

    Other users are never named: their ratings of the item are told by rating, and a rating that
    fewer than 5 of them gave is folded into its neighbour. Where there are fewer than 5 in all,
    nothing is told of them: what they change would say how a single one of them rated.
    """

    user: Any
    """Null for somebody with a history of their own who is not stored."""
    item: Any
    title: str | None
    expected: float
    history: pl.DataFrame
    """item, title, rating, change: what the user rated, the largest changes first, the item itself
    left out. Empty for a model without IIC, which does not read it."""
    contributions: pl.DataFrame
    """part ("IIC": all that the user rated, "UUC": all ratings of the item by others),
    interactions, expected_without, change; the parts that the model has. All of UUC is null where
    the others are a few, but fewer than 5."""
    raters: pl.DataFrame
    """rating (as text, a folded group reads "1-2"), raters, change: the other users' ratings of
    the item, all of one group taken out. Empty for a model without UUC, and where the others are a
    few, but fewer than 5."""
    distribution: pl.DataFrame
    """rating, probability."""
    too_few: ClassVar[str] = too_few("rated")
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
    state: LiveState,
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
    """Explain what the state predicts of a person and an item (an index).

    `user_id` and `item_id` are their external ids, None for an anonymous user; `item_ids` and
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
    may_be_shown = others is None or may_tell(others.interactions)
    # Somebody's own ratings may be told, however few.
    withheld = [name == "users" and not may_be_shown for name, _ in contributions]
    groups = found.groups if may_be_shown else []
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
            pl.when(~pl.lit(pl.Series(withheld, dtype=pl.Boolean))).then(pl.exclude("contribution"))
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

    The score is the activation (logit) that items are ranked by. Every `change` is the score less
    what it would be if something had never happened: where it is positive, that raised the item.

    Other users are never named, only counted; of fewer than 5 of them nothing is told.
    """

    user: Any
    """Null for somebody with a history of their own who is not stored."""
    item: Any
    title: str | None
    score: float
    history: pl.DataFrame
    """item, title, change: what the user did, the largest changes first, the item itself left out.
    Empty for a model without IIC, which does not read it."""
    contributions: pl.DataFrame
    """part ("IIC": all that the user did, "UUC": all others who did the item), interactions,
    score_without, change; the parts that the model has. All of UUC is null where the others are a
    few, but fewer than 5."""
    too_few: ClassVar[str] = too_few("did")
    noun: ClassVar[str] = "interaction"
    read_as: ClassVar[dict[str, str]] = {
        "IIC": "what the user did",
        "UUC": "who else did the item",
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
    """Explain the score of an item (an index) for a user, or for an anonymous user, who did the
    items of `history`, newest last.

    `user_id` and `item_id` are their external ids, None for an anonymous user; `item_ids` and
    `titles` look up indices of items. What the user did on the item itself is left out first, of
    the history and of the item's sum."""
    others = history != item
    did = user is not None and not others.all()
    rest = history[others]
    if "items" not in state.network.sides:  # nothing is read of the history
        rest = rest[:0]
    asked = np.array([item])
    item_h = state.item_vectors()[item]
    if did:
        item_h = state.item_vectors_without(asked, np.array([user]))[0]
    each_nh = state.vectors_without_each(
        np.array([0, len(rest)]), rest, None if user is None else np.array([user])
    )
    whole_h, empty_h = (state.vectors_after(one, user)[0] for one in (rest, rest[:0]))
    # With all, without each interaction, without any; and without what others did.
    users_qh = np.vstack((whole_h, each_nh, empty_h, whole_h))
    items_qh = np.tile(item_h, (len(users_qh), 1))
    items_qh[-1] = state.item_vectors_without(asked, None)[0]
    scores_q = state.pair_scores(users_qh, items_qh, np.full(len(users_qh), item))
    score, each_n, alone, unread = np.split(scores_q.astype(np.float64), [1, -2, -1])
    doers = int(state.support("items")[item]) - did
    contributions = [("items", len(rest), float(alone[0]))]
    contributions.append(("users", doers, float(unread[0])))
    return RankingExplanation(
        user=user_id,
        item=item_id,
        title=None if titles is None else titles(asked)[0],
        score=float(score[0]),
        history=_history(rest, score - each_n, item_ids, titles),
        contributions=_contributions(state, contributions, float(score[0])),
    )


def _history(
    items: np.ndarray, changes_n: np.ndarray, item_ids: Lookup, titles: Lookup | None
) -> pl.DataFrame:
    nameless = pl.Series([None] * len(items), dtype=pl.String)
    columns = {
        "item": item_ids(items),
        "title": nameless if titles is None else titles(items),
        "change": changes_n,
    }
    return pl.DataFrame(columns).sort(pl.col("change").abs(), "item", descending=[True, False])


def _contributions(
    state: RankingState, contributions: list[tuple[Any, int, float]], score: float
) -> pl.DataFrame:
    """A row for each side that the model has; of a few other people nothing is told."""
    rows: list[tuple[str, int | None, float | None, float | None]] = []
    for name, interactions, without in contributions:
        if name not in state.network.sides:
            continue
        # What somebody did may be told, however little.
        if name == "items" or may_tell(interactions):
            rows.append((CONTRIBUTIONS[name], interactions, without, score - without))
        else:
            rows.append((CONTRIBUTIONS[name], None, None, None))
    schema = {
        "contribution": pl.String,
        "interactions": pl.Int64,
        "score_without": pl.Float64,
        "change": pl.Float64,
    }
    return pl.DataFrame(rows, schema=schema, orient="row")
