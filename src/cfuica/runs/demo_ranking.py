"""The second half of the demo: what users do next, in the same world."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.table import Table as ConsoleTable

from cfuica.data.synthetic import World
from cfuica.data.table import BehaviourTable
from cfuica.data.titles import numeral
from cfuica.evaluation.answering import answer
from cfuica.evaluation.lists import Popularity
from cfuica.presets import ranking_preset
from cfuica.ranking_model import RankingModel
from cfuica.runs.evaluating import evaluate_model
from cfuica.runs.folder import RunFolder
from cfuica.runs.job import run_training
from cfuica.runs.listeners import progress_listener
from cfuica.runs.parts import Parts
from cfuica.runs.tables import ranked
from cfuica.runs.test_items import FULL
from cfuica.settings import RankingSettings

# What a small world needs instead of the preset; chosen on its validation part.
CHANGES = {
    "members": 1,
    "hidden_users": 32,
    "hidden_items": 128,
    "layer": 0,
    "dropout": 0.4,
    "batch_users": 32,
    "learning_rate": 8e-3,
    "epsilon": 1e-8,
    "epochs": 3,
    "validate_every": 32,
}
WIDTH = 76
"""Of a command, before it goes on in the next line."""
PARTS_SEEN = 2
"""Of a series, by somebody who is asked what comes next."""


def demo_settings(seed: int) -> RankingSettings:
    """What the ranking model of the demo is trained with."""
    return ranking_preset("default").replaced(**CHANGES, seed=seed)


@dataclass(frozen=True)
class ByPopularity:
    """Scores everything by how many users did it, whoever asks."""

    counts_m: NDArray[np.int64]

    def scores(self, users_b: NDArray[np.int32]) -> NDArray[np.float32]:
        """(B, M) of all items."""
        return np.tile(self.counts_m.astype(np.float32), (len(users_b), 1))

    def candidate_scores(
        self, users_b: NDArray[np.int32], items_bc: NDArray[np.int32]
    ) -> NDArray[np.float32]:
        """(B, C) of these items of each user."""
        return self.counts_m[items_bc].astype(np.float32)


def show_ranking(
    folder: RunFolder, world: World, user: object, *, preset: str, seed: int, console: Console
) -> None:
    """Train, evaluate and recommend, each with the command that does the same."""
    run, settings = shlex.quote(str(folder.path)), demo_settings(seed)
    parts = Parts.leave_one_out(world.table)
    console.print(
        "[bold]What comes next?[/bold] The same world by the order in which things were done; each "
        "user's last behaviour is the test.",
        highlight=False,
    )
    if seed == 0:  # the registered world
        changes = [f"--set {name}={value}" for name, value in CHANGES.items()]
        _command(console, f"train demo --task ranking --out {run}", *changes)
    with progress_listener(console) as listener:
        model = run_training(folder, parts, settings, preset_name=preset, listener=listener)
    assert isinstance(model, RankingModel)  # that is what the settings are for

    _command(console, f"evaluate {run} --protocol {FULL}")
    console.print(_score_table(folder, model))
    _command(console, f"recommend {run} --user {user} -n 3")
    console.print(ranked(model.recommend(user, 3).drop("user"), f"Next for user {user}"))
    history = _beginning_of_a_series(world.table)
    told = ",".join(map(str, history["item"]))
    _command(console, f"recommend {run} --history {told} -n 3")
    titles = " and then ".join(history["title"])
    console.print(
        ranked(model.recommend(history=history["item"], n=3), f"Next for a stranger after {titles}")
    )


def _command(console: Console, *arguments: str) -> None:
    """Lines that a shell takes as they are."""
    lines = [".venv/bin/cfuica"]
    for argument in arguments:
        if len(lines[-1]) + len(argument) > WIDTH:
            lines.append("   ")
        lines[-1] += f" {argument}"
    typed = escape(" \\\n".join(lines))
    console.print(f"[dim]$ {typed}[/dim]", highlight=False, soft_wrap=True)


def _score_table(folder: RunFolder, model: RankingModel) -> ConsoleTable:
    found = evaluate_model(folder, model, protocol=FULL, cutoffs=(10,))
    counts_m = Popularity.of(model.seen, model.items.size).counts_m
    popular = answer(found.questions, ByPopularity(counts_m), (10,))
    table = ConsoleTable(title=f"Protocol {FULL} (higher is better)", title_justify="left")
    table.add_column("model")
    for metric in ("HR@10", "NDCG@10"):
        table.add_column(metric, justify="right")
    for name, result in (("popularity", popular), ("CF-UIcA (ours)", found.result)):
        values = (f"{result.value(metric):.4f}" for metric in ("hr@10", "ndcg@10"))
        table.add_row(name, *values, style="bold green" if "ours" in name else "")
    return table


def _beginning_of_a_series(table: BehaviourTable) -> pl.DataFrame:
    """item, title: the first parts of the series that was done most, of those that go on."""
    assert table.items is not None
    times_done = table.frame["item"].value_counts(name="times")
    items = table.items.join(times_done, on="item")
    id_of = dict(zip(items["title"], items["item"], strict=True))
    best = items.sort("times", "item", descending=[True, False])
    for first in best["title"]:
        titles = [first + numeral(part) for part in range(1, PARTS_SEEN + 2)]
        if all(title in id_of for title in titles):
            seen = titles[:PARTS_SEEN]
            return pl.DataFrame({"item": [id_of[title] for title in seen], "title": seen})
    # A world may be too small to have a series: then it is the best known.
    return best.select("item", "title").head(PARTS_SEEN)
