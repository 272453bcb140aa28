"""What other systems take over from a model: `cfuica export vectors`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cfuica.cli.options import EXIT_CODES, Run, check_choice
from cfuica.errors import SettingsError

app = typer.Typer(
    help="Write what other systems can serve from.",
    epilog="Example:  cfuica export vectors runs/ranking --out vectors",
    no_args_is_help=True,
)


@app.callback()
def _export() -> None:
    pass


@app.command("vectors", epilog=EXIT_CODES)
def vectors(
    run: Run,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder to write.")],
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="parquet|npy",
            help="users.parquet and items.parquet (id, vector), or users.npy and items.npy with "
            "the ids of the rows in users.csv and items.csv.",
        ),
    ] = "parquet",
) -> None:
    """Write vectors of users and items whose inner product is the score of a ranking model.

    Example:  cfuica export vectors runs/ranking --out vectors

    The items with the largest inner products are those that recommend gives, after the items
    that the user has seen are left out. The command compares both for a sample of users, and
    writes nothing if they differ.
    """
    from cfuica.models.recommender import load
    from cfuica.models.vector_export import CHECKED_ITEMS, export_vectors
    from cfuica.run_folder import owner_of

    check_choice("--format", format_, "parquet", "npy")
    own = {f"{name}.{end}" for name in ("users", "items") for end in ("parquet", "npy", "csv")}
    reason = None
    if out.exists() and not out.is_dir():
        reason = "it is a file"
    elif out.is_dir() and {path.name for path in out.iterdir()} - own:
        reason = "it has other files"
    elif owner := owner_of(out / "users.parquet") or owner_of(out):
        reason = f"it is a place of {owner}"
    if reason:
        raise SettingsError(f"--out {out} cannot be written: {reason}; give another folder.")
    form: Any = format_
    checked = export_vectors(load(run), out, form)
    typer.echo(
        f"Vectors written to {out}; for {checked:,} users their top {CHECKED_ITEMS} are those of "
        f"recommend.",
        err=True,
    )
