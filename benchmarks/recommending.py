"""How to rank: choose `by`, its constants and `min_support` on the validation set of runs.

    .venv/bin/python benchmarks/recommending.py runs/ml-1m-default-valid0.05-fold1 ...

For each run (of a random split) the model reads the training set alone and ranks for every user
all items that are not in it. An item of the user's validation set is relevant if it is rated 4 or
more; the columns "5" and "any" ask for a 5, and for any rating. Prints a table per run: NDCG,
recall and precision of the first ten, the share of items that are in anybody's ten, how many
users rated them on average, and the mean rating of those that the user rated in the validation
part. Test parts are not touched.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from cfuica import load
from cfuica.data.datasets import resolve
from cfuica.data.matrix import InteractionMatrix
from cfuica.data.split_tables import DataSplit
from cfuica.inference.recommend import DOUBLING, Ranking, best, support_bonus, worst_rating
from cfuica.live.live_state import LiveState
from cfuica.model.calibration import Calibration
from cfuica.model.network import Network, expected_rating

LENGTH = 10
USERS_PER_BLOCK = 200
RELEVANT = {"4": 4.0, "5": 5.0, "any": -np.inf}


def main() -> None:
    """Compare the ways to rank on each run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--data", default="ml-1m")
    given = parser.parse_args()
    table = resolve(given.data)
    for run in given.runs:
        split = json.loads((run / "run.json").read_text("utf-8"))["split"]
        options = {name: split[name] for name in ("folds", "fold", "valid", "seed")}
        data_split = DataSplit.random(table, **options)
        warm = load(run).artifact
        maps = {"users": warm.users, "items": warm.items, "scale": warm.scale}
        train, valid = data_split.train.matrix(**maps), data_split.valid.matrix(**maps)
        compare(run.name, warm.networks["warm"], train, valid, warm.scale.values_array())


@dataclass(frozen=True)
class Block:
    """A block of users with everything a way to rank may look at."""

    logits_bmk: np.ndarray
    values_k: np.ndarray
    support_m: np.ndarray
    calibration: Calibration

    @cached_property
    def expected_bm(self) -> np.ndarray:
        return expected_rating(self.logits_bmk, self.values_k)

    @cached_property
    def probability_bmk(self) -> np.ndarray:
        """Calibrated."""
        flat_pk = self.logits_bmk.reshape(-1, len(self.values_k))
        return self.calibration.distributions(flat_pk, self.values_k).reshape(self.logits_bmk.shape)

    @cached_property
    def deviation_bm(self) -> np.ndarray:
        squares_bm = self.probability_bmk @ np.square(self.values_k)
        return np.sqrt(np.maximum(squares_bm - np.square(self.expected_bm), 0.0))

    def worst_bm(self, share: float) -> np.ndarray:
        return worst_rating(self.logits_bmk, self.values_k, self._calibrated, share)

    def _calibrated(self, logits_pk: np.ndarray, values_k: np.ndarray) -> np.ndarray:
        return self.probability_bmk.reshape(logits_pk.shape)

    def blend_bm(self, doubling: float = DOUBLING) -> np.ndarray:
        return self.expected_bm + support_bonus(self.support_m, self.values_k, doubling)

    def pulled_bm(self, weight: float) -> np.ndarray:
        """n / (n + weight * average n) of the way from the user's typical rating to the expected.

        The typical rating is the mean of the user's expected ratings, weighted by support.
        """
        share_m = self.support_m / self.support_m.sum()
        trust_m = self.support_m / (
            self.support_m + weight * self.support_m.sum() / np.count_nonzero(self.support_m)
        )
        typical_b1 = (self.expected_bm @ share_m)[:, None]
        return (typical_b1 + trust_m * (self.expected_bm - typical_b1)).astype(np.float32)

    def popularity_bm(self) -> np.ndarray:
        return np.broadcast_to(self.support_m, self.expected_bm.shape).astype(np.float32)


@dataclass
class Way:
    """One way to rank, and what it did so far."""

    name: str
    scores: Callable[[Block], np.ndarray]
    min_support: int = 1
    sums: dict[str, list[float]] = field(default_factory=dict)
    items: list[np.ndarray] = field(default_factory=list)
    ratings: list[np.ndarray] = field(default_factory=list)


def ways() -> list[Way]:
    """Everything that is compared."""
    return [
        Way("popularity", Block.popularity_bm),
        *(Way(f"expected, min_support {n}", lambda b: b.expected_bm, n) for n in (1, 5, 20, 50)),
        *(
            Way(f"mean - {z} deviations", lambda b, z=z: b.expected_bm - z * b.deviation_bm)
            for z in (1, 2, 3)
        ),
        *(
            Way(f"lower, worst {share:.0%}", lambda b, share=share: b.worst_bm(share))
            for share in (0.5, 0.25, 0.1, 0.05, 0.02)
        ),
        *(
            Way(f"pulled to a mean, weight {w:g}", lambda b, w=w: b.pulled_bm(w))
            for w in (0.25, 0.5, 1.0, 2.0, 4.0)
        ),
        *(
            Way(f"blend, {share:.2%} a doubling", lambda b, share=share: b.blend_bm(share))
            for share in (0.00625, 0.0125, 0.025, 0.05, 0.1, 0.2)
        ),
        *(Way(f"blend, min_support {n}", Block.blend_bm, n) for n in (5, 20, 50)),
    ]


def compare(
    name: str,
    network: Network,
    train: InteractionMatrix,
    valid: InteractionMatrix,
    values_k: np.ndarray,
) -> None:
    """Rank for all users, block by block, and print the table of a run."""
    support_m = np.diff(train.by_item.offsets)
    users_p, items_p, labels_p = valid.triplets()
    rows = {"users": np.arange(train.n_users), "items": np.arange(train.n_items)}
    state = LiveState.of(network, train, rows)
    logits_pk = state.pair_logits(users_p, items_p)
    calibration = Calibration.fit(logits_pk, labels_p, values_k)
    compared = ways()
    for start in range(0, train.n_users, USERS_PER_BLOCK):
        stop = min(start + USERS_PER_BLOCK, train.n_users)
        block = Block(
            state.item_logits(state.profiles(np.arange(start, stop))),
            values_k,
            support_m,
            calibration,
        )
        rating_bm = np.full(block.expected_bm.shape, np.nan, np.float32)
        asked = slice(*valid.by_user.offsets[[start, stop]])
        rating_bm[users_p[asked] - start, items_p[asked]] = values_k[labels_p[asked]]
        for way in compared:
            ranking = best(
                way.scores(block),
                LENGTH,
                allowed_m=support_m >= way.min_support,
                seen_offsets=train.by_user.offsets[start : stop + 1],
                seen_items=train.by_user.indices,
            )
            score(way, ranking, rating_bm)
    print(f"\n{name}, {calibration}")
    print(
        "| by | NDCG | recall | precision | NDCG 5 | NDCG any | items shown | support | rating |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    )
    for way in compared:
        mean = {measure: np.mean(values) for measure, values in way.sums.items()}
        items, ratings = np.concatenate(way.items), np.concatenate(way.ratings)
        shown = len(np.unique(items)) / np.count_nonzero(support_m)
        print(
            f"| {way.name} | {mean['ndcg 4']:.4f} | {mean['recall 4']:.4f} | "
            f"{mean['precision 4']:.4f} | {mean['ndcg 5']:.4f} | {mean['ndcg any']:.4f} | "
            f"{shown:.1%} | {support_m[items].mean():.0f} | {ratings.mean():.3f} |",
            flush=True,
        )


def score(way: Way, ranking: Ranking, rating_bm: np.ndarray) -> None:
    """Add the measures of each user who has something relevant in the validation set."""
    found_bn = np.full((len(rating_bm), LENGTH), np.nan, np.float32)
    found_bn[ranking.rows, ranking.ranks - 1] = rating_bm[ranking.rows, ranking.items]
    way.items.append(ranking.items)
    way.ratings.append(found_bn[~np.isnan(found_bn)])
    discount_n = 1 / np.log2(np.arange(2, LENGTH + 2))
    for name, least in RELEVANT.items():
        relevant_b = (rating_bm >= least).sum(1)
        asked = relevant_b > 0
        hit_bn, relevant_b = (found_bn >= least)[asked], relevant_b[asked]
        ideal_b = np.cumsum(discount_n)[np.minimum(relevant_b, LENGTH) - 1]
        measures = {
            "ndcg": hit_bn @ discount_n / ideal_b,
            "recall": hit_bn.sum(1) / relevant_b,
            "precision": hit_bn.mean(1),
        }
        for measure, values in measures.items():
            way.sums.setdefault(f"{measure} {name}", []).extend(values.tolist())


if __name__ == "__main__":
    main()
