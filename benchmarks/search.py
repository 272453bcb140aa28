"""Compare settings on the validation set, where alone they are chosen.

    .venv/bin/python benchmarks/search.py ml-1m ensemble_size=1 ensemble_size=1,dropout=0.25 ...
    .venv/bin/python benchmarks/search.py ml-1m --task ranking ensemble_size=1 residual_units=0

Each argument is a preset with some settings changed ("default" changes none). Of ratings fold 0 is
trained and validated on, of rankings the split of `cfuica train`. Prints the validation score of
the joined model and of its members after their last step, which `keep_best` may have gone back from
(RMSE and the like, or NDCG@10 and HR@10 among all unseen items; of the joined model also among 100
as in the protocol `paper`), and the minutes of training. Test parts are not touched.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import torch

from cfuica.cli.options import changed
from cfuica.data.datasets import resolve
from cfuica.data.matrix import Csr, Timeline
from cfuica.data.split_tables import DataSplit
from cfuica.data.table import Interactions
from cfuica.evaluation.protocols import sampled_negatives
from cfuica.metrics.ranking_metrics import RankingTest, Scores, answer
from cfuica.models.recommender import tasks
from cfuica.settings import RankingSettings, RatingSettings
from cfuica.training.ranking_task import (
    CUT_OFF,
    NextItems,
    RankingTask,
    ranker,
    train_ranking,
    trained_network,
    whole_contexts,
)
from cfuica.training.rating_task import make_validator, train, trained_networks
from cfuica.training.trainer import Trained

METRICS = (f"ndcg@{CUT_OFF}", f"hr@{CUT_OFF}")

# How it went, and the scores of the joined network.
Trial = tuple[Trained, str]


def main() -> None:
    """Train each, one after another."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("changes", nargs="+", metavar="KEY=VALUE,...")
    parser.add_argument("--task", choices=tasks(), default=RatingSettings.task)
    parser.add_argument("--preset", default="default")
    given = parser.parse_args()
    trial = {RatingSettings.task: of_ratings, RankingSettings.task: of_rankings}[given.task](
        resolve(given.data)
    )
    for changes in given.changes:
        assignments = [] if changes == "default" else changes.split(",")
        trained, joined = trial(
            changed(tasks()[given.task].preset(given.preset), assignments, None)
        )
        warm = [progress for progress in trained.history if not progress.cold_start]
        last = {progress.member: progress for progress in warm}.values()
        indices = "; ".join(score(progress.valid) for progress in last)
        print(
            f"{changes}: joined {joined}; members {indices}; {trained.seconds / 60:.1f} min",
            flush=True,
        )


def of_ratings(table: Interactions) -> Callable[[RatingSettings], Trial]:
    """Trains on fold 0 of ten."""
    data_split = DataSplit.random(table, folds=10, fold=0, valid=0.05, seed=0)
    maps = {"users": table.users, "items": table.item_ids, "scale": table.scale}
    assert data_split.valid is not None
    matrix, valid = data_split.train.matrix(**maps), data_split.valid.rated_pairs(**maps)
    values_k = table.scale.values_array()
    validate = make_validator(matrix, valid, values_k)

    @torch.no_grad()
    def joined(trained: Trained) -> str:
        return score(validate(trained_networks(trained, matrix)[0]["warm"]))

    def trial(settings: RatingSettings) -> Trial:
        trained = train(matrix, settings, values_k, valid=valid)
        return trained, joined(trained)

    return trial


def of_rankings(table: Interactions) -> Callable[[RankingSettings], Trial]:
    """Trains on all but what validates and what any protocol tests."""
    data_split = DataSplit.leave_one_out(table, protocols=True)
    maps = {"users": table.users, "items": table.item_ids, "has_times": table.has_times}
    assert data_split.valid is not None
    timeline = data_split.train.timeline(**maps)
    valid = NextItems.last_of(data_split.valid.timeline(**maps))
    sampled = among_100(timeline, valid)
    contexts = whole_contexts(timeline, timeline.by_item())

    def trial(settings: RankingSettings) -> Trial:
        trained = train_ranking(timeline, settings, valid=valid)
        network, _ = trained_network(trained, timeline)
        validate = RankingTask.of(timeline, settings, valid=valid).validator(0)
        assert validate is not None
        found = answer(sampled, ranker(network, contexts), (CUT_OFF,))
        among = " ".join(f"{name.upper()} {found.value(name):.4f}" for name in METRICS)
        with torch.no_grad():
            return trained, f"{score(validate(network))}, among 100 {among}"

    return trial


def among_100(timeline: Timeline, valid: NextItems) -> RankingTest:
    """What validates, beside what the protocol `paper` would draw for these users."""
    users_p = valid.users_p
    relevant = Csr.of_pairs(np.arange(users_p.size), valid.items_p, users_p.size)
    seen = Csr.of_pairs(timeline.users, timeline.items, timeline.n_users).take(users_p)
    drawn_duc = sampled_negatives(seen.union(relevant), users_p, timeline.n_users, timeline.n_items)
    return RankingTest.among("validation", users_p, relevant, drawn_duc)


def score(scores: Scores | None) -> str:
    """What settings are chosen by, and the rest."""
    assert scores is not None
    return " ".join(f"{name} {value:.4f}" for name, value in scores.named.items())


if __name__ == "__main__":
    main()
