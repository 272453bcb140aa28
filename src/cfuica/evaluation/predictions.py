"""Predictions of another system: read from a file, evaluated as rankings or as ratings.

`read_predictions` reads a table of scores, of ranks, or of predicted ratings. `TableScorer` ranks
by it, and `rating_errors` gives its errors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cfuica.data.layout import FIND_OUT, NoSuchColumn, ReadOptions
from cfuica.data.matrix import Csr
from cfuica.data.readers import read_table
from cfuica.data.table import Interactions
from cfuica.data.vocabulary import Vocabulary
from cfuica.errors import DataError
from cfuica.evaluation.protocols import RunVocabulary
from cfuica.evaluation.rating_errors import RatingErrors
from cfuica.metrics.ranking_metrics import RankingTest
from cfuica.models.ranking_evaluation import ScorerOfAll

_COLUMNS = ("user", "item", "rating")
# A column of one of these names is the third, where none has a name that ratings have.
_PREDICTION, _RANK = "prediction", "rank"


def read_predictions(path: Path, options: ReadOptions = FIND_OUT) -> Interactions:
    """Read user, item and a score or a predicted rating, or a rank; any format that is read.

    The third column is found by its name (rating, score, prediction, rank ...), or is the third of
    a file without a header, and becomes `rating`: higher is better. A rank counts downwards: 1 is
    best.
    """
    table, name = _read(path, options)
    frame, source = table.frame.select(_COLUMNS), table.source
    repeated = frame.select("user", "item").is_duplicated()
    if repeated.any():
        user, item = frame.row(int(repeated.arg_max() or 0))[:2]
        raise DataError(
            f"{source} has more than one prediction for user {user!r} and item {item!r}; leave one."
        )
    if name == _RANK:
        if (best := frame["rating"].to_numpy().min()) < 1:
            raise DataError(
                f"{source} has the rank {best:g}, but ranks count from 1, the "
                f"best; name the column score where higher is better."
            )
        frame = frame.with_columns(-pl.col("rating"))
    return replace(table, frame=frame)


def _read(path: Path, options: ReadOptions) -> tuple[Interactions, str | None]:
    """The table, and the name by which the third column was found."""
    try:
        return read_table(path, options, only=_COLUMNS), options.rating
    except NoSuchColumn as error:
        if options.rating is not None:
            raise
        for name in (_PREDICTION, _RANK):
            try:
                return read_table(path, replace(options, rating=name), only=_COLUMNS), name
            except NoSuchColumn:
                continue
        raise DataError(
            f"{str(error).partition(':')[0]}: predictions need the columns user, item and a score "
            f"(or rating, prediction, or rank); give them these names, or say which they are."
        ) from None


@dataclass(frozen=True, eq=False)
class TableScorer(ScorerOfAll):
    """A `Scorer` from a table; an item without a score ranks below all that have one."""

    scored: Csr  # A row per user of the run: the items that have a score.
    scores_n: NDArray[np.float32]  # Of each of them, a number in the order of the user's scores.
    n_items: int
    left_out: int  # How many rows have users or items that the run does not have.

    @classmethod
    def of(cls, predictions: Interactions, run_vocabulary: RunVocabulary) -> TableScorer:
        """By the indices of a run."""
        users = run_vocabulary.users.encode(predictions.frame["user"])
        items = run_vocabulary.items.encode(predictions.frame["item"])
        # Places among the user's own scores: in float32 unequal scores could become equal.
        order = predictions.frame.select(pl.col("rating").rank("dense").over("user")).to_series()
        there = (users >= 0) & (items >= 0)
        users, items, place = users[there], items[there], order.to_numpy()[there]
        by_pair = np.lexsort((items, users))
        return cls(
            Csr.of_pairs(users, items, run_vocabulary.users.size),
            place[by_pair].astype(np.float32),
            run_vocabulary.items.size,
            int(there.size - there.sum()),
        )

    def scores(self, users_b: NDArray[np.int32]) -> NDArray[np.float32]:
        """(B, M), minus infinity where there is none."""
        places = np.arange(self.scores_n.size, dtype=np.int32)
        own = Csr(self.scored.offsets, places).take(users_b)
        scores_bm = np.full((users_b.size, self.n_items), -np.inf, np.float32)
        items = self.scored.indices[own.indices]
        scores_bm[own.row_of_entry(), items] = self.scores_n[own.indices]
        return scores_bm

    def notes(self, ranking_test: RankingTest, source: str) -> tuple[str, ...]:
        """Notes on missing users and scores, one sentence each."""
        own = self.scored.take(ranking_test.users_u)
        missing_users = int(np.count_nonzero(own.sizes == 0))
        missing, total = _without_score(ranking_test, own)
        notes = []
        if self.left_out:
            notes.append(
                f"{self.left_out:,} rows of {source} are of users or items that the run does not "
                f"have, and were left out."
            )
        if missing_users:
            notes.append(
                f"{missing_users:,} of {ranking_test.n_users:,} users have no row in {source}: "
                f"they count as misses."
            )
        if missing:
            notes.append(
                f"{missing:,} of {total:,} candidates have no score in {source}: they stand below "
                f"all that have one, and ties count against the system."
            )
        return tuple(notes)


def _without_score(ranking_test: RankingTest, scored: Csr) -> tuple[int, int]:
    """(candidates without a score, all candidates) of all users and draws."""
    if ranking_test.candidates_duc is None:
        assert ranking_test.seen is not None
        assert ranking_test.catalogue_m is not None
        in_catalogue = ranking_test.catalogue_m
        seen = int(np.count_nonzero(in_catalogue[ranking_test.seen.indices]))
        total = ranking_test.n_users * int(np.count_nonzero(in_catalogue)) - seen
        there = scored.without(ranking_test.seen).indices
        return total - int(np.count_nonzero(in_catalogue[there])), total
    missing, total = 0, 0
    for candidates_uc in ranking_test.candidates_duc:
        rows, places = np.nonzero(candidates_uc >= 0)
        candidates = Csr.of_pairs(rows, candidates_uc[rows, places], ranking_test.n_users)
        total += candidates.indices.size
        missing += candidates.without(scored).indices.size
    return missing, total


def rating_errors(predictions: Interactions, test: Interactions) -> RatingErrors:
    """The errors of predicted ratings, which every rated pair of the test must have."""
    test = test.rated()
    rated = test.frame
    pairs = []
    for frame in (rated, predictions.frame):
        # By the ids of the test set, so that 7 and "7" are the same one.
        index = [Vocabulary.from_ids(rated[role]).encode(frame[role]) for role in ("user", "item")]
        pairs.append(pl.DataFrame({"user": index[0], "item": index[1], "rating": frame["rating"]}))
    joined = pairs[0].join(
        pairs[1].filter(pl.col("user") >= 0, pl.col("item") >= 0),
        on=["user", "item"],
        how="left",
        maintain_order="left",
    )
    missing = joined["rating_right"].is_null()
    if missing.any():
        first = rated.row(int(missing.arg_max() or 0), named=True)
        raise DataError(
            f"{predictions.source} has no prediction for {int(missing.sum()):,} of "
            f"{rated.height:,} ratings of the test set, the first one of user {first['user']!r} "
            f"and item {first['item']!r}; predict all of them."
        )
    return RatingErrors.of(test, joined["rating_right"].to_numpy())
