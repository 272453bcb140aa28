"""What a model knows of users (or items) that training never saw, by the length of their history.

    .venv/bin/python benchmarks/cold_start.py ml-1m [--axis items] [--share 0.1] [--seed 0]
        [--lengths 0 1 5 20 all] [--preset default] [--set key=value] [--keep FOLDER] [--json FILE]

A tenth of every user's ratings, at random, is for the test; the rest is history. Model A is trained
on the histories of all. Model B is trained without a share of the users, as if they did not exist;
then it observes the first so many ratings of each one's history, in a random order, and predicts
their test ratings. Beside it stands the baseline of user and item biases: those of the known from
all that B was trained on, those of cold-start users and items from what B observed, damped as is
best in hindsight. Then A, which was trained on the same users. The last columns are of the other
users, whom both models know.

A random 5% of the histories validate (for calibration), and are read when predicting. Takes two
trainings, and for the other axis one more: A is the same. With --keep the models are written down,
and another call with other lengths needs no training.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from evidence import (
    Difference,
    LiveBias,
    Ratings,
    best_in_hindsight,
    fresh,
    parser_of,
    print_table,
    write_json,
)

from cfuica.data.splits import Split
from cfuica.metrics.rating_metrics import rmse
from cfuica.models.co_autoregressive import RatingModel
from cfuica.ops.tables import SIDES

ONE_IN = 10  # ratings of a user: for the test


def main() -> None:
    """Train or load both models; print and write the curve."""
    parser = parser_of(__doc__)
    parser.add_argument("--axis", choices=SIDES, default="users")
    parser.add_argument("--share", type=float, default=0.1, help="of the users or items: hidden")
    parser.add_argument(
        "--lengths", nargs="+", type=_length, default=[0, 1, 5, 20, None], metavar="N"
    )
    given = parser.parse_args()
    ratings = Ratings.of(given.data, given.seed)
    is_test = tested(ratings)
    member = ratings.axis(given.axis)
    hidden_rows = Split.cold_start(member, test_share=given.share, valid=0.0, seed=given.seed).test
    is_hidden = np.zeros(len(member), np.bool_)
    is_hidden[hidden_rows] = True
    model_a, seconds_a = ratings.trained(
        "everyone", given, np.flatnonzero(~is_test), cold_start=False
    )
    model_b, seconds_b = ratings.trained(
        f"without-{given.share:g}-of-{given.axis}", given, np.flatnonzero(~is_test & ~is_hidden)
    )
    records = curve(ratings, given, is_test, is_hidden, model_a, model_b)
    n_hidden = len(np.unique(member[is_hidden]))
    counts = {
        f"{given.axis} hidden": n_hidden,
        f"{given.axis} known": int(member.max()) + 1 - n_hidden,
        "test ratings of the hidden": int((is_test & is_hidden).sum()),
        "test ratings of the known": int((is_test & ~is_hidden).sum()),
    }
    print(", ".join(f"{name}: {count:,}" for name, count in counts.items()))
    print_table(records)
    seconds = {"A": seconds_a, "B": seconds_b}
    write_json(given, counts=counts, training_seconds=seconds, curve=records)


def tested(ratings: Ratings) -> np.ndarray:
    """(n,) a tenth of every user's ratings, rounded up or down by turns."""
    is_test = np.zeros(len(ratings.users), np.bool_)
    is_test[np.lexsort((ratings.order, ratings.users))[::ONE_IN]] = True
    return is_test


def curve(
    ratings: Ratings,
    given: argparse.Namespace,
    is_test: np.ndarray,
    is_hidden: np.ndarray,
    model_a: RatingModel,
    model_b: RatingModel,
) -> list[dict[str, Any]]:
    """A record of A, then one of B for each length."""
    asked, others = np.flatnonzero(is_test & is_hidden), np.flatnonzero(is_test & ~is_hidden)
    warm = np.flatnonzero(~is_test & ~is_hidden)
    history, place = histories(ratings, given, np.flatnonzero(~is_test & is_hidden))
    bias = ratings.bias(warm)
    truth, truth_others = ratings.values[asked], ratings.values[others]
    by_a, by_a_others = ratings.predicted(model_a, asked), ratings.predicted(model_a, others)
    bias_others = rmse(ratings.predicted(bias, others), truth_others)

    def record(name: str, observed: np.ndarray, model: RatingModel) -> dict[str, Any]:
        live_bias = LiveBias.begin(ratings, given.axis, bias, observed)
        by_bias = best_in_hindsight(live_bias.predict(asked), truth)
        by_model, by_model_others = (ratings.predicted(model, rows) for rows in (asked, others))
        return {
            "model, history": name,
            "observed": len(observed),
            "RMSE": rmse(by_model, truth),
            "bias": rmse(by_bias, truth),
            "less bias": Difference.of(by_model, by_bias, truth),
            "less A": Difference.of(by_model, by_a, truth),
            "known: RMSE": rmse(by_model_others, truth_others),
            "known: bias": bias_others,
            "known: less A": Difference.of(by_model_others, by_a_others, truth_others),
        }

    records = [record("A, trained on", history, model_a)]
    for length in given.lengths:
        observed = history if length is None else history[place < length]
        model = fresh(model_b)
        if len(observed):
            model.observe(ratings.table.take(observed))
        records.append(record(f"B, {'all' if length is None else length}", observed, model))
    return records


def histories(
    ratings: Ratings, given: argparse.Namespace, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The rows, one member after another in a random order each; the place in it, from 0."""
    member = ratings.axis(given.axis)
    rows = rows[np.lexsort((ratings.order[rows], member[rows]))]
    _, first, counts = np.unique(member[rows], return_index=True, return_counts=True)
    return rows, np.arange(len(rows)) - np.repeat(first, counts)


def _length(text: str) -> int | None:
    return None if text == "all" else int(text)


if __name__ == "__main__":
    main()
