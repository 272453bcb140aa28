"""Why an item is ranked as it is: what its score would be if something had never happened.

A behaviour that is left out is left out of time too: those before it are followed by one behaviour
less, as if the history were replayed without it (`kernels.scan.without_each`). The answers are
exact given the parameters, which were learned with it, and no statement about causes. Changes do
not add up, because f is not linear.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import polars as pl

from cfuica.explaining.folding import FEWEST_RATERS, may_tell, too_few
from cfuica.explaining.told import PARTS, Lookup, Told

if TYPE_CHECKING:
    from cfuica.live.ranking_state import RankingState


@dataclass(frozen=True, eq=False, repr=False)
class RankingExplanation(Told):
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
    parts: pl.DataFrame
    """part ("IIC": all that the user did, "UUC": all others who did the item), behaviours,
    score_without, change; the parts that the model has. All of UUC is null where the others are a
    few, but fewer than 5."""
    too_few: ClassVar[str] = too_few("did")
    noun: ClassVar[str] = "behaviour"
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
    """Explain the score of an item (an index) for a user, or for a visitor, who did the items of
    `history`, newest last.

    `user_id` and `item_id` are their external ids, None for a visitor; `item_ids` and `titles`
    look up indices of items. What the user did on the item itself is left out first, of the
    history and of the item's sum.
    """
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
    # With all, without each behaviour, without any; and without what others did.
    users_qh = np.vstack((whole_h, each_nh, empty_h, whole_h))
    items_qh = np.tile(item_h, (len(users_qh), 1))
    items_qh[-1] = state.item_vectors_without(asked, None)[0]
    scores_q = state.pair_scores(users_qh, items_qh, np.full(len(users_qh), item))
    score, each_n, alone, unread = np.split(scores_q.astype(np.float64), [1, -2, -1])
    doers = int(state.support("items")[item]) - did
    parts = [("items", len(rest), float(alone[0]))]
    parts.append(("users", doers, float(unread[0])))
    return RankingExplanation(
        user=user_id,
        item=item_id,
        title=None if titles is None else titles(asked)[0],
        score=float(score[0]),
        history=_history(rest, score - each_n, item_ids, titles),
        parts=_parts(state, parts, float(score[0])),
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


def _parts(state: RankingState, parts: list[tuple[Any, int, float]], score: float) -> pl.DataFrame:
    """A row for each side that the model has; of a few other people nothing is told."""
    rows: list[tuple[str, int | None, float | None, float | None]] = []
    for name, behaviours, without in parts:
        if name not in state.network.sides:
            continue
        # What somebody did may be told, however little.
        if name == "items" or may_tell(behaviours):
            rows.append((PARTS[name], behaviours, without, score - without))
        else:
            rows.append((PARTS[name], None, None, None))
    schema = {
        "part": pl.String,
        "behaviours": pl.Int64,
        "score_without": pl.Float64,
        "change": pl.Float64,
    }
    return pl.DataFrame(rows, schema=schema, orient="row")
