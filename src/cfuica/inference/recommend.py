"""Recommendations: the top k of all items for users or an anonymous user.

`recommend` scores all items in blocks of users, filters them and takes the top k of each user.
`allowed` says which items pass the filters `items`, `exclude`, `min_support` and `where`. `Groups`
holds the limits of `max_per`: how many items with the same metadata a ranked list may have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cfuica.data.matrix import Csr
from cfuica.errors import SettingsError
from cfuica.live.events import History
from cfuica.ops import topk
from cfuica.ops.runtime import run_rows

if TYPE_CHECKING:
    from cfuica.live.live_vocabulary import Catalogue


def by_column(given: Any, rule: str, example: str) -> Mapping[str, Any]:
    """The filter by column of the item metadata; an error where it is no mapping."""
    if not isinstance(given, Mapping):
        raise SettingsError(
            f"{rule} is {given!r}, but it is a dict by columns of the item metadata; give one such "
            f"as {example}."
        )
    return given


def column_of(table: pl.DataFrame | None, name: str, rule: str) -> pl.Series:
    """The column that a filter (`where`, --where, ...) names; an error that lists the columns."""
    if table is None:
        raise SettingsError(
            f"{rule} names the column {name!r}, but this model knows nothing of its items except "
            f"their ids; train it on data with item metadata."
        )
    if name not in table.columns:
        columns = ", ".join(repr(column) for column in table.columns)
        raise SettingsError(
            f"{rule} names the column {name!r}, which the items do not have; they have {columns}."
        )
    return table[name]


# Column of the item metadata -> the value, or several values, of which an item has one.
Where: TypeAlias = Mapping[str, Any]

Mask: TypeAlias = NDArray[np.bool_]


def allowed(
    support_m: NDArray[np.integer],
    *,
    candidates: NDArray[np.integer] | None = None,
    exclude: NDArray[np.integer] | None = None,
    min_support: int = 1,
    table: pl.DataFrame | None = None,
    where: Where | None = None,
) -> Mask:
    """(M,) whether each item may be recommended.

    `support_m` is how many users interacted with each item, `candidates` and `exclude` are item
    indices, `table` is the item metadata, one row per item in index order. An item must pass all
    filters; perhaps none does.
    """
    check_min_support(min_support)
    mask = np.asarray(support_m) >= min_support
    if candidates is not None:
        is_candidate = np.zeros_like(mask)
        is_candidate[candidates] = True
        mask &= is_candidate
    if exclude is not None:
        mask[exclude] = False
    filters = by_column({} if where is None else where, "where", '{"genres": "Comedy"}')
    for name, values in filters.items():
        mask &= matching(column_of(table, name, "where"), values)
    return mask


def check_min_support(min_support: int) -> None:
    """An error unless it is a number of interactions."""
    is_whole = isinstance(min_support, int | np.integer) and not isinstance(min_support, bool)
    if not is_whole or min_support < 0:
        raise SettingsError(
            f"min_support is {min_support!r}, but it is how many ratings there must be: give a "
            f"whole number from 0 upwards."
        )


def matching(column: pl.Series, values: Any) -> Mask:
    """(M,) whether each cell is one of the values; a list matches where it contains one of them."""
    kind = _kind(column, "where")
    wanted = _as_list(values)
    for value in wanted:
        if not kind.holds(value):
            raise SettingsError(
                f"where asks for {value!r} in the column {column.name!r}, which holds "
                f"{kind.plural}; give {kind.plural}, one or several."
            )
    cells = pl.DataFrame({"row": np.arange(len(column)), "cell": column})
    if column.dtype.is_nested():
        cells = cells.explode("cell")
    # Compared as Python compares, where 1999 is 1999.0.
    distinct, wanted_set = cells["cell"].unique(), set(wanted)
    chosen = pl.Series([cell in wanted_set for cell in distinct.to_list()], dtype=pl.Boolean)
    found = cells.join(distinct.filter(chosen).to_frame(), on="cell")
    mask = np.zeros(len(column), np.bool_)
    mask[found["row"].to_numpy()] = True
    return mask


def read_where(table: pl.DataFrame | None, texts: Mapping[str, Iterable[str]]) -> dict[str, Any]:
    """`where` from the texts of --where: each becomes a value of its column's type."""
    where = {}
    for name, several in texts.items():
        kind = _kind(column_of(table, name, "--where"), "--where")
        try:
            where[name] = [kind.read(text) for text in several]
        except ValueError:
            raise SettingsError(
                f"--where asks for {', '.join(several)} in the column {name!r}, which holds "
                f"{kind.plural}; give {kind.plural}, {kind.example}."
            ) from None
    return where


@dataclass(frozen=True)
class _Kind:
    """The type of a column's cells, and how they are written on a command line."""

    plural: str
    example: str
    python: tuple[type, ...]
    read: Callable[[str], Any]

    def holds(self, value: Any) -> bool:
        """Whether a value is of this type; to Python True is a number and a time is a date."""
        if isinstance(value, bool | datetime):
            return type(value) in self.python
        return isinstance(value, self.python)


def _read_number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _read_truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


_TEXT = _Kind("text", "such as Comedy", (str,), str)
_NUMBERS = _Kind("numbers", "such as 1999", (int, float), _read_number)
_TRUTHS = _Kind("true or false", "such as true", (bool,), _read_truth)
_DATES = _Kind("dates", "such as 2024-12-31", (date,), date.fromisoformat)
_TIMES = _Kind("times", "such as 2024-12-31T23:59", (datetime,), datetime.fromisoformat)


def _kind(column: pl.Series, rule: str) -> _Kind:
    """The type of a column's cells, or of what is in them where they are lists."""
    inner = getattr(column.dtype, "inner", column.dtype)
    if inner.is_numeric():
        return _NUMBERS
    # A column without a single value is one of text that matches nothing.
    if inner in (pl.String, pl.Categorical, pl.Enum, pl.Null):
        return _TEXT
    for polars, kind in ((pl.Boolean, _TRUTHS), (pl.Date, _DATES), (pl.Datetime, _TIMES)):
        if inner == polars:
            return kind
    raise SettingsError(
        f"{rule} names the column {column.name!r}, which holds {inner}; items can be chosen by "
        f"columns of text, numbers, dates, or true and false, and by lists of them."
    )


def _as_list(values: Any) -> list[Any]:
    """One value or several, as plain Python values."""
    if isinstance(values, np.generic | np.ndarray | pl.Series):
        values = values.tolist() if not isinstance(values, pl.Series) else values.to_list()
    if isinstance(values, str) or not isinstance(values, Iterable):
        return [values]
    return [value.item() if isinstance(value, np.generic) else value for value in values]


@dataclass(frozen=True, eq=False)
class Groups(Csr):
    """The groups of each of M items, and how many items of each group a ranked list may hold."""

    limits_g: NDArray[np.int64]

    @classmethod
    def none(cls, n_items: int) -> Groups:
        """No item is in a group."""
        return cls(np.zeros(n_items + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.int64))

    @classmethod
    def of(cls, table: pl.DataFrame | None, max_per: Mapping[str, int]) -> Groups:
        """The groups of the columns that `max_per` names, with their limits.

        `table` has one row per item in index order. Items with the same value in a column are a
        group; an item of a list column is in the group of each of its values. Where there is no
        value, the item is in no group.
        """
        items, groups = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        limits: list[int] = []
        for name, limit in by_column(max_per, "max_per", '{"series": 1}').items():
            if isinstance(limit, bool) or not isinstance(limit, int | np.integer) or limit < 1:
                raise SettingsError(
                    f"max_per allows {limit!r} items of the same {name}, but it is the largest "
                    f"number of them that a list may hold: give a whole number from 1 upwards."
                )
            item_e, group_e, count = _same(column_of(table, name, "max_per"))
            items.append(item_e)
            groups.append(group_e + len(limits))
            limits += [min(int(limit), len(item_e))] * count  # no more than there are
        item_e, group_e = np.concatenate(items), np.concatenate(groups)
        n_items = table.height if table is not None else 0
        return cls(
            np.concatenate(([0], np.cumsum(np.bincount(item_e, minlength=n_items)))),
            group_e[np.argsort(item_e, kind="stable")].astype(np.int32),
            np.array(limits, np.int64),
        )


def _same(column: pl.Series) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Item and group of each membership (an item once per group), and the number of groups."""
    cells = pl.DataFrame({"item": np.arange(len(column)), "cell": column})
    if isinstance(column.dtype, pl.List | pl.Array):
        cells = cells.explode("cell")
    by_value = cells.drop_nulls().unique(maintain_order=True)
    by_value = by_value.group_by("cell", maintain_order=True).agg("item").with_row_index("group")
    pairs = by_value.explode("item")
    return (
        pairs["item"].cast(pl.Int64).to_numpy(),
        pairs["group"].cast(pl.Int64).to_numpy(),
        by_value.height,
    )


@dataclass(frozen=True, eq=False)
class Ranking:
    """Ranked lists, row after row and best first; each field is (L,) for L items."""

    rows: NDArray[np.int64]  # The row of the block.
    ranks: NDArray[np.int32]  # From 1 upwards within the row.
    items: NDArray[np.int32]
    scores: NDArray[np.float32]


def top_k(
    scores_bm: NDArray[np.float32],
    n: int,
    *,
    allowed_m: NDArray[np.bool_] | None = None,
    seen_offsets: NDArray[np.int64] | None = None,
    seen_items: NDArray[np.int32] | None = None,
    groups: Groups | None = None,
) -> Ranking:
    """The top n of each row among the allowed items that it has not seen; ties by item index.

    `seen_offsets` (B + 1) and `seen_items` are compressed rows. With `groups` an item whose group
    is full is skipped. A row with fewer such items than n gets fewer; NaN is never among them.
    """
    n_rows, n_items = scores_bm.shape
    candidates = np.arange(n_items) if allowed_m is None else np.flatnonzero(allowed_m)
    groups = groups if groups is not None else Groups.none(n_items)
    if seen_offsets is None or seen_items is None:
        seen_offsets, seen_items = np.zeros(n_rows + 1, np.int64), np.empty(0, np.int32)
    items_bn = np.empty((n_rows, min(n, len(candidates))), np.int32)
    count_b = np.empty(n_rows, np.int64)
    run_rows(
        topk.top_k,
        n_rows,
        scores_bm,
        candidates.astype(np.int32),
        seen_offsets,
        seen_items,
        groups.offsets,
        groups.indices,
        groups.limits_g,
        items_bn,
        count_b,
    )
    rows, places = np.nonzero(np.arange(items_bn.shape[1]) < count_b[:, None])
    items = items_bn[rows, places]
    return Ranking(rows, (places + 1).astype(np.int32), items, scores_bm[rows, items])


# Indices of users, or the ad-hoc history of an anonymous user.
Target: TypeAlias = np.ndarray | History

# Logits that are held at a time, in bytes: bounds the memory for any number of users.
BLOCK_BYTES = 32 << 20


@dataclass(frozen=True)
class Request:
    """The arguments of `Recommender.recommend`, with items by index."""

    n: int
    exclude_seen: bool
    min_support: int
    candidates: np.ndarray | None
    exclude: np.ndarray | None
    where: Mapping[str, Any] | None
    max_per: Mapping[str, int] | None


class ItemScorer(Protocol):
    """What items are ranked by."""

    @property
    def numbers_per_item(self) -> int:
        """How many 32-bit numbers an item takes while it is scored, for each user."""
        ...

    def block(
        self, target: Target, items: np.ndarray, *, seen_too: bool
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """(B, M) float32 scores, of which those of these `items` are valid; and the seen items of
        each.

        Scores of seen items need to be valid only with `seen_too`.
        """
        ...


def recommend(
    catalogue: Catalogue,
    target: Target,
    request: Request,
    scorer: ItemScorer,
    *,
    user_ids: pl.Series | None = None,
) -> pl.DataFrame:
    """user, rank, item, score, title: the top items for users (indices), or for an anonymous user.

    `user_ids` are the external ids of the users; without them the result has no column user.
    """
    table, support_m = catalogue.item_metadata, catalogue.support("items")
    allowed_m = allowed(
        support_m,
        candidates=request.candidates,
        exclude=request.exclude,
        min_support=request.min_support,
        table=table,
        where=request.where,
    )
    # Equal scores are in the order of the ids, new ones included.
    in_order = catalogue.ids["items"].present()
    place_m = np.full(len(support_m), -1, np.int32)
    place_m[in_order] = np.arange(len(in_order), dtype=np.int32)
    groups = None
    if request.max_per:
        groups = Groups.of(None if table is None else table[in_order], request.max_per)
    blocks = [target]
    if isinstance(target, np.ndarray):
        size = max(1, BLOCK_BYTES // (4 * len(support_m) * scorer.numbers_per_item))
        blocks = [target[start : start + size] for start in range(0, len(target), size)]
    found: list[tuple[np.ndarray, ...]] = []
    first = 0
    for block in blocks:
        score_bm, seen = scorer.block(
            block, np.flatnonzero(allowed_m), seen_too=not request.exclude_seen
        )
        if not request.exclude_seen:
            seen = [own[:0] for own in seen]
        top = top_k(
            np.take(score_bm, in_order, axis=1),
            request.n,
            allowed_m=allowed_m[in_order],
            seen_offsets=np.cumsum([0, *map(len, seen)]),
            seen_items=place_m[np.concatenate(seen)],
            groups=groups,
        )
        found.append((first + top.rows, top.ranks, in_order[top.items], top.scores))
        first += len(seen)
    rows, ranks, items, score = (np.concatenate(column) for column in zip(*found, strict=True))
    ids = catalogue.ids["items"].decode(items)
    frame = pl.DataFrame({"rank": ranks, "item": ids, "score": score.astype(np.float64)})
    if user_ids is not None:
        frame = frame.insert_column(0, user_ids.gather(rows).alias("user"))
    if catalogue.titles is not None:
        frame = frame.with_columns(title=catalogue.titles(items))
    return frame
