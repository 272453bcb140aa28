"""A run's test: metrics of a ranking with their intervals, of its model or of a table."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from cfuica.data.ids import IdMap
from cfuica.data.table import BehaviourTable
from cfuica.errors import DataError
from cfuica.evaluation.answering import RankingResult, answer
from cfuica.evaluation.bootstrap import Interval
from cfuica.evaluation.lists import Popularity
from cfuica.evaluation.metrics import mae, rmse
from cfuica.evaluation.questions import Questions, Scorer
from cfuica.runs.folder import RunFolder
from cfuica.runs.known import Known, Ranker
from cfuica.runs.predictions import Predictions, TableScorer
from cfuica.runs.protocols import protocol_of, questions_for

CUTOFFS = (5, 10, 20)
RATING, RANKING = "rating", "ranking"


def task_of(folder: RunFolder) -> str:
    """What a run was trained for, `rating` or `ranking`, without loading its model."""
    for path in (folder.path / "run.json", folder.model / "model.json"):
        try:
            task = json.loads(path.read_text("utf-8")).get("task")
        except (OSError, ValueError, AttributeError, RecursionError):
            continue
        if task in (RATING, RANKING):
            return str(task)
    return RATING


@dataclass(frozen=True, eq=False)
class RankingEvaluation:
    """What `cfuica evaluate` tells of a ranking."""

    questions: Questions
    result: RankingResult
    intervals: dict[str, Interval]
    seconds: float
    """Scoring, ranking and measuring; not loading, not the intervals."""
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Metrics by name, beside what they are of."""
        return {
            "protocol": self.questions.protocol,
            "users": self.questions.n_users,
            "seconds": self.seconds,
            **{name: each.as_json() for name, each in self.intervals.items()},
        }


def evaluate_model(
    folder: RunFolder, model: Ranker, *, protocol: str | None, cutoffs: Sequence[int] = CUTOFFS
) -> RankingEvaluation:
    """Rank by a run's own model."""
    known = Known.of_model(model)
    questions, extra = questions_for(protocol_of(folder, protocol), folder, known)
    _check_unobserved(questions, folder, known)
    return _evaluated(questions, model.scorer(extra), known, cutoffs)


def evaluate_table(
    folder: RunFolder,
    predictions: Predictions,
    *,
    protocol: str | None,
    cutoffs: Sequence[int] = CUTOFFS,
) -> RankingEvaluation:
    """Rank by somebody else's scores what the run's own model is asked to rank."""
    known = Known.of_run(folder)
    questions, _ = questions_for(protocol_of(folder, protocol), folder, known)
    scorer = TableScorer.of(predictions, known)
    if scorer.left_out == predictions.frame.height:
        user, item, _ = predictions.frame.row(0)
        raise DataError(
            f"{predictions.source} has no row of a user and an item that {folder.path} has: the "
            f"first is of user {user!r} and item {item!r}, the run has users such as "
            f"{known.users.ids[0]!r} and items such as {known.items.ids[0]!r}; give the ids of the "
            f"run's data."
        )
    notes = scorer.notes(questions, predictions.source)
    return _evaluated(questions, scorer, known, cutoffs, notes)


def rating_errors(predictions: Predictions, test: BehaviourTable) -> tuple[float, float, int]:
    """(RMSE, MAE, ratings) of predicted ratings, which every rated pair of the test must have."""
    rated = test.rated().frame
    pairs = []
    for frame in (rated, predictions.frame):
        # By the ids of the test part, so that 7 and "7" are the same one.
        index = [IdMap.from_ids(rated[role]).encode(frame[role]) for role in ("user", "item")]
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
            f"{rated.height:,} ratings of the test part, the first one of user {first['user']!r} "
            f"and item {first['item']!r}; predict all of them."
        )
    predicted, truth = joined["rating_right"].to_numpy(), joined["rating"].to_numpy()
    return rmse(predicted, truth), mae(predicted, truth), rated.height


def _check_unobserved(questions: Questions, folder: RunFolder, known: Known) -> None:
    """Refuse to ask a model about what it has been told."""
    asked = questions.relevant
    untold = asked.without(known.seen.take(questions.users_u))
    told = asked.members.size - untold.members.size
    if told:
        raise DataError(
            f"The model of {folder.path} has observed {told:,} of the {asked.members.size:,} "
            f"behaviours that --protocol {questions.protocol} tests, so they test nothing any "
            f"more; evaluate before it observes them (cfuica observe --out writes another model), "
            f"or train again."
        )


def _evaluated(
    questions: Questions,
    scorer: Scorer,
    known: Known,
    cutoffs: Sequence[int],
    notes: tuple[str, ...] = (),
) -> RankingEvaluation:
    popularity = Popularity.of(known.seen, known.items.size)
    # One user first: compiling the kernels is not part of ranking.
    answer(questions.first(1), scorer, cutoffs, popularity=popularity)
    start = time.perf_counter()
    result = answer(questions, scorer, cutoffs, popularity=popularity)
    seconds = time.perf_counter() - start
    return RankingEvaluation(questions, result, result.intervals(), seconds, notes)
