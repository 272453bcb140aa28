"""`cfuica predict`: ratings of the pairs in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cfuica.cli.options import UNKNOWN, Run, Unknown, check_choice, given, reads_files
from cfuica.cli.output import FOR_PEOPLE, Output, gives_a_table
from cfuica.data.layout import FIND_OUT, ReadOptions

if TYPE_CHECKING:
    import polars as pl

    from cfuica.data.table import Interactions


@gives_a_table
@reads_files
def predict(
    run: Run,
    pairs: Annotated[Path, typer.Option(help="File with columns user and item.")],
    distribution: Annotated[
        bool,
        typer.Option(
            "--distribution", help="Also the probability of each rating, in columns p(RATING)."
        ),
    ] = False,
    unknown: Unknown = None,
    options: ReadOptions = FIND_OUT,
    output: Output = FOR_PEOPLE,
) -> None:
    """Predict the rating of each pair in a file: user, item, prediction.

    Example:  cfuica predict runs/ml-1m --pairs pairs.csv --out predictions.csv
    """
    from cfuica.data.layout import PAIR
    from cfuica.data.readers import read_table
    from cfuica.models.recommender import load

    check_choice("--unknown", unknown, *UNKNOWN)
    table = read_table(pairs, options, only=PAIR)
    for note in table.source_notes:
        typer.echo(note, err=True)
    model, cold_start = load(run), given(unknown=unknown)
    predictions = model.predict(table, **cold_start)
    if distribution:
        predictions = predictions.with_columns(**_distribution(model, table, cold_start))
    from cfuica.cli.tables import plain_table

    output.give(predictions, what="predictions", shown=lambda: plain_table(predictions))


def _distribution(
    model: Any, pairs: Interactions, cold_start: dict[str, Any]
) -> dict[str, pl.Series]:
    """Columns of probabilities by name, ratings ascending."""
    import polars as pl

    p_pk = model.predict_proba(pairs, **cold_start)
    values = model.artifact.scale.values
    # Means of bins may need all digits.
    names = [f"{v:g}" if float(f"{v:g}") == v else repr(v) for v in values]
    return {f"p({name})": pl.Series(p_pk[:, k]) for k, name in enumerate(names)}
