"""`cfuica evaluate` tests a model or a file of predictions; `cfuica compare` compares two runs."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cfuica.cli.options import DEFAULT_AT, At, Protocol, cutoffs_of, reads_files, say_unknown
from cfuica.cli.output import JsonOnly, print_result, say_notes, table_of, titled
from cfuica.data.layout import FIND_OUT, ReadOptions

if TYPE_CHECKING:
    from cfuica.evaluation.evaluate import RankingEvaluation
    from cfuica.models.co_autoregressive import RatingModel
    from cfuica.run_folder import RunFolder


@reads_files
def evaluate(
    run: Annotated[Path, typer.Argument(help="A run folder.", metavar="RUN")],
    test: Annotated[
        Path | None, typer.Option(help="Ratings to test on instead of the run's own test set.")
    ] = None,
    protocol: Protocol = None,
    at: At = DEFAULT_AT,
    predictions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Predictions to test instead of the model: user, item and score, rank, or rating.",
        ),
    ] = None,
    json_: JsonOnly = False,
    options: ReadOptions = FIND_OUT,
) -> None:
    """Test a trained model, or predictions of another system, on a run's test set.

    Example:  cfuica evaluate runs/ml-1m --json

    Of ratings: RMSE, MAE, NLL, and the calibration of the predicted distributions
    (expected calibration error, variance). Of rankings: HR, NDCG, recall, precision,
    MRR, MAP and AUC, with 95% intervals over users; for a full ranking also coverage,
    novelty and popularity bias. The protocols: 'full' ranks all unseen items, 'paper'
    100 random ones (mean of 10 draws), 'ncf' NCF's own 99, all three for a user's last
    interaction; 'date' ranks all unseen items for everything after a day.
    """
    from cfuica.errors import SettingsError
    from cfuica.run_folder import RunFolder

    folder, cutoffs = RunFolder.open(run), cutoffs_of(at)
    if test is None and predictions is None and options != FIND_OUT:
        raise SettingsError("Options of reading a file need --test FILE or --predictions FILE.")
    if test is not None and (predictions is not None or protocol is not None):
        other = "--predictions" if predictions is not None else "--protocol"
        raise SettingsError(f"{other} is for a run's own test set; leave --test out.")
    if predictions is not None:
        _evaluate_predictions(folder, predictions, protocol, cutoffs, options, json_)
        return
    from cfuica.models.recommender import load

    model: Any = load(folder.path)
    if not model.predicts_ratings:
        if test is not None:
            raise SettingsError(
                f"--test is for ratings, but {run} ranks; leave it out to test by the run's own "
                f"test set."
            )
        from cfuica.evaluation.evaluate import evaluate_model

        _print_ranking(evaluate_model(folder, model, protocol=protocol, cutoffs=cutoffs), json_)
        return
    if protocol is not None:
        raise SettingsError(
            f"--protocol {protocol} is for runs that rank, but {run} predicts ratings; leave it "
            f"out, or give a ranking of another system with --predictions FILE."
        )
    _evaluate_ratings(folder, model, test, options, json_)


def _evaluate_ratings(
    folder: RunFolder, model: RatingModel, test: Path | None, options: ReadOptions, json_: bool
) -> None:
    from cfuica.data.table import Interactions
    from cfuica.models.warm_up import warm_up

    table = folder.read_test() if test is None else Interactions.read(test, options)
    say_notes(table.source_notes)
    unknown = say_unknown(model, users=table.frame["user"], items=table.frame["item"])
    warm_up()  # compiling kernels is not part of predicting
    start = time.perf_counter()
    scores = model.evaluate(table)
    seconds = time.perf_counter() - start
    metrics = {"rmse": scores.rmse, "mae": scores.mae, "nll": scores.nll}
    spread = scores.calibration.spread
    calibration = {
        "ece": scores.calibration.top_label_error,
        "predicted_variance": spread.predicted_variance,
        "squared_error": spread.squared_error,
    }
    counts = {f"unknown_{role}s": len(own) for role, own in unknown.items() if own}
    _print_ratings(metrics, calibration, scores.n, seconds, json_, counts)


def _evaluate_predictions(
    folder: RunFolder,
    path: Path,
    protocol: str | None,
    cutoffs: tuple[int, ...],
    options: ReadOptions,
    json_: bool,
) -> None:
    from cfuica.evaluation.evaluate import evaluate_table, task_of
    from cfuica.evaluation.predictions import rating_errors, read_predictions
    from cfuica.models.recommender import task_named

    predictions = read_predictions(path, options)
    say_notes(predictions.source_notes)
    if protocol is not None or not task_named(task_of(folder)).model.predicts_ratings:
        _print_ranking(
            evaluate_table(folder, predictions, protocol=protocol, cutoffs=cutoffs), json_
        )
        return
    start = time.perf_counter()
    rmse, mae, n = rating_errors(predictions, folder.read_test())
    _print_ratings({"rmse": rmse, "mae": mae}, {}, n, time.perf_counter() - start, json_)


def _print_ratings(
    metrics: dict[str, float],
    calibration: dict[str, float],
    n: int,
    seconds: float,
    json_: bool,
    unknown: Mapping[str, int] = MappingProxyType({}),
) -> None:
    if json_:
        typer.echo(json.dumps({**metrics, **calibration, "n": n, "seconds": seconds, **unknown}))
        return
    stated = "   ".join(f"{name.upper()} {value:.4f}" for name, value in metrics.items())
    typer.echo(f"{stated}   ({n:,} ratings in {seconds:.2f} s)")
    if calibration:
        names = {name: name.replace("_", " ") for name in calibration}
        names["ece"] = "expected calibration error"
        typer.echo("   ".join(f"{names[name]} {value:.4f}" for name, value in calibration.items()))


def _print_ranking(evaluation: RankingEvaluation, json_: bool) -> None:
    say_notes(evaluation.notes)
    test = evaluation.ranking_test
    title = (
        f"Protocol {test.protocol}: {test.n_users:,} users in {evaluation.seconds:.2f} s, 95% "
        f"intervals over users"
    )
    rows = [
        (name, *map(_metric, (each.value, each.low, each.high)))
        for name, each in evaluation.intervals.items()
    ]
    table = table_of(("metric", "value", "low", "high"), rows)
    print_result(json_, evaluation.as_json, lambda: titled(title, table))


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
    difference. Rankings by every metric, ratings by RMSE and MAE.
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
