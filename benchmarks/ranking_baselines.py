"""implicit's ALS, BPR and item-kNN on leave-one-out, asked what a run of ours is asked.

    .venv/bin/pip install -c constraints.txt -e ".[bench]"
    .venv/bin/python benchmarks/ranking_baselines.py [--data ml-1m] [--seed 0] [--quick]
        [--validation-too] [--run RUN] [--json FILE]

The split is that of `cfuica train --task ranking`. Settings are chosen by NDCG@10 of each user's
validation item among all unseen items; then every system is trained once with the best ones, alone
and timed, and answers each protocol once. Like ours it trains on the training rows only, and at
test time reads what ours reads, the validation items and what only other protocols test: item-kNN
as part of the history, ALS by solving the users' factors from it. BPR and popularity know nothing
but what they were trained on; with --validation-too everything is trained on the validation items
as well, which is more than ours is.

With --run the figures of a run of ours on the same data are in the table too.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from evidence import print_table
from implicit_systems import ALS, BPR, NEIGHBOURS, POPULARITY, RatingSettings, System, fit
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits

import cfuica
from cfuica.data.datasets import resolve
from cfuica.data.matrix import Csr
from cfuica.data.split_tables import DataSplit
from cfuica.data.table import Interactions
from cfuica.data.vocabulary import Vocabulary
from cfuica.evaluation.evaluate import evaluate_model, same_test, task_of
from cfuica.evaluation.protocols import RunVocabulary, ranking_test_for
from cfuica.io import write_text_atomically
from cfuica.metrics.ranking_metrics import RankingTest, Scorer, answer
from cfuica.models.recommender import task_named
from cfuica.run_folder import RunFolder

CUT_OFF = 10
METRICS = ("hr", "ndcg")
# How many settings of each are tried, and with --quick.
TRIES = {POPULARITY: (1, 1), NEIGHBOURS: (24, 3), ALS: (12, 1), BPR: (8, 1)}
# Rounds without a gain until a training of the search is given up: one may be chance.
PATIENCE = 2


def main() -> None:
    """Search, train, ask; print the table and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="ml-1m", help="name, file or folder of the interactions")
    parser.add_argument("--seed", type=int, default=0, help="of the search and of training")
    parser.add_argument("--quick", action="store_true", help="try next to nothing")
    parser.add_argument(
        "--validation-too", action="store_true", help="train on the validation items in the end"
    )
    parser.add_argument("--run", type=Path, help="a ranking run of ours, for the table")
    parser.add_argument("--json", type=Path, help="all figures, with intervals, and all tries")
    given = parser.parse_args()
    interactions = IndexedSplit(DataSplit.leave_one_out(resolve(given.data), protocols=True))
    # Threads of BLAS beside those of implicit would make it several times as slow.
    with TemporaryDirectory() as place, threadpool_limits(1, "blas"):
        folder = interactions.folder(Path(place))
        records = [] if given.run is None else [of_run(given.run, folder, interactions)]
        for system, tries in TRIES.items():
            found = searched(system, interactions, tries[given.quick], given.seed)
            trained = interactions.learned(given.validation_too)
            records.append(tested(system, found, trained, interactions, folder, given.seed))
    print_table([row(record) for record in records])
    for record in records:
        print(f"{record['system']}: {as_text(record['settings'])}")
    if given.json is not None:
        about = {
            "cfuica": cfuica.__version__,
            "implicit": version("implicit"),
            "split": interactions.data_split.description,
        }
        asked = {name: value for name, value in vars(given).items() if name != "json"}
        text = json.dumps({**about, "given": asked, "systems": records}, indent=2, default=str)
        write_text_atomically(given.json, text + "\n")


@dataclass(frozen=True, eq=False)
class IndexedSplit:
    """The parts of a split, by index."""

    data_split: DataSplit

    @property
    def users(self) -> Vocabulary:
        return self.data_split.whole.users

    @property
    def items(self) -> Vocabulary:
        return self.data_split.whole.item_ids

    @cached_property
    def train(self) -> Csr:
        """A row per user; so are those of `seen`."""
        return self.rows(self.data_split.train)

    @cached_property
    def seen(self) -> Csr:
        """The training and the validation set."""
        if self.data_split.valid is None:
            raise SystemExit(
                f"No user of {self.data_split.whole.source} has the three interactions that it "
                f"takes to train, validate and test; give other data."
            )
        return self.train.union(self.rows(self.data_split.valid))

    def learned(self, validation_too: bool) -> Csr:
        """What is trained on in the end."""
        return self.seen if validation_too else self.train

    @cached_property
    def validation(self) -> RankingTest:
        """As the training of a ranking model asks: each user's next item among all unseen ones."""
        following = self.seen.without(self.train)
        asked = np.flatnonzero(following.sizes).astype(np.int32)
        return RankingTest.among_unseen(
            "validation",
            asked,
            following.take(asked),
            seen=self.train.take(asked),
            catalogue_m=np.ones(self.items.size, np.bool_),
        )

    def rows(self, table: Interactions) -> Csr:
        """What each user did in a table."""
        users = self.users.encode(table.frame["user"])
        items = self.items.encode(table.frame["item"])
        return Csr.of_pairs(users, items, self.users.size)

    def matrix(self, rows: Csr) -> csr_matrix:
        """(users, items) with 1 where there is an interaction."""
        ones = np.ones(rows.indices.size, np.float32)
        shape = (self.users.size, self.items.size)
        return csr_matrix((ones, rows.indices, rows.offsets), shape=shape)

    def folder(self, path: Path) -> RunFolder:
        """What of a run folder an evaluation reads."""
        folder = RunFolder(path)
        assert self.data_split.test is not None
        folder.write_test(self.data_split.test)
        folder.write_record({"split": self.data_split.description})
        return folder


@dataclass(frozen=True, eq=False)
class Rival:
    """A trained system as `runs.evaluating` asks it (`runs.warm.Ranker`)."""

    system: System
    model: Any
    interactions: IndexedSplit

    @property
    def users(self) -> Vocabulary:
        return self.interactions.users

    @property
    def items(self) -> Vocabulary:
        return self.interactions.items

    @property
    def seen(self) -> Csr:
        return self.interactions.seen

    def scorer(self, extra: Interactions | None) -> Scorer:
        """Reads what is seen, and these interactions beside it."""
        read = self.seen if extra is None else self.seen.union(self.interactions.rows(extra))
        return self.system.scorer(self.model, self.interactions.matrix(read))


def searched(
    system: System, interactions: IndexedSplit, tries: int, seed: int
) -> list[tuple[float, RatingSettings]]:
    """NDCG@10 on the validation items of everything that was tried, in that order."""
    found = []
    histories = interactions.matrix(interactions.train)
    step, most = system.rounds
    for settings in islice(system.tries(np.random.default_rng(seed), tries), tries):
        model = system.new({**settings, "iterations": step} if step else settings, seed)
        values: list[float] = []
        # Each further fit goes on where the last one ended.
        for iterations in range(step, most + 1, step) if step else (0,):
            fit(model, histories)
            result = answer(interactions.validation, system.scorer(model, histories), (CUT_OFF,))
            values.append(result.value(f"ndcg@{CUT_OFF}"))
            found.append((values[-1], {**settings, "iterations": iterations} if step else settings))
            if len(values) - int(np.argmax(values)) > PATIENCE:
                break
        value, best = max(found[-len(values) :], key=lambda one: one[0])
        print(f"{system.name}, {as_text(best)}: {value:.4f}", file=sys.stderr, flush=True)
    return found


def tested(
    system: System,
    found: list[tuple[float, RatingSettings]],
    learned: Csr,
    interactions: IndexedSplit,
    folder: RunFolder,
    seed: int,
) -> dict[str, Any]:
    """Train with the best settings; what there is to tell."""
    validation, settings = max(found, key=lambda one: one[0])
    histories = interactions.matrix(learned)
    model = system.new(settings, seed)
    start, start_cpu = time.perf_counter(), time.process_time()
    fit(model, histories)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - start_cpu
    rival = Rival(system, model, interactions)
    return {
        "system": system.name,
        "settings": settings,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        f"validation ndcg@{CUT_OFF}": validation,
        "tried": found,
        "protocols": {
            name: evaluate_model(folder, rival, protocol=name, cutoffs=(CUT_OFF,)).as_json()
            for name in interactions.data_split.description["protocols"]
        },
    }


def of_run(run: Path, folder: RunFolder, interactions: IndexedSplit) -> dict[str, Any]:
    """The same of a run of ours, which must have been split into the same parts."""
    own, warm = (
        RunFolder.open(run),
        RunVocabulary(interactions.users, interactions.items, interactions.seen),
    )
    if task_named(task_of(own)).model.predicts_ratings:
        raise SystemExit(
            f"The run {run} predicts ratings; give one of cfuica train --task ranking."
        )
    record, model = own.read_record(), cfuica.load(run)
    protocols = {}
    for name in interactions.data_split.description["protocols"]:
        found = evaluate_model(own, model, protocol=name, cutoffs=(CUT_OFF,))
        if not same_test(found.ranking_test, ranking_test_for(name, folder, warm)[0]):
            raise SystemExit(f"The run {run} is of other data; name its data with --data.")
        protocols[name] = found.as_json()
    return {
        "system": str(run),
        "settings": {"preset": record["preset"], **record["settings"]},
        "seconds": record["training"]["seconds"],
        "cpu_seconds": None,
        "protocols": protocols,
    }


def row(record: dict[str, Any]) -> dict[str, Any]:
    """A line of the table."""
    figures = {
        f"{metric.upper()}@{CUT_OFF} {name}": values[f"{metric}@{CUT_OFF}"]["value"]
        for name, values in record["protocols"].items()
        for metric in METRICS
    }
    return {
        "system": record["system"],
        **figures,
        "seconds": _in_seconds(record["seconds"]),
        "CPU seconds": _in_seconds(record["cpu_seconds"]),
    }


def _in_seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def as_text(settings: RatingSettings) -> str:
    """Settings in a line."""
    return ", ".join(f"{name} {value}" for name, value in settings.items()) or "no settings"


if __name__ == "__main__":
    main()
