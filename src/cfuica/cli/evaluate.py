"""`cfuica evaluate` tests a model or a file of predictions; `cfuica compare` compares two runs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group

from cfuica.cli.options import DEFAULT_AT, At, Protocol, cutoffs_of, reads_files, say_unknown
from cfuica.cli.output import (
    JsonOnly,
    Output,
    output_of,
    print_result,
    say_notes,
    table_of,
    titled,
)
from cfuica.data.layout import FIND_OUT, ReadOptions

if TYPE_CHECKING:
    import polars as pl

    from cfuica.evaluation.over_seeds import OverSeeds
    from cfuica.evaluation.protocols import RunVocabulary
    from cfuica.evaluation.rating_errors import RatingErrors
    from cfuica.models.ranking_evaluation import RankingEvaluation, WarmAndCold
    from cfuica.models.recommender import Recommender
    from cfuica.run_folder import RunFolder


FULL = "full"
PerUser = Annotated[
    Path | None,
    typer.Option(
        "--per-user",
        metavar="FILE",
        help="Also write the metrics of each user: a .csv, .json or .parquet file.",
    ),
]
Cold = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Also the metrics of cold users and items, which have fewer than N interactions in "
        "training, and of the warm ones.",
    ),
]


@dataclass(frozen=True)
class _Wanted:
    """What is asked for beside the metrics."""

    per_user: Output | None
    cold: int | None
    as_json: bool


@reads_files
def evaluate(
    run: Annotated[Path, typer.Argument(help="A run folder.", metavar="RUN")],
    test: Annotated[
        Path | None,
        typer.Option(help="Ratings or interactions to test on instead of the run's own test set."),
    ] = None,
    protocol: Protocol = None,
    at: At = DEFAULT_AT,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="expected|lower|blend",
            help="What a run that predicts ratings ranks by, with --protocol; as in recommend.",
        ),
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Predictions to test instead of the model: user, item and score, rank, or rating.",
        ),
    ] = None,
    per_user: PerUser = None,
    cold: Cold = None,
    json_: JsonOnly = False,
    options: ReadOptions = FIND_OUT,
) -> None:
    """Test a trained model, or predictions of another system, on a run's test set.

    Example:  cfuica evaluate runs/ml-1m --json

    Of ratings: RMSE, MAE, NLL, and the calibration of the predicted distributions
    (expected calibration error, variance). Of rankings: HR, NDCG, recall, precision,
    MRR, MAP and AUC, with 95% intervals over users; for a full ranking also coverage,
    novelty and popularity bias. With --protocol a run that predicts ratings is tested
    by the ranking metrics, too. The protocols: 'full' ranks all unseen items, 'paper'
    100 random ones (mean of 10 draws), 'ncf' NCF's own 99, all three for a user's last
    interaction. After another split 'full' ranks all unseen items for each user's test
    interactions, and is named like the split: date, random, users, given. A folder of
    train --seeds gives the mean and the spread (standard deviation) over the seeds.
    """
    from cfuica.errors import SettingsError
    from cfuica.evaluation.over_seeds import evaluate_seeds
    from cfuica.run_folder import RunFolder
    from cfuica.runs.seeds import seed_runs

    folder, cutoffs = RunFolder.open(run), cutoffs_of(at)
    if runs := seed_runs(run):
        if test is not None or predictions is not None:
            raise SettingsError(f"{run} has several seeds, which are tested on their own test set.")
        _print_seeds(evaluate_seeds(runs, protocol=protocol, cutoffs=cutoffs), json_)
        return
    wanted = _Wanted(None if per_user is None else output_of(out=per_user), cold, json_)
    if test is None and predictions is None and options != FIND_OUT:
        raise SettingsError("Options of reading a file need --test FILE or --predictions FILE.")
    if test is not None and (predictions is not None or protocol not in (None, FULL)):
        other = "--predictions" if predictions is not None else f"--protocol {protocol}"
        raise SettingsError(f"{other} is for a run's own test set; leave --test out.")
    if predictions is not None:
        _evaluate_predictions(folder, predictions, protocol, cutoffs, options, wanted)
        return
    from cfuica.models.recommender import load

    model: Any = load(folder.path)
    if model.predicts_ratings and protocol is None:
        if by is not None:
            raise SettingsError(f"--by {by} is of a ranking; add --protocol full.")
        _evaluate_ratings(folder, model, test, options, wanted)
        return
    if test is not None:
        from cfuica.data.table import Interactions

        # Whatever its rating, an interaction happened.
        table = Interactions.read(test, replace(options, empty_rating="keep"))
        say_notes(table.source_notes)
        found = model.evaluate_ranking(table, at=cutoffs, by=by, cold=cold)
    else:
        from cfuica.evaluation.evaluate import evaluate_model

        asked: Any = {"protocol": protocol, "cutoffs": cutoffs, "by": by, "cold": cold}
        found = evaluate_model(folder, model, **asked)
    _print_ranking(found, wanted)


def _evaluate_ratings(
    folder: RunFolder, model: Recommender, test: Path | None, options: ReadOptions, wanted: _Wanted
) -> None:
    from cfuica.data.table import Interactions
    from cfuica.evaluation.protocols import RunVocabulary
    from cfuica.evaluation.rating_errors import RatingErrors, rating_test
    from cfuica.models.warm_up import warm_up

    table = rating_test(folder) if test is None else Interactions.read(test, options)
    say_notes(table.source_notes)
    unknown = say_unknown(model, users=table.frame["user"], items=table.frame["item"])
    if model.predicts_distributions:
        warm_up()  # compiling kernels is not part of predicting
    start = time.perf_counter()
    scores = model.evaluate(table)
    seconds = time.perf_counter() - start
    metrics = {name.lower(): value for name, value in scores.named.items()}
    calibration = {}
    if model.predicts_distributions:
        spread = scores.calibration.spread
        calibration = {
            "ece": scores.calibration.top_label_error,
            "predicted_variance": spread.predicted_variance,
            "squared_error": spread.squared_error,
        }
    groups = None
    if wanted.per_user is not None or wanted.cold is not None:
        errors = RatingErrors.of_model(table.rated(), model)
        groups = _of_users_and_groups(errors, wanted, lambda: RunVocabulary.of_model(model))
    counts = {f"unknown_{role}s": len(own) for role, own in unknown.items() if own}
    _print_ratings(metrics, calibration, scores.n, seconds, wanted.as_json, groups, counts)


def _evaluate_predictions(
    folder: RunFolder,
    path: Path,
    protocol: str | None,
    cutoffs: tuple[int, ...],
    options: ReadOptions,
    wanted: _Wanted,
) -> None:
    from cfuica.evaluation.evaluate import evaluate_table, task_of
    from cfuica.evaluation.predictions import rating_errors, read_predictions
    from cfuica.evaluation.protocols import RunVocabulary
    from cfuica.evaluation.rating_errors import rating_test
    from cfuica.models.recommender import task_named

    predictions = read_predictions(path, options)
    say_notes(predictions.source_notes)
    if protocol is not None or not task_named(task_of(folder)).model.predicts_ratings:
        asked: Any = {"protocol": protocol, "cutoffs": cutoffs, "cold": wanted.cold}
        _print_ranking(evaluate_table(folder, predictions, **asked), wanted)
        return
    start = time.perf_counter()
    errors = rating_errors(predictions, rating_test(folder))
    seconds = time.perf_counter() - start
    groups = _of_users_and_groups(errors, wanted, lambda: RunVocabulary.of_run(folder))
    _print_ratings(errors.metrics, {}, errors.pairs.height, seconds, wanted.as_json, groups)


def _of_users_and_groups(
    errors: RatingErrors, wanted: _Wanted, run_vocabulary: Callable[[], RunVocabulary]
) -> WarmAndCold | None:
    """Write the errors of each user; give those of warm and cold users and items."""
    _write_users(wanted, errors.per_user)
    return None if wanted.cold is None else errors.warm_and_cold(run_vocabulary(), wanted.cold)


def _write_users(wanted: _Wanted, frame: pl.DataFrame) -> None:
    if wanted.per_user is not None:
        wanted.per_user.give(frame, what="users", shown=lambda: "")


def _print_seeds(over_seeds: OverSeeds, json_: bool) -> None:
    seeds = ", ".join(map(str, over_seeds.seeds))
    rows = [
        (name, *map(_metric, (over_seeds.mean(name), over_seeds.spread(name), *values)))
        for name, values in over_seeds.metrics.items()
    ]
    columns = ("metric", "mean", "spread", *(f"seed {seed}" for seed in over_seeds.seeds))
    print_result(
        json_, over_seeds.as_json, lambda: titled(f"Seeds {seeds}", table_of(columns, rows))
    )


def _print_ratings(
    metrics: dict[str, float],
    calibration: dict[str, float],
    n: int,
    seconds: float,
    json_: bool,
    groups: WarmAndCold | None,
    unknown: Mapping[str, int] = MappingProxyType({}),
) -> None:
    if json_:
        more: dict[str, Any] = {**unknown}
        if groups is not None:
            more["warm_and_cold"] = groups
        typer.echo(json.dumps({**metrics, **calibration, "n": n, "seconds": seconds, **more}))
        return
    stated = "   ".join(f"{name.upper()} {value:.4f}" for name, value in metrics.items())
    typer.echo(f"{stated}   ({n:,} ratings in {seconds:.2f} s)")
    if calibration:
        names = {name: name.replace("_", " ") for name in calibration}
        names["ece"] = "expected calibration error"
        typer.echo("   ".join(f"{names[name]} {value:.4f}" for name, value in calibration.items()))
    if groups is not None:
        print_result(False, dict, lambda: _table_of_groups(groups, metrics, "ratings"))


def _print_ranking(evaluation: RankingEvaluation, wanted: _Wanted) -> None:
    say_notes(evaluation.notes)
    _write_users(wanted, evaluation.per_user)
    test = evaluation.ranking_test
    title = (
        f"Protocol {test.protocol}: {test.n_users:,} users in {evaluation.seconds:.2f} s, 95% "
        f"intervals over users"
    )
    rows = [
        (name, *map(_metric, (each.value, each.low, each.high)))
        for name, each in evaluation.intervals.items()
    ]
    shown = [titled(title, table_of(("metric", "value", "low", "high"), rows))]
    if (groups := evaluation.warm_and_cold) is not None:
        shown.append(_table_of_groups(groups, evaluation.intervals, "users or test interactions"))
    print_result(wanted.as_json, evaluation.as_json, lambda: Group(*shown))


def _table_of_groups(groups: WarmAndCold, metrics: Iterable[str], what: str) -> Group:
    """A column for each of warm users, cold users, warm items, cold items."""
    columns = {
        f"{name} {axis}": values
        for axis, of_axis in groups.items()
        for name, values in of_axis.items()
    }
    rows = [(what, *(f"{values['n']:,}" for values in columns.values()))]
    rows += [
        (metric, *(_metric(values.get(metric)) for values in columns.values()))
        for metric in metrics
        if any(metric in values for values in columns.values())
    ]
    return titled("Warm and cold users and items", table_of(("metric", *columns), rows))


def compare(
    first: Annotated[Path, typer.Argument(help="A run folder.", metavar="RUN")],
    second: Annotated[Path, typer.Argument(help="Another one.", metavar="RUN")],
    protocol: Protocol = None,
    at: At = DEFAULT_AT,
    json_: JsonOnly = False,
) -> None:
    """Compare two runs on the test set that they share: first less second.

    Example:  cfuica compare runs/ours runs/theirs --protocol full

    The intervals hold 95% of 1,000 resamples of the users, the same for both runs;
    'other side of 0' is the share of the resamples that contradict the sign of the
    difference. Rankings by every metric, ratings by RMSE and MAE; with --protocol
    runs that predict ratings are compared by their rankings.
    """
    from cfuica.evaluation.evaluate import compare as compare_runs
    from cfuica.run_folder import RunFolder

    folders = [RunFolder.open(run) for run in (first, second)]
    comparison = compare_runs(*folders, protocol=protocol, cutoffs=cutoffs_of(at))
    by = "ratings" if comparison.protocol is None else f"protocol {comparison.protocol}"
    title = f"{by}, {comparison.users:,} users, 95% intervals over users"
    rows = []
    for name, each in comparison.metrics.items():
        gap = each.difference
        share = "" if gap.other_side is None else f"{gap.other_side:.1%}"
        signed = (_metric(value, "+.4f") for value in (gap.value, gap.low, gap.high))
        rows.append((name, _metric(each.first), _metric(each.second), *signed, share))
    columns = ("metric", *comparison.runs, "difference", "low", "high", "other side of 0")
    print_result(json_, comparison.as_json, lambda: titled(title, table_of(columns, rows)))


def _metric(value: float | None, form: str = ".4f") -> str:
    return "" if value is None else format(value, form)
