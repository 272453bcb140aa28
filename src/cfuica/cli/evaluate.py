"""cfuica evaluate"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cfuica.cli.reading import reads_files
from cfuica.data.options import FIND_OUT, ReadOptions


@reads_files
def evaluate(
    run: Annotated[Path, typer.Argument(help="A run folder.", metavar="RUN")],
    test: Annotated[
        Path | None, typer.Option(help="Ratings to test on instead of the run's own test part.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
    options: ReadOptions = FIND_OUT,
) -> None:
    """Test a trained model: RMSE, MAE, NLL, and whether its distributions can be believed.

    Example:  cfuica evaluate runs/ml-1m --json
    """
    import json
    import time

    from cfuica.data.table import BehaviourTable
    from cfuica.errors import SettingsError
    from cfuica.model_folder import load
    from cfuica.runs.folder import RunFolder
    from cfuica.warm import warm_up

    folder = RunFolder.open(run)
    model = load(folder.path)
    if test is None and options != FIND_OUT:
        raise SettingsError("How a file is read can only be told with --test FILE.")
    table = folder.read_test() if test is None else BehaviourTable.read(test, options)
    for note in table.source_notes:
        typer.echo(note, err=True)
    warm_up()  # compiling kernels is not part of predicting
    start = time.perf_counter()
    scores = model.evaluate(table)
    seconds = time.perf_counter() - start
    calibration = scores.calibration
    if json_:
        typer.echo(
            json.dumps(
                {
                    "rmse": scores.rmse,
                    "mae": scores.mae,
                    "nll": scores.nll,
                    "ece": calibration.top_label_error,
                    "predicted_variance": calibration.spread.predicted_variance,
                    "squared_error": calibration.spread.squared_error,
                    "n": scores.n,
                    "seconds": seconds,
                }
            )
        )
        return
    typer.echo(
        f"RMSE {scores.rmse:.4f}   MAE {scores.mae:.4f}   NLL {scores.nll:.4f}   "
        f"({scores.n:,} ratings in {seconds:.2f} s)\n"
        f"expected calibration error {calibration.top_label_error:.4f}   predicted variance "
        f"{calibration.spread.predicted_variance:.4f}   squared error "
        f"{calibration.spread.squared_error:.4f}"
    )
