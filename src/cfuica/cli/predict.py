"""cfuica predict"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cfuica.cli.reading import reads_files
from cfuica.data.options import FIND_OUT, ReadOptions


@reads_files
def predict(
    run: Annotated[Path, typer.Argument(help="A run or model folder.", metavar="RUN")],
    pairs: Annotated[Path, typer.Option(help="File with columns user and item.")],
    out: Annotated[Path, typer.Option(help="CSV file to write: user, item, prediction.")],
    options: ReadOptions = FIND_OUT,
) -> None:
    """Predict the rating of each pair in a file.

    Example:  cfuica predict runs/ml-1m --pairs pairs.csv --out predictions.csv
    """
    from cfuica.atomic import write_bytes_atomically
    from cfuica.data.layout import PAIR
    from cfuica.data.reading import read_table
    from cfuica.errors import CfuicaError
    from cfuica.model_folder import load

    if out.is_dir() or not out.parent.is_dir():
        raise CfuicaError(f"--out {out} cannot be written: give a file in an existing folder.")
    table = read_table(pairs, options, only=PAIR)
    for note in table.source_notes:
        typer.echo(note, err=True)
    predictions = load(run).predict(table)
    write_bytes_atomically(out, predictions.write_csv().encode())
    typer.echo(f"{predictions.height:,} predictions written to {out}", err=True)
