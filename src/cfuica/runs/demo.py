"""The demo: CF-UIcA on a small world whose best possible RMSE is known."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

import polars as pl
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table as ConsoleTable

from cfuica.baselines.simple import GlobalMean, ItemMean, UserItemBias
from cfuica.data.splits import Split
from cfuica.data.synthetic import World, make_world
from cfuica.evaluation.metrics import rmse
from cfuica.rating_model import RatingModel
from cfuica.reporting.chart import ReferenceLine
from cfuica.reporting.html import Table, write_report
from cfuica.reporting.svg import line_chart
from cfuica.runs.demo_ranking import show_ranking
from cfuica.runs.folder import RunFolder
from cfuica.runs.job import run_training
from cfuica.runs.listeners import progress_listener
from cfuica.runs.parts import Parts
from cfuica.runs.report import learning_curves
from cfuica.runs.tables import ranked
from cfuica.settings import Settings

PRESET = "demo"
# Small blocks and few units for a small world; chosen on its validation part.
DEMO_SETTINGS = Settings(
    hidden_users=64,
    hidden_items=64,
    size_power=1.0,
    strangers=64,
    bridge_rate=0.03,
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
    """The whole demo, with `console` for everything it says."""
    start = time.perf_counter()
    settings = DEMO_SETTINGS.replaced(seed=seed)
    folder = RunFolder.create(out, overwrite=_is_ours(out))
    world = make_world(seed=seed)
    table = world.table
    console.print(
        f"[bold]cfuica demo[/bold]: a made-up world of {table.users.size:,} users, "
        f"{table.item_ids.size:,} titled items and {table.n:,} ratings from 1 to 5.",
        highlight=False,
    )
    split = Split.random(table.n, folds=10, fold=0, valid=0.05, seed=seed)
    parts = Parts.of_split(table, split, about={"kind": "random"})
    console.print(
        f"Training CF-UIcA on {parts.train.n:,} of them (first time: compiling kernels) ...",
        highlight=False,
    )
    with progress_listener(console) as listener:
        model = run_training(
            folder,
            parts,
            settings,
            preset_name=PRESET,
            listener=listener,
        )
    assert isinstance(model, RatingModel)  # that is what the preset is for
    rows = _scores(world, parts, model, split)
    best = rows[-1][1]
    console.print(_score_table(rows))
    bias, ours = rows[-3][1], rows[-2][1]
    console.print(
        f"CF-UIcA closes {(bias - ours) / (bias - best):.0%} of the gap between user + item bias "
        f"and the best that anyone could do.",
        highlight=False,
    )
    user = _somebody(parts)
    top = model.recommend([user], 5)
    console.print(ranked(top, f"Recommended to user {user}"))
    console.print(f"[bold]Why?[/bold] {escape(repr(model.explain(user, top['item'][0])))}")
    console.print(_newcomer(model, top))
    _write_report(folder, model, rows, parts)
    next_out = out.with_name(f"{out.name}-ranking")
    next_folder = RunFolder.create(next_out, overwrite=_is_ours(next_out))
    show_ranking(next_folder, world, user, preset=PRESET, seed=seed, console=console)
    console.print(
        f"Written to {escape(str(out))}/ and {escape(str(next_out))}/: the models (model/), "
        f"learning curves (report.html), metrics (metrics.jsonl). "
        f"{time.perf_counter() - start:.0f} s in all.",
        highlight=False,
    )
    run = escape(shlex.quote(str(out)))
    console.print(
        f"Try next:  [bold].venv/bin/cfuica recommend {run} --user {user} -n 10[/bold]\n"
        f"Your data: [bold].venv/bin/cfuica train ratings.csv --out my-run[/bold]",
        highlight=False,
        soft_wrap=True,
    )


def _newcomer(model: RatingModel, liked: pl.DataFrame) -> RenderableType:
    """Somebody whom training did not know is served from the first rating on."""
    item, title, best = liked["item"][0], liked["title"][0], model.knowledge.scale.values[-1]
    found = model.recommend(history=[(item, best)], n=3)
    return ranked(found, f"For a stranger who has rated one item, {title}, with {best:g}")


def _is_ours(out: Path) -> bool:
    """Whether there is an earlier demo in the folder, finished or not: then it may go."""
    folder = RunFolder(out)
    is_run = folder.can_be_resumed or folder.model.exists()
    return not is_run or folder.read_record().get("preset") == PRESET


def _scores(world: World, parts: Parts, model: RatingModel, split: Split) -> list[Row]:
    """Test RMSE of the simple baselines, ours, and the best possible, on the same test part."""
    assert parts.test is not None
    known, test = model.knowledge, parts.test.frame
    test_users, test_items = known.users.encode(test["user"]), known.items.encode(test["item"])
    truth = test["rating"].to_numpy()
    # The baselines learn from what ours reads at test time: train and validation.
    users, items, labels = known.behaviours.triplets()
    ratings = known.scale.values_array()[labels]
    rows: list[Row] = []
    for baseline in (GlobalMean(), ItemMean(), UserItemBias()):
        baseline.fit(users, items, ratings, n_users=known.users.size, n_items=known.items.size)
        rows.append((baseline.name, rmse(baseline.predict(test_users, test_items), truth)))
    rows.append(("CF-UIcA (ours)", model.evaluate(parts.test).rmse))
    rows.append(("best possible (the world's own noise)", world.best_rmse(split.test)))
    return rows


def _score_table(rows: list[Row]) -> ConsoleTable:
    table = ConsoleTable(title="Test RMSE (lower is better)", title_justify="left")
    table.add_column("model")
    table.add_column("RMSE", justify="right")
    for name, value in rows:
        style = "bold green" if "ours" in name else "dim" if "possible" in name else ""
        table.add_row(name, f"{value:.4f}", style=style)
    return table


def _somebody(parts: Parts) -> object:
    """The user with the most ratings, so that there is something to go by."""
    counts = parts.train.frame["user"].value_counts()
    return counts.sort("count", "user", descending=[True, False])["user"][0]


def _write_report(folder: RunFolder, model: RatingModel, rows: list[Row], parts: Parts) -> None:
    assert model.fitted is not None
    references = [ReferenceLine(name, value) for name, value in rows if "ours" not in name][-2:]
    write_report(
        folder.report,
        title="cfuica demo",
        intro=(
            f"CF-UIcA on a made-up world whose noise is known: {parts.train.n:,} ratings to "
            f"train on, {model.fitted.steps:,} minibatches in {model.fitted.seconds:.0f} s."
        ),
        tables=[
            Table(
                "Test RMSE",
                ("model", "RMSE"),
                [(name, f"{value:.4f}") for name, value in rows],
                highlight=len(rows) - 2,
            )
        ],
        charts=[line_chart(chart) for chart in learning_curves(model.fitted.history, references)],
        notes=[f"Made by: cfuica demo --out {folder.path}"],
    )
