"""`cfuica evaluate` tests a model or a file of predictions; `cfuica compare` compares two runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cfuica.cli.options import (
    DEFAULT_AT,
    At,
    JsonOnly,
    Protocol,
    cutoffs_of,
    print_result,
    reads_files,
)
from cfuica.data.layout import FIND_OUT, ReadOptions

if TYPE_CHECKING:
    from cfuica.evaluation.evaluate import RankingEvaluation
    from cfuica.models.rating_model import RatingModel
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
    import time

    from cfuica.data.table import Interactions
    from cfuica.models.warm_up import warm_up

    table = folder.read_test() if test is None else Interactions.read(test, options)
    for note in table.source_notes:
        typer.echo(note, err=True)
    warm_up()  # compiling kernels is not part of predicting
    start = time.perf_counter()
    scores = model.evaluate(table)
    seconds = time.perf_counter() - start
    calibration = scores.calibration
    metrics = {"rmse": scores.rmse, "mae": scores.mae, "nll": scores.nll}
    calibration_scores = {
        "ece": calibration.top_label_error,
        "predicted_variance": calibration.spread.predicted_variance,
        "squared_error": calibration.spread.squared_error,
    }
    _print_ratings(metrics, scores.n, seconds, json_, calibration_scores)


def _evaluate_predictions(
    folder: RunFolder,
    path: Path,
    protocol: str | None,
    cutoffs: tuple[int, ...],
    options: ReadOptions,
    json_: bool,
) -> None:
    import time

    from cfuica.evaluation.evaluate import (
        evaluate_table,
        rating_errors,
        read_predictions,
        task_of,
    )
    from cfuica.models.recommender import task_named

    predictions = read_predictions(path, options)
    for note in predictions.notes:
        typer.echo(note, err=True)
    if protocol is not None or not task_named(task_of(folder)).model.predicts_ratings:
        _print_ranking(
            evaluate_table(folder, predictions, protocol=protocol, cutoffs=cutoffs), json_
        )
        return
    start = time.perf_counter()
    rmse, mae, n = rating_errors(predictions, folder.read_test())
    _print_ratings({"rmse": rmse, "mae": mae}, n, time.perf_counter() - start, json_)


def _print_ratings(
    metrics: dict[str, float],
    n: int,
    seconds: float,
    json_: bool,
    calibration_scores: dict[str, float] | None = None,
) -> None:
    import json

    if json_:
        typer.echo(
            json.dumps({**metrics, **(calibration_scores or {}), "n": n, "seconds": seconds})
        )
        return
    stated = "   ".join(f"{name.upper()} {value:.4f}" for name, value in metrics.items())
    typer.echo(f"{stated}   ({n:,} ratings in {seconds:.2f} s)")
    if calibration_scores is not None:
        names = {"ece": "expected calibration error"}
        stated = "   ".join(
            f"{names.get(name, name.replace('_', ' '))} {value:.4f}"
            for name, value in calibration_scores.items()
        )
        typer.echo(stated)


def _print_ranking(evaluation: RankingEvaluation, json_: bool) -> None:
    from cfuica.cli.tables import measured

    for note in evaluation.notes:
        typer.echo(note, err=True)
    test = evaluation.ranking_test
    title = (
        f"Protocol {test.protocol}: {test.n_users:,} users in {evaluation.seconds:.2f} s, 95% "
        f"intervals over users"
    )
    print_result(json_, evaluation.as_json, lambda: measured(title, evaluation.intervals))


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
    from cfuica.cli.tables import compared
    from cfuica.evaluation.compare import compare as compare_runs
    from cfuica.run_folder import RunFolder

    folders = [RunFolder.open(run) for run in (first, second)]
    comparison = compare_runs(*folders, protocol=protocol, cutoffs=cutoffs_of(at))
    by = "ratings" if comparison.protocol is None else f"protocol {comparison.protocol}"
    title = f"{by}, {comparison.users:,} users, 95% intervals over users"
    print_result(json_, comparison.as_json, lambda: compared(title, comparison))
