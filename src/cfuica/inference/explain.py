"""Explanations of a predicted rating or of a ranking score, by external ids and titles.

`explain` says how a prediction would change without each interaction of the user, and without the
interactions of other users. An interaction of the user enters a prediction through the user's
context alone (IIC), one of another user through the item's alone (UUC). Removing it changes that
context, and f and the decoder follow; the other side stays as it is. In a ranking model a removed
interaction leaves the time order too: the history is replayed without it
(`ops.encode.without_each`). The result is what the model would predict had it never observed the
interaction. It holds *given the parameters*, which were learned with the interaction, and it is not
causal. Changes do not add up, because f is not linear.

Other users are never shown one by one: `fold` joins neighbouring labels until each group has at
least `FEWEST_RATERS` raters.

Shape suffixes: n interactions, g groups of labels, q contexts with something removed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from cfuica.data.columns import rows_of
from cfuica.live.contexts import ExactSums
from cfuica.model.network import expected_rating
from cfuica.ops.tables import SIDES, Pairs

if TYPE_CHECKING:
    from cfuica.live.contexts import UserProfile
    from cfuica.live.interactions import History
    from cfuica.live.live_model import LiveModel
    from cfuica.live.live_state import LiveState
    from cfuica.ops.tables import SideName
CONTRIBUTIONS: dict[SideName, str] = {"items": "IIC", "users": "UUC"}
SHOWN = 5  # Interactions of the history that are shown where all cannot be.
# A smaller group of users is not shown, so that no single user's rating can be inferred.
FEWEST_RATERS = 5


def fold(counts_k: NDArray[np.integer]) -> list[int]:
    """The first label of each group of neighbouring labels, ascending; the first is label 0.

    `counts_k` (K) are the raters of each label. Every group has at least `FEWEST_RATERS` of them,
    or there is one group only. The smallest group is folded first, into the smaller one of its
    neighbours; of equal ones, the one with lower labels.
    """
    starts = list(range(len(counts_k)))
    counts = [int(count) for count in counts_k]
    while len(counts) > 1 and min(counts) < FEWEST_RATERS:
        at = counts.index(min(counts))
        neighbours = [place for place in (at - 1, at + 1) if 0 <= place < len(counts)]
        into = min(neighbours, key=lambda place: counts[place])
        lower, upper = min(at, into), max(at, into)
        counts[lower] += counts.pop(upper)
        starts.pop(upper)
    return starts


def may_be_shown(users: int) -> bool:
    """Whether the effect of so many other users may be shown: of none, or of enough."""
    return not 0 < users < FEWEST_RATERS


@dataclass(frozen=True, eq=False)
class Counterfactuals:
    """The logits of one pair, and what they would be without parts of its context.

    For each side (Q, K): with all of its interactions, then without each interaction of the history
    (items side) or each group of raters (users side), then without any. A side that the network
    does not have leaves one row, that of the whole context.
    """

    logits: dict[SideName, NDArray[np.float32]]
    # (n,) the history that the items side reads; empty where the network has none.
    items: NDArray[np.int32]
    labels: NDArray[np.uint8]  # (n,)
    # The other users who gave the item a label: (first label, last label, how many) of each group;
    # none where the network has no users side.
    groups: list[tuple[int, int, int]]
    interactions: dict[SideName, int]  # Of each side that the network has.


def counterfactuals(state: LiveState, profile: UserProfile, item: int) -> Counterfactuals:
    """The counterfactuals of one pair.

    An interaction of the pair itself is removed first, from the history and from the raters.
    """
    profile = state.without(profile, item)
    hidden: dict[SideName, Tensor] = {}
    interactions: dict[SideName, int] = {}
    groups: list[tuple[int, int, int]] = []
    items, labels = profile.items, profile.labels
    if "users" in state.contexts:
        users, given = state.history("items", item)
        others = users != (-1 if profile.user is None else profile.user)
        users, given = users[others], given[others]
        counts_k = np.bincount(given, minlength=state.n_labels)
        bounds = [*fold(counts_k), state.n_labels]
        groups = [(low, end - 1, int(counts_k[low:end].sum())) for low, end in pairwise(bounds)]
        context = state.contexts["users"]
        assert isinstance(context, ExactSums)
        hidden["users"] = _without_groups(context, users, given, bounds)
        interactions["users"] = len(users)
    if "items" in state.contexts:
        hidden["items"] = _without_each(state, profile)
        interactions["items"] = len(items)
    else:  # the network does not read the history
        items, labels = items[:0], labels[:0]
    logits = _logits(state, profile, item, hidden)
    if "items" in hidden:
        # A cold-start user's own bias, each from the history without the interaction.
        bias_qk = state.own_bias(profile, np.arange(-1, len(items)))
        nothing = np.zeros((1, state.n_labels), np.float32)  # without any interaction
        logits["items"] += np.concatenate((bias_qk, nothing))
        logits["users"] += bias_qk[:1]
    return Counterfactuals(logits, items, labels, groups, interactions)


def _without_each(state: LiveState, profile: UserProfile) -> Tensor:
    """Hidden vectors of the user (n + 2, H): with all, without each interaction, without any."""
    context = state.contexts["items"]
    nothing_h = context.sums_of(profile.items[:0], profile.labels[:0])
    ends_2h = context.hidden_of(
        np.stack((profile.sums_h, nothing_h)), np.array([len(profile.items), 0])
    )
    return torch.cat((ends_2h[:1], context.hidden_without_each(profile), ends_2h[1:]))


def _without_groups(
    context: ExactSums, users: NDArray[np.int32], labels: NDArray[np.uint8], bounds: list[int]
) -> Tensor:
    """Hidden vectors of the item (G + 2, H): with all, without each group, without any."""
    order = np.argsort(labels, kind="stable")
    users, labels = users[order], labels[order]
    # Label by label, and the last bound is beyond all labels.
    offsets = labels.searchsorted(bounds)
    taken_gh = context.sums_of_rows(offsets, users, labels)
    sums_h = taken_gh.sum(0)
    sums_qh = np.vstack((sums_h, sums_h - taken_gh, np.zeros_like(sums_h)))
    sizes = np.concatenate(([users.size], users.size - np.diff(offsets), [0]))
    return context.hidden_of(sums_qh, sizes)


def _logits(
    state: LiveState, profile: UserProfile, item: int, hidden: dict[SideName, Tensor]
) -> dict[SideName, NDArray[np.float32]]:
    """For each side the logits (Q, K) of its hidden vectors (Q, H) in turn; the other side's vector
    is its first one, with all its interactions."""
    items_q, users_q = (
        np.arange(len(hidden[name]) if name in hidden else 1, dtype=np.int32) for name in SIDES
    )
    pairs = Pairs.between(
        np.full(users_q.size, profile.row, np.int32),
        np.full(items_q.size, state.rows("items")[item], np.int32),
        np.concatenate((np.zeros_like(items_q), users_q)),
        np.concatenate((items_q, np.zeros_like(users_q))),
    )
    logits_pk = state.logits(pairs, hidden)
    return {"users": logits_pk[: items_q.size], "items": logits_pk[items_q.size :]}


@dataclass(frozen=True, eq=False, repr=False)
class BaseExplanation(ABC):
    """What explanations of both tasks have: the history, and the contribution of each side."""

    user: Any  # Null for an anonymous user.
    item: Any
    title: str | None
    # item, title, of ratings also rating, change: the user's interactions, the largest changes
    # first, the item itself left out. Empty for a model without IIC, which does not read it.
    history: pl.DataFrame
    # contribution ("IIC": all interactions of the user, "UUC": all interactions of others with the
    # item), interactions, expected_without or score_without, change; a row per side of the model.
    # UUC is null where there are 1 to 4 other users.
    contributions: pl.DataFrame
    sequence: int  # How many changes the model knew; see `Recommender.sequence`.
    fewest: ClassVar[str]  # What the fewest other users that are shown are called in JSON.
    too_few: ClassVar[str]  # Why other users are not shown, where that is so.
    noun: ClassVar[str]  # What an interaction is called.
    read_as: ClassVar[dict[str, str]]  # What each contribution is, in words.

    def as_json(self) -> dict[str, Any]:
        """The same as plain values, tables as lists of rows."""
        values = {
            name: value.to_dicts() if isinstance(value, pl.DataFrame) else value
            for name, value in vars(self).items()
        }
        return {**values, self.fewest: FEWEST_RATERS}

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

    expected: float
    # rating (as text, a folded group reads "1-2"), raters, change: the other users' ratings of the
    # item, all of one group removed. Empty for a model without UUC, and where there are 1 to 4
    # other raters.
    raters: pl.DataFrame
    distribution: pl.DataFrame  # rating, probability.
    fewest: ClassVar[str] = "fewest_raters"
    too_few: ClassVar[str] = f"fewer than {FEWEST_RATERS} others rated the item"
    noun: ClassVar[str] = "rating"
    read_as: ClassVar[dict[str, str]] = {
        "IIC": "what the user rated",
        "UUC": "what others rated the item",
    }

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


@dataclass(frozen=True, eq=False, repr=False)
class RankingExplanation(BaseExplanation):
    """Why the score of an item for a user is what it is.

    The score is the logit that items are ranked by. Every `change` is the score less what it would
    be without something: a positive change raised the item.

    Other users are never named, only counted; fewer than 5 of them are not shown.
    """

    score: float
    fewest: ClassVar[str] = "fewest_users"
    too_few: ClassVar[str] = f"fewer than {FEWEST_RATERS} others interacted with the item"
    noun: ClassVar[str] = "interaction"
    read_as: ClassVar[dict[str, str]] = {
        "IIC": "the user's history",
        "UUC": "the item's other users",
    }

    def _answer(self) -> list[str]:
        return [f"score {self.score:.2f}"]


def explain(
    live: LiveModel, target: int | History, item: int, *, user_id: Any, item_id: Any
) -> BaseExplanation:
    """Explain the predicted rating or the score of an item for a user, both by index, or for an
    anonymous user with a history.

    `user_id` and `item_id` are the external ids, None for an anonymous user."""
    own = target if isinstance(target, int) else live.ids["users"].unknown_index
    name = live.network_for(own, item)
    state, scale = live.states[name], live.scale
    if isinstance(target, int):
        profile = state.profile(target)
    else:
        profile = state.anonymous(target.items, target.labels)
    found = counterfactuals(state, profile, item)

    def values(logits_qk: NDArray[np.float32]) -> NDArray[np.float64]:
        if scale is None:
            value_q = state.scores(logits_qk, np.full(1, profile.row))
        else:
            value_q = expected_rating(logits_qk[None], scale.values_array())[0]
        # In float64, so that differences of these numbers are not rounded once more.
        return value_q.astype(np.float64)

    value = {side: values(logits_qk) for side, logits_qk in found.logits.items()}
    whole = float(value["users"][0])
    shows_others = may_be_shown(found.interactions.get("users", 0))
    contributions: list[tuple[str, int | None, float | None, float | None]] = []
    for side, contribution in CONTRIBUTIONS.items():
        if side in found.interactions:
            nothing = float(value[side][-1])
            # The user's own interactions are shown, however few.
            is_shown = shows_others or side == "items"
            shown = (found.interactions[side], nothing, whole - nothing)
            contributions.append((contribution, *(shown if is_shown else (None, None, None))))
    n, titles = len(found.items), live.titles
    history = {
        "item": live.ids["items"].decode(found.items),
        "title": pl.Series([None] * n, dtype=pl.String) if titles is None else titles(found.items),
        **({} if scale is None else {"rating": np.asarray(scale.values)[found.labels]}),
        "change": whole - value["items"][1 : n + 1],
    }
    common: dict[str, Any] = {
        "user": user_id,
        "item": item_id,
        "title": None if titles is None else titles(np.array([item]))[0],
        "history": rows_of(pl.DataFrame(history), _by_change(history)),
        "contributions": pl.DataFrame(
            contributions,
            schema={
                "contribution": pl.String,
                "interactions": pl.Int64,
                "score_without" if scale is None else "expected_without": pl.Float64,
                "change": pl.Float64,
            },
            orient="row",
        ),
        "sequence": live.sequence,
    }
    if scale is None:
        return RankingExplanation(**common, score=whole)
    values_k, ratings_k = scale.values_array(), np.asarray(scale.values)
    groups = (
        zip(found.groups, (whole - value["users"][1:-1]).tolist(), strict=True)
        if shows_others
        else ()
    )
    distributions = live.artifact.calibration(name).distributions
    return Explanation(
        **common,
        expected=whole,
        raters=pl.DataFrame(
            [(_rating_text(*group[:2], ratings_k), group[2], change) for group, change in groups],
            schema={"rating": pl.String, "raters": pl.Int64, "change": pl.Float64},
            orient="row",
        ),
        distribution=pl.DataFrame(
            {
                "rating": ratings_k,
                "probability": distributions(found.logits["users"][:1], values_k)[0],
            },
            schema_overrides={"probability": pl.Float64},
        ),
    )


def _by_change(history: dict[str, Any]) -> np.ndarray:
    """The order of the interactions: the largest change first, equal ones by the id of the item."""
    size, ids = np.abs(history["change"]).tolist(), history["item"].to_list()
    return np.array(sorted(range(len(ids)), key=lambda row: (-size[row], ids[row])), np.int64)


def _rating_text(first: int, last: int, ratings_k: np.ndarray) -> str:
    low, high = ratings_k[first], ratings_k[last]
    if first == last:
        return f"{low:g}"
    return f"{low:g}-{high:g}" if low >= 0 else f"{low:g} to {high:g}"
