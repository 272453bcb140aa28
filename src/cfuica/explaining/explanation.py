"""An explanation as its reader meets it: external ids, titles, ratings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import polars as pl

from cfuica.explaining.counterfactual import LabelGroup, counterfactuals
from cfuica.explaining.folding import FEWEST_RATERS, may_tell, too_few
from cfuica.explaining.told import PARTS, Lookup, Told, counted, signed, titled

if TYPE_CHECKING:
    from cfuica.data.labels import LabelScale
    from cfuica.live.person import Person
    from cfuica.live.state import LiveState
    from cfuica.recommending.scores import Distributions


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(Told):
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
    parts: pl.DataFrame
    """part ("IIC": all that the user rated, "UUC": all ratings of the item by others), behaviours,
    expected_without, change; the parts that the model has. All of UUC is null where the others are
    a few, but fewer than 5."""
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

    def _behaviour(self, row: dict[str, Any]) -> str:
        return f"rated {row['rating']:g}: {titled(row['item'], row['title'])}"

    def _others(self) -> list[str]:
        return [
            f"  {signed(change, 3)}  {counted(raters, 'user')} who rated it {rating}"
            for rating, raters, change in self.raters.iter_rows()
        ]


def explain(
    state: LiveState,
    person: Person,
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

    `user_id` and `item_id` are their external ids, None for a visitor; `item_ids` and `titles`
    look up indices of items; `distributions` is `Calibration.distributions`.
    """
    values_k = scale.values_array()
    found = counterfactuals(state, person, item, values_k)
    listed = np.append(found.items, np.int32(item))
    names = pl.Series([None] * listed.size, dtype=pl.String) if titles is None else titles(listed)
    ratings_k = np.asarray(scale.values)
    parts = [(name, found.parts[name]) for name in PARTS if name in found.parts]
    others = found.parts.get("users")
    may_be_told = others is None or may_tell(others.behaviours)
    # Somebody's own ratings may be told, however few.
    withheld = [name == "users" and not may_be_told for name, _ in parts]
    groups = found.groups if may_be_told else []
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
        parts=pl.DataFrame(
            {
                "part": [PARTS[name] for name, _ in parts],
                "behaviours": [part.behaviours for _, part in parts],
                "expected_without": [part.expected_without for _, part in parts],
                "change": [found.expected - part.expected_without for _, part in parts],
            },
            schema_overrides={"behaviours": pl.Int64},
        ).with_columns(
            pl.when(~pl.lit(pl.Series(withheld, dtype=pl.Boolean))).then(pl.exclude("part"))
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
                "probability": distributions(found.activation_k[None], values_k)[0],
            },
            schema_overrides={"probability": pl.Float64},
        ),
    )


def _rating_text(group: LabelGroup, ratings_k: np.ndarray) -> str:
    low, high = ratings_k[group.first], ratings_k[group.last]
    if group.first == group.last:
        return f"{low:g}"
    return f"{low:g}-{high:g}" if low >= 0 else f"{low:g} to {high:g}"
