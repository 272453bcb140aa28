"""`DataSplit`: the train, validation and test tables of a run; and the request for a split.

`SplitRequest` holds the options of a split as the command line gives them. Its `splitter` makes a
`DataSplit` of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cfuica.data.columns import date_of, seconds_of
from cfuica.data.splits import FULL, GIVEN, USERS, Split, other_test_rows, time_of_the_last
from cfuica.data.table import Interactions
from cfuica.errors import DataError, SettingsError

_LATER_ROW = "the later row in the file is later"
# Of a held-out user's interactions, the share that a ranking is tested on.
TESTED_SHARE = 0.2
_SAME_SET = "interactions of one second are never separated; they go to the later set"


@dataclass(frozen=True)
class DataSplit:
    """Train, validation and test set; `whole` has the vocabularies of all of them.

    Cold-start users and items of the test set stay in it: leaving them out would make the test
    easier than practice. `description` counts them (`cold_users`, `cold_items`).
    """

    whole: Interactions
    train: Interactions
    valid: Interactions | None
    test: Interactions | None
    # The kind of split, its parameters, its hash, and how many in the test set are cold.
    description: dict[str, Any]
    # Remarks on the split for readers of its metrics, one sentence each.
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        sets = {"train": self.train, "valid": self.valid, "test": self.test}
        sizes = (f"{name} {table.n:,}" for name, table in sets.items() if table is not None)
        return f"DataSplit({self.description.get('kind')}: {', '.join(sizes)} interactions)"

    @classmethod
    def random(
        cls, table: Interactions, *, folds: int, fold: int, valid: float, seed: int
    ) -> DataSplit:
        """The protocol of Table 1: a fold to test on, a share of the rest to validate on."""
        options: Any = {"folds": folds, "fold": fold, "valid": valid, "seed": seed}
        return cls.of_split(table, Split.random(table.n, **options), kind="random", **options)

    @classmethod
    def everything(cls, table: Interactions, *, valid: float, seed: int) -> DataSplit:
        """All interactions to train on, except a share to validate on; no test set."""
        split = Split.without_test(table.n, valid=valid, seed=seed)
        return cls.of_split(table, split, kind="none", valid=valid, seed=seed)

    @classmethod
    def leave_one_out(cls, table: Interactions, *, protocols: bool = False) -> DataSplit:
        """Each user's last interaction to test on, the one before it to validate on.

        With `protocols` the test set has the test interactions of the other ranking protocols too,
        which break ties in time differently, so that none of them is trained or validated on. It
        then has a boolean column for each protocol: whether the protocol tests the row.
        """
        users, times, notes = _user_of_row(table), None, []
        description: dict[str, Any] = {"kind": "leave-one-out", "order": "file", "ties": "none"}
        if table.has_times:
            times = _times(table)
            description |= {"order": "time", "ties": _LATER_ROW}
        else:
            notes.append(
                f"{table.source} has no timestamps: the order of its rows was taken for the order "
                f"in time."
            )
        split = Split.leave_one_out(users, times)
        if not protocols:
            return cls.of_split(table, split, notes, **description)
        tested = {FULL: split.test, **other_test_rows(table)}
        split = Split.leave_one_out(users, times, also=np.concatenate(list(tested.values())))
        tests = {name: np.isin(split.test, rows) for name, rows in tested.items()}
        description["protocols"] = {name: int(rows.sum()) for name, rows in tests.items()}
        if not all(rows.all() for rows in tests.values()):
            notes.append(
                f"{split.test.size:,} interactions are set aside for the test, so that it can be "
                f"by protocol {' or '.join(tests)}: of equal times these do not always take the "
                f"same one for a user's last."
            )
        data_split = cls.of_split(table, split, notes, **description)
        assert data_split.test is not None
        columns = [pl.Series(name, rows) for name, rows in tests.items()]
        test = replace(data_split.test, frame=data_split.test.frame.with_columns(columns))
        return replace(data_split, test=test)

    @classmethod
    def by_date(
        cls,
        table: Interactions,
        *,
        test_from: int | None = None,
        test_share: float = 0.1,
        valid: float,
    ) -> DataSplit:
        """Interactions from a time (seconds since 1970) on to test on, else the last share.

        The last share of the earlier ones to validate on.
        """
        if not table.has_times:
            raise DataError(
                f"{table.source} has no timestamps, but a split by date needs them; give a column "
                f"'timestamp', or use another split."
            )
        times = _times(table)
        share = {}
        if test_from is None:
            share = {"test_share": test_share}
            test_from = time_of_the_last(test_share, times)
        split = Split.by_date(times, test_from=test_from, valid=valid)
        described: Any = {
            **share,
            "test_from": date_of(test_from),
            "valid": valid,
            "ties": _SAME_SET,
        }
        return cls.of_split(table, split, kind="date", **described)

    @classmethod
    def cold_start(
        cls,
        table: Interactions,
        *,
        test_share: float,
        valid: float,
        seed: int,
        protocols: bool = False,
    ) -> DataSplit:
        """A share of the users to test on; a share of the other interactions to validate on.

        With `protocols` the test set has a boolean column for the ranking protocol: it tests the
        last fifth of each user's interactions, at least one, and the model is given the others.
        """
        options: Any = {"test_share": test_share, "valid": valid, "seed": seed}
        split = Split.cold_start(_user_of_row(table), **options)
        data_split = cls.of_split(table, split, kind=USERS, **options)
        if not protocols:
            return data_split
        assert data_split.test is not None
        place = pl.int_range(1, pl.len() + 1)
        if table.has_times:
            place = pl.col("timestamp").rank("ordinal")
        tested = pl.max_horizontal(1, (pl.len() * TESTED_SHARE).floor())
        last = (place > pl.len() - tested).over("user").alias(USERS)
        test = replace(data_split.test, frame=data_split.test.frame.with_columns(last))
        return replace(data_split, test=test)

    @classmethod
    def given(
        cls,
        train: Interactions,
        test: Interactions,
        valid_set: Interactions | None = None,
        *,
        valid: float,
        seed: int,
        rated: bool = True,
    ) -> DataSplit:
        """A split made elsewhere; the vocabularies have the ids of all tables.

        Without a validation set, a share `valid` of the training set is one. With `rated` each
        table needs ratings.
        """
        sets = [train, test] if valid_set is None else [train, test, valid_set]
        train, test, *others = sets = _alike(*sets)
        if others:
            hashes = {"sha256": train.sha256(), "valid_sha256": others[0].sha256()}
            rest = cls(train, train, others[0], None, hashes)
        else:
            rest = cls.everything(train, valid=valid, seed=seed)
        description = {**rest.description, "kind": GIVEN, "test_sha256": test.sha256()}
        whole = _joined(sets, rated=rated)
        return replace(rest, whole=whole, test=test, description=description)._with_cold_counted()

    @classmethod
    def of_split(
        cls, table: Interactions, split: Split, notes: Iterable[str] = (), **description: Any
    ) -> DataSplit:
        """The tables of a split's row numbers."""
        return cls(
            whole=table,
            train=table.take(split.train),
            valid=table.take(split.valid) if split.valid.size else None,
            test=table.take(split.test) if split.test.size else None,
            description={**description, "sha256": split.sha256()},
            notes=tuple(notes),
        )._with_cold_counted()

    def widened(self, tables: Iterable[Interactions]) -> DataSplit:
        """The same sets, with the ids of the interactions without ratings in `tables`."""
        schema = self.whole.frame.schema
        implicit = [
            table.frame.filter(pl.col("rating").is_null()).select(schema.names()).cast(schema)
            for table in tables
        ]
        frame = pl.concat([self.whole.frame, *implicit])
        frame = frame.unique(["user", "item"], keep="first", maintain_order=True)
        return replace(self, whole=replace(self.whole, frame=frame))

    def _with_cold_counted(self) -> DataSplit:
        if self.test is None:
            return self
        users, items = (_unseen(role, self.train, self.test) for role in ("user", "item"))
        note = (
            f"{users:,} users and {items:,} items of the test set have no interaction in the "
            f"training set; they stay in the test."
        )
        return replace(
            self,
            description={**self.description, "cold_users": users, "cold_items": items},
            notes=(*self.notes, note) if users or items else self.notes,
        )


def split_targets(table: Interactions, split: Callable[[Interactions], DataSplit]) -> DataSplit:
    """The split of the interactions that are targets; those that are context only are trained on.

    Of a split in time, context from the user's first held-out interaction on is left out, and with
    a border, all from there on. So is the context of held-out users.
    """
    if "weight" not in table.frame.columns or (table.frame["weight"] > 0).all():
        return split(table)
    is_target = table.frame["weight"] > 0
    if not is_target.any():
        raise DataError(f"All interactions of {table.source} are context only; see --targets.")
    data_split = split(replace(table, frame=table.frame.filter(is_target)))
    kind, time = data_split.description["kind"], "timestamp" if table.has_times else "row"
    rows = table.frame.with_row_index("row")
    sets = [each.frame for each in (data_split.valid, data_split.test) if each is not None]
    held = pl.concat([each.select("user", "item") for each in sets]) if sets else None
    if held is not None:
        held = held.join(rows, on=["user", "item"])
        if kind == "date":
            rows = rows.filter((pl.col("weight") > 0) | (pl.col(time) < held[time].min()))
        elif kind == "leave-one-out":
            first = held.group_by("user").agg(pl.col(time).min().alias("first"))
            rows = rows.join(first, on="user", how="left", maintain_order="left")
            is_before = (pl.col(time) < pl.col("first")).fill_null(True)
            rows = rows.filter((pl.col("weight") > 0) | is_before).drop("first")
        elif kind == "users" and data_split.test is not None:
            users = data_split.test.frame["user"].unique().implode()
            rows = rows.filter((pl.col("weight") > 0) | ~pl.col("user").is_in(users))
        rows = rows.join(held, on=["user", "item"], how="anti", maintain_order="left")
    train = replace(table, frame=rows.drop("row"))
    return replace(data_split, whole=table, train=train)


def _user_of_row(table: Interactions) -> NDArray[np.int32]:
    return table.users.encode(table.frame["user"])


def _times(table: Interactions) -> NDArray[np.int64]:
    return table.frame["timestamp"].to_numpy()


def _unseen(role: str, train: Interactions, test: Interactions) -> int:
    """How many distinct ids of the test set are not in the training set."""
    seen = train.frame.select(role).unique()
    return test.frame.select(role).unique().join(seen, on=role, how="anti").height


def _alike(*tables: Interactions) -> list[Interactions]:
    """The tables with ids of the same type; integers of different widths become Int64."""
    for role in ("user", "item"):
        types = [table.frame[role].dtype for table in tables]
        if len(set(types)) == 1:
            continue
        stated = " and ".join(
            f"{kind} in {table.source}" for kind, table in zip(types, tables, strict=True)
        )
        if not all(kind.is_integer() for kind in types):
            raise DataError(f"The {role} ids are {stated}; write them alike in both.")
        try:
            tables = tuple(_as_int64(role, table) for table in tables)
        except pl.exceptions.InvalidOperationError:
            raise DataError(
                f"The {role} ids are {stated}, and not all of them are Int64; write them alike in "
                f"both."
            ) from None
    return list(tables)


def _as_int64(role: str, table: Interactions) -> Interactions:
    space = table.item_space
    if role == "item" and space is not None:
        space = space.cast(pl.Int64)
    frame = table.frame.with_columns(pl.col(role).cast(pl.Int64))
    return replace(table, frame=frame, item_space=space)


def _joined(sets: Sequence[Interactions], *, rated: bool) -> Interactions:
    """One table of all sets, the training set first, which share no pair."""
    frames = [table.frame for table in sets]
    common = [name for name in frames[0].columns if all(name in frame for frame in frames)]
    for table in sets:
        if rated and "rating" not in table.frame.columns:
            raise DataError(f"{table.source} has no ratings; give it a column 'rating'.")
    for one, other in combinations(sets, 2):
        shared = one.frame.join(other.frame, on=["user", "item"], how="semi").height
        if shared:
            raise DataError(
                f"{shared} (user, item) pairs of {other.source} are also in {one.source}; an "
                f"interaction to test on must not be trained on: take them out of one of the two."
            )
    return Interactions(
        pl.concat([frame.select(common) for frame in frames]),
        items=sets[0].items,
        item_space=sets[0].item_space,
        types=sets[0].types,
        source=" and ".join(table.source for table in sets),
        source_notes=tuple(note for table in sets for note in table.source_notes),
    )


NO_TEST = "none"  # The kind without a test set.

# The function of each kind, and its options with their defaults.
_KINDS: Mapping[str, tuple[Callable[..., DataSplit], Mapping[str, Any]]] = {
    "random": (DataSplit.random, {"folds": 10, "fold": 0, "valid": 0.05, "seed": 0}),
    "leave-one-out": (DataSplit.leave_one_out, {}),
    "date": (DataSplit.by_date, {"test_from": None, "test_share": 0.1, "valid": 0.05}),
    USERS: (DataSplit.cold_start, {"test_share": 0.1, "valid": 0.05, "seed": 0}),
    NO_TEST: (DataSplit.everything, {"valid": 0.05, "seed": 0}),
    GIVEN: (DataSplit.given, {"valid": 0.05, "seed": 0}),
}


@dataclass(frozen=True)
class SplitRequest:
    """Options of a split; one that is None has the default of the kind."""

    kind: str = "random"  # random, leave-one-out, date, users, none or given.
    folds: int | None = None  # Number of random folds.
    fold: int | None = None  # The fold to test on, from 0.
    valid: float | None = None  # Share of the rest to validate on.
    seed: int | None = None  # Seed of the random sample.
    test_from: str | None = None  # Date, or seconds since 1970, at which the test set begins.
    test_share: float | None = None  # Share of the interactions, or of the users, to test on.

    def splitter(self, *, protocols: bool = False) -> Callable[..., DataSplit]:
        """The function from a table (for `given`: from two or three) to its split.

        Contradictory options are refused here, before a table is read. With `protocols`, the test
        set says which interactions each ranking protocol tests, where that is not all of them.
        """
        if self.kind not in _KINDS:
            *others, last = _KINDS
            raise SettingsError(
                f"--split {self.kind} is not known; the splits are {', '.join(others)} and {last}."
            )
        make, defaults = _KINDS[self.kind]
        options = asdict(self).items()
        given = {name: value for name, value in options if name != "kind" and value is not None}
        for name in given:
            if name not in defaults:
                stored = ", ".join(map(_as_typed, defaults)) or "none"
                raise SettingsError(
                    f"{_as_typed(name)} does not belong to --split {self.kind}, whose options are: "
                    f"{stored}."
                )
        if self.valid is not None and not 0 <= self.valid < 1:
            raise SettingsError(
                f"--valid {self.valid} is not a share: give a number from 0 to below 1."
            )
        if self.test_from is not None:
            if self.test_share is not None:
                raise SettingsError(
                    "--test-from and --test-share both say where the test set begins; give one "
                    "of them."
                )
            given["test_from"] = seconds_of(self.test_from)
        if protocols and self.kind in ("leave-one-out", USERS):
            given["protocols"] = True
        return partial(make, **{**defaults, **given})


def _as_typed(option: str) -> str:
    """An option as the command line has it."""
    return "--split-seed" if option == "seed" else "--" + option.replace("_", "-")
