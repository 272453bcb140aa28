"""How a model holds as events keep coming: trained on the first half of the ratings, then live.

    .venv/bin/python benchmarks/by_date.py ml-1m [--control] [--slices 5] [--every 100] [--seed 0]
        [--preset default] [--set key=value] [--keep FOLDER] [--json FILE]

The earlier half of the ratings is for training, a random 5% of it validates. The later half comes
in slices of equal size, in the order of time, so that in the end the data has doubled. Each slice
is predicted four times: *frozen*, knowing nothing since training; *observed*, having observed
everything before the slice; *live*, having observed everything but the last few events (--every);
and by the baseline of user and item biases, refitted to everything before the slice (*bias*), its
users' biases also kept up to date like the live model (*live bias*, whose damping is the best in
hindsight). Below, the same apart for ratings whose user and item training knew (*known*), and for
those with a cold-start user or item.

With --control nothing is ordered in time: the model is trained on a random half of what a fixed 5%,
which is held out, leaves over, and observes the other half in random slices. The held-out ratings
are predicted after each slice, so nothing but the amount of data changes.

*Saturated* is the share of hidden units beyond 0.9 in size, averaged over the items (UUC) and users
(IIC) of training, for the warm and the cold-start network. Takes one training
each; with --keep the model is written down and found by the next call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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

from cfuica.data.splits import Split, time_of_the_last
from cfuica.metrics.rating_metrics import rmse
from cfuica.models.co_autoregressive import RatingModel
from cfuica.ops.tables import SIDES

HELD_OUT = 0.05
SATURATED = 0.9
PARTS = {"users": "UUC", "items": "IIC"}


def main() -> None:
    """Train or load the model; print and write what becomes of it."""
    parser = parser_of(__doc__)
    parser.add_argument("--control", action="store_true", help="in random order, not by date")
    parser.add_argument("--slices", type=int, default=5)
    parser.add_argument("--every", type=int, default=100, help="live: events observed at once")
    given = parser.parse_args()
    ratings = Ratings.of(given.data, given.seed)
    trains, events, held_out = in_random_order(ratings) if given.control else in_time(ratings)
    name = "random-half" if given.control else "earlier-half"
    model, seconds = ratings.trained(name, given, np.sort(trains))
    walk = Walk.begin(ratings, model, trains)
    slices = np.array_split(events, given.slices)
    if given.control:
        walk.ask(held_out)
        for some in slices:
            walk.observe(some)
            walk.ask(held_out)
    else:
        for some in slices:
            walk.ask(some, live_every=given.every)
        walk.note_saturation()
    tables = {"all": walk.everything, "warm": walk.warm, "cold_start": walk.cold_start}
    for whose, records in tables.items():
        if any(records):
            print(f"\n{whose}")
            print_table([record for record in records if record])
    print("\nsaturated")
    print_table(walk.saturation)
    write_json(given, training_seconds=seconds, **tables, saturated=walk.saturation)


def in_time(ratings: Ratings) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows to train on, the later ones in the order of time, none held out."""
    if "timestamp" not in ratings.table.frame.columns:
        raise SystemExit("The ratings have no timestamps; give others, or --control.")
    times = ratings.table.frame["timestamp"].to_numpy()
    split = Split.by_date(times, test_from=time_of_the_last(0.5, times), valid=0.0)
    later = split.test[np.argsort(times[split.test], kind="stable")]
    return split.train, later, np.empty(0, np.int64)


def in_random_order(ratings: Ratings) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows to train on, as many to observe, those held out."""
    rows = np.argsort(ratings.order, kind="stable")
    n_held_out = int(HELD_OUT * len(rows))
    held_out, rest = rows[:n_held_out], rows[n_held_out:]
    return rest[: len(rest) // 2], rest[len(rest) // 2 :], held_out


@dataclass
class Walk:
    """A trained model as it observes, beside itself as it was, and beside the baseline."""

    ratings: Ratings
    trained: RatingModel
    model: RatingModel
    trains: np.ndarray
    seen: np.ndarray
    everything: list[dict[str, Any]] = field(default_factory=list)
    warm: list[dict[str, Any]] = field(default_factory=list)
    cold_start: list[dict[str, Any]] = field(default_factory=list)
    saturation: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def begin(cls, ratings: Ratings, trained: RatingModel, trains: np.ndarray) -> Walk:
        """With what training knew."""
        return cls(ratings, trained, fresh(trained), trains, trains)

    def ask(self, rows: np.ndarray, live_every: int | None = None) -> None:
        """Predict these rows in every way; `live_every` lets the model observe them meanwhile."""
        ratings = self.ratings
        self.note_saturation()
        data = self.data
        bias = ratings.bias(self.seen)
        predicted = {
            "frozen": ratings.predicted(self.trained, rows),
            "observed": ratings.predicted(self.model, rows),
            "bias": ratings.predicted(bias, rows),
        }
        if live_every:
            following = LiveBias.begin(ratings, "users", bias, self.seen)
            live, live_bias = np.empty(len(rows)), []
            for start in range(0, len(rows), live_every):
                part = slice(start, start + live_every)
                live[part] = ratings.predicted(self.model, rows[part])
                live_bias.append(following.predict(rows[part]))
                self.observe(rows[part])
                following.observe(rows[part])
            predicted["live"] = live
            predicted["live bias"] = best_in_hindsight(np.hstack(live_bias), ratings.values[rows])
        is_warm = self._known_to_training(rows)
        for records, asked in (
            (self.everything, np.ones(len(rows), np.bool_)),
            (self.warm, is_warm),
            (self.cold_start, ~is_warm),
        ):
            some = {name: by[asked] for name, by in predicted.items()}
            records.append(scores(data, some, ratings.values[rows[asked]]))

    def observe(self, rows: np.ndarray) -> None:
        """Take in what happened."""
        self.model.observe(self.ratings.table.take(rows))
        self.seen = np.concatenate((self.seen, rows))

    @property
    def data(self) -> str:
        """How much there is by now, in units of what was there to train on."""
        return f"{len(self.seen) / len(self.trains):.1f}x"

    def note_saturation(self) -> None:
        """The share of saturated units as it is now."""
        live = self.model.live_model
        trained = self.trained.artifact.interactions
        record: dict[str, Any] = {"data": self.data}
        for name, state in live.states.items():
            for side in state.network.sides:
                (encoded,) = set(SIDES) - {side}
                # Those with a history. Indices stay: new users and items come after all that were
                # there.
                queries = np.flatnonzero(np.diff(trained.by(encoded).offsets))
                saturated = np.abs(state.hidden(side)[queries]) > SATURATED
                record[f"{PARTS[side]}, {name}"] = float(saturated.mean())
        self.saturation.append(record)

    def _known_to_training(self, rows: np.ndarray) -> np.ndarray:
        """(P,) whether both the user and the item were there."""
        warm = np.ones(len(rows), np.bool_)
        for axis in SIDES:
            index = self.ratings.axis(axis)
            trained = np.zeros(int(index.max()) + 1, np.bool_)
            trained[index[self.trains[~self.ratings.validates[self.trains]]]] = True
            warm &= trained[index[rows]]
        return warm


def scores(data: str, predicted: dict[str, np.ndarray], truth: np.ndarray) -> dict[str, Any]:
    """RMSE of each way to predict, and what matters of their differences; empty without ratings."""
    if not len(truth):
        return {}

    def less(one: str, other: str) -> Difference:
        return Difference.of(predicted[one], predicted[other], truth)

    record: dict[str, Any] = {"data": data, "ratings": len(truth)}
    record |= {name: rmse(by, truth) for name, by in predicted.items()}
    record["observed less frozen"] = less("observed", "frozen")
    record["observed less bias"] = less("observed", "bias")
    if "live" in predicted:
        record["live less live bias"] = less("live", "live bias")
    return record


if __name__ == "__main__":
    main()
