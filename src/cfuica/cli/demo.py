"""The demo: CF-UIcA on synthetic data whose best possible RMSE is known.

`run_demo` trains a rating model, compares it with simple baselines and the best possible RMSE, and
shows recommendations and an explanation. `show_ranking` then trains a ranking model on the same
interactions in temporal order.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import polars as pl
from rich.console import Console, Group
from rich.markup import escape

from cfuica.baselines.means import GlobalMean, ItemMean, UserItemBias
from cfuica.cli.output import ranked, table_of, titled
from cfuica.data.split_tables import DataSplit
from cfuica.data.splits import FULL, Split
from cfuica.data.synthetic import NUMERALS, World, make_world
from cfuica.data.table import Interactions
from cfuica.evaluation.evaluate import evaluate_model
from cfuica.metrics.ranking_metrics import Popularity, answer
from cfuica.metrics.rating_metrics import rmse
from cfuica.model.network import Ranker
from cfuica.models.co_autoregressive import RankingModel, RatingModel
from cfuica.run_folder import RunFolder
from cfuica.runs.callbacks import progress_callback
from cfuica.runs.run import Job
from cfuica.settings import RatingSettings, ranking_preset

# Changes of the preset for small data; tuned on the validation set.
CHANGES = {
    "ensemble_size": 1,
    "hidden_users": 32,
    "hidden_items": 128,
    "residual_units": 0,
    "dropout": 0.4,
    "batch_users": 32,
    "learning_rate": 8e-3,
    "epsilon": 1e-8,
    "epochs": 3,
    "validate_every": 32,
}
WIDTH = 76  # Characters of a command before a line break.
PARTS_SEEN = 2  # Parts of a series in the ad-hoc history of the demo.


def show_ranking(
    folder: RunFolder, world: World, user: object, *, preset: str, seed: int, console: Console
) -> None:
    """Train, evaluate and recommend, each with the equivalent command."""
    run, data_split = shlex.quote(str(folder.path)), DataSplit.leave_one_out(world.table)
    settings = ranking_preset("default").replaced(**CHANGES, seed=seed)
    console.print(
        "[bold]What comes next?[/bold] The same interactions in temporal order; each user's last "
        "one is the test.",
    )
    if seed == 0:  # the data set `demo`
        changes = [f"--set {name}={value}" for name, value in CHANGES.items()]
        _command(console, f"train demo --task ranking --out {run}", *changes)
    with progress_callback(console) as callback:
        model = Job.new(folder, data_split, settings, preset=preset).run(callback)

    model = cast("RankingModel", model)  # that is what the settings are for
    _command(console, f"evaluate {run} --protocol {FULL}")
    console.print(_ranking_score_table(folder, model))
    _command(console, f"recommend {run} --user {user} -n 3")
    console.print(ranked(model.recommend(user, 3).drop("user"), f"Next for user {user}"))
    history = _beginning_of_a_series(world.table)
    stated = ",".join(map(str, history["item"]))
    _command(console, f"recommend {run} --history {stated} -n 3")
    titles = " and then ".join(history["title"])
    console.print(
        ranked(
            model.recommend(history=history["item"], n=3),
            f"Next for a cold-start user after {titles}",
        )
    )


def _program() -> str:
    """This program as it is typed here: by its name alone where the shell finds it."""
    typed = sys.argv[0]
    found = shutil.which("cfuica")
    is_found = found is not None and os.path.realpath(found) == os.path.realpath(typed)
    return "cfuica" if is_found else shlex.quote(typed)


def _command(console: Console, *arguments: str) -> None:
    """Print a command that can be pasted into a shell."""
    lines = [_program()]
    for argument in arguments:
        if len(lines[-1]) + len(argument) > WIDTH:
            lines.append("   ")
        lines[-1] += f" {argument}"
    typed = escape(" \\\n".join(lines))
    console.print(f"[dim]$ {typed}[/dim]", soft_wrap=True)


def _ranking_score_table(folder: RunFolder, model: RankingModel) -> Group:
    found = evaluate_model(folder, model, protocol=FULL, cutoffs=(10,))
    counts_m = Popularity.of(model.seen, model.items.size).counts_m.astype(np.float32)
    # No vectors: only the bias tells items apart.
    users_n0, items_m0 = (np.zeros((n, 0), np.float32) for n in (model.users.size, counts_m.size))
    popular = answer(found.ranking_test, Ranker(users_n0, items_m0, counts_m), (10,))
    rows = [
        (name, *(f"{result.value(metric):.4f}" for metric in ("hr@10", "ndcg@10")))
        for name, result in (("popularity", popular), (OURS, found.result))
    ]
    title = f"Protocol {FULL} (higher is better)"
    return _score_table(title, ("model", "HR@10", "NDCG@10"), rows)


def _beginning_of_a_series(table: Interactions) -> pl.DataFrame:
    """item, title: the first parts of the most popular series that has more of them."""
    assert table.items is not None
    times_done = table.frame["item"].value_counts(name="times")
    items = table.items.join(times_done, on="item")
    id_of = dict(zip(items["title"], items["item"], strict=True))
    best = items.sort("times", "item", descending=[True, False])
    for first in best["title"]:
        titles = [first + numeral for numeral in NUMERALS[: PARTS_SEEN + 1]]
        if all(title in id_of for title in titles):
            seen = titles[:PARTS_SEEN]
            return pl.DataFrame({"item": [id_of[title] for title in seen], "title": seen})
    # Small data may have no series: then the most popular items.
    return best.select("item", "title").head(PARTS_SEEN)


PRESET = "demo"
OURS = "CF-UIcA (ours)"  # the name of the model among the others
# Small minibatches and few units for small data; tuned on the validation set.
DEMO_SETTINGS = RatingSettings(
    hidden_users=64,
    hidden_items=64,
    length_normalisation=1.0,
    cold_start_units=64,
    bilinear_rate=0.03,
    batch_users=300,
    batch_items=150,
    learning_rate=1e-2,
    l2=3e-4,
    schedule="planned",
    max_steps=600,
    validate_every=50,
)

Row = tuple[str, float]


def run_demo(out: Path, *, seed: int, console: Console) -> None:
    """Run the whole demo, with all output on `console`."""
    start = time.perf_counter()
    settings = DEMO_SETTINGS.replaced(seed=seed)
    folder = RunFolder.create(out, overwrite=_is_ours(out))
    world = make_world(seed=seed)
    table = world.table
    console.print(
        f"[bold]cfuica demo[/bold]: a made-up world of {table.users.size:,} users, "
        f"{table.item_ids.size:,} titled items and {table.n:,} ratings from 1 to 5.",
    )
    split = Split.random(table.n, folds=10, fold=0, valid=0.05, seed=seed)
    data_split = DataSplit.of_split(table, split, kind="random")
    console.print(
        f"Training CF-UIcA on {data_split.train.n:,} of them (first time: compiling kernels) ...",
    )
    with progress_callback(console) as callback:
        model = Job.new(folder, data_split, settings, preset=PRESET).run(callback)
    model = cast("RatingModel", model)  # that is what the preset is for
    rows = _scores(world, data_split, model, split)
    stated = [(name, f"{value:.4f}") for name, value in rows]
    console.print(_score_table("Test RMSE (lower is better)", ("model", "RMSE"), stated))
    bias, ours, best = (value for _, value in rows[-3:])
    console.print(
        f"CF-UIcA closes {(bias - ours) / (bias - best):.0%} of the gap between user + item bias "
        f"and the best that anyone could do.",
    )
    counts = data_split.train.frame["user"].value_counts()
    user = counts.sort("count", "user", descending=[True, False])["user"][0]  # with most ratings
    top = model.recommend([user], 5)
    console.print(ranked(top, f"Recommended to user {user}"))
    console.print(f"[bold]Why?[/bold] {escape(repr(model.explain(user, top['item'][0])))}")
    # A cold-start user is served from the first rating on.
    item, title, highest = top["item"][0], top["title"][0], model.scale.values[-1]
    next_best = model.recommend(history=[(item, highest)], n=3)
    whose = f"For a cold-start user who has rated one item, {title}, with {highest:g}"
    console.print(ranked(next_best, whose))
    next_out = out.with_name(f"{out.name}-ranking")
    next_folder = RunFolder.create(next_out, overwrite=_is_ours(next_out))
    show_ranking(next_folder, world, user, preset=PRESET, seed=seed, console=console)
    console.print(
        f"Written to {escape(str(out))}/ and {escape(str(next_out))}/: the models (model/), "
        f"learning curves (report.html), metrics (metrics.jsonl). "
        f"{time.perf_counter() - start:.0f} s in all.",
    )
    run, program = escape(shlex.quote(str(out))), escape(_program())
    console.print(
        f"Try next:  [bold]{program} recommend {run} --user {user} -n 10[/bold]\n"
        f"Your data: [bold]{program} train ratings.csv --out my-run[/bold]",
        soft_wrap=True,
    )


def _is_ours(out: Path) -> bool:
    """Whether the folder holds only an earlier demo, finished or not, and may be replaced."""
    folder = RunFolder(out)
    is_run = folder.can_be_resumed or folder.model.exists()
    return not is_run or folder.read_record().get("preset") == PRESET


def _scores(world: World, data_split: DataSplit, model: RatingModel, split: Split) -> list[Row]:
    """Test RMSE of the simple baselines, ours, and the best possible, on the same test set."""
    test, valid = data_split.test, data_split.valid
    assert test is not None
    truth, rows = test.frame["rating"].to_numpy(), []
    # The baselines learn from the interactions that ours reads at test time: train and validation.
    for baseline in (GlobalMean(), ItemMean(), UserItemBias()):
        baseline.fit(data_split.train, valid=valid, vocabulary=data_split.whole)
        rows.append((baseline.name, rmse(baseline.predict(test)["prediction"].to_numpy(), truth)))
    rows.append((OURS, model.evaluate(test).rmse))
    rows.append(("best possible (the world's own noise)", world.best_rmse(split.test)))
    return rows


def _score_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Group:
    """The model's own row is highlighted, that of the best possible is dim."""
    table = table_of(columns, ())
    for row in rows:
        style = "bold green" if row[0] == OURS else "dim" if "possible" in row[0] else ""
        table.add_row(*row, style=style)
    return titled(title, table)
