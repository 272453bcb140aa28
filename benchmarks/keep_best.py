"""Whether a ranking ends better with its last parameters or with those that validated best.

    python benchmarks/keep_best.py demo --seeds 3 --validate-every 40

The validation users are divided in two: one half chooses the parameters, the other half measures
them (NDCG@10 among all items), and the other way round, so that the choice is not its own judge.
The test set is not read.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

import numpy as np
import numpy.typing as npt

import cfuica
from cfuica.data.split_tables import DataSplit
from cfuica.training.ranking_task import NextItems, RankingTask


def curves(split: DataSplit, seed: int, every: int) -> npt.NDArray[np.float64]:
    """(V, 2) NDCG@10 of both halves at each validation of one network."""
    found: list[list[float]] = []
    whole = RankingTask.validator

    def of_both_halves(self: RankingTask, network: int):  # type: ignore[no-untyped-def]
        assert self.valid is not None
        users, items = self.valid.users_p, self.valid.items_p
        parts = [NextItems(users[at::2], items[at::2]) for at in range(2)]
        measures = [whole(replace(self, valid=part), network) for part in parts]

        def validate(*arguments):  # type: ignore[no-untyped-def]
            scores = [measure(*arguments) for measure in measures if measure is not None]
            found.append([each.ndcg for each in scores])
            return scores[0]

        return validate

    settings = cfuica.ranking_preset("default").replaced(
        ensemble_size=1, validate_every=every, seed=seed
    )
    RankingTask.validator = of_both_halves  # type: ignore[method-assign]
    try:
        model = cfuica.RankingModel(settings)
        model.fit(split.train, valid=split.valid, vocabulary=split.whole, progress=False)
    finally:
        RankingTask.validator = whole  # type: ignore[method-assign]
    return np.array(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--validate-every", type=int, default=40)
    options = parser.parse_args()
    split = DataSplit.leave_one_out(cfuica.load_data(options.data))
    last, best = [], []
    for seed in range(options.seeds):
        ndcg_vh = curves(split, seed, options.validate_every)
        last += ndcg_vh[-1].tolist()
        best += [float(ndcg_vh[ndcg_vh[:, 1 - half].argmax(), half]) for half in range(2)]
    means = {"last": float(np.mean(last)), "best": float(np.mean(best))}
    print(json.dumps({"data": options.data, "seeds": options.seeds, **means}))


if __name__ == "__main__":
    main()
