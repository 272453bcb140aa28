"""Words of the command line as what a model is asked: ids, histories, rules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cfuica.data.layout import is_number, short
from cfuica.errors import SettingsError

if TYPE_CHECKING:
    import polars as pl

    from cfuica.data.vocabulary import Vocabulary
Run = Annotated[Path, typer.Argument(help="A run or model folder.", metavar="RUN")]
History = Annotated[
    str | None,
    typer.Option(
        metavar="ITEM:RATING,...",
        help="Ratings of an anonymous user; the rating stands behind the last colon. For "
        "a model that ranks and reads no ratings ITEM,ITEM,..., newest last.",
    ),
]
HistoryFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The same as a file with these columns, of any format, newest in its last row; "
        "columns of times are not read.",
    ),
]
Unknown = Annotated[
    str | None,
    typer.Option(
        metavar="serve|error",
        help="Users and items that are not in the training data: serve them cold, or refuse them.",
        show_default="serve",
    ),
]
UNKNOWN = ("serve", "error")


def ids(option: str, given: list[str]) -> list[str]:
    """Each id once, without the spaces around it, as the readers of files have it."""
    stripped = [each.strip() for each in given]
    if "" in stripped:
        raise SettingsError(f"{option} is empty, but an id was expected; give one.")
    return list(dict.fromkeys(stripped))


def users_of_file(path: Path) -> pl.Series:
    """The users of a file with a column user, each once, in the order of the file."""
    from cfuica.data.readers import read_table

    return read_table(path, only=("user",)).frame["user"].unique(maintain_order=True)


def history_of(text: str | None, path: Path | None, *, rated: bool) -> pl.DataFrame | None:
    """Item and, where the model reads it (`rated`), rating of each interaction that --history or
    --history-file tells, if either does."""
    import polars as pl

    from cfuica.data.frames import check_once

    if text is not None and path is not None:
        raise SettingsError("--history and --history-file tell the same; give one of them.")
    columns = ("item", "rating") if rated else ("item",)
    if text is not None:
        rows = [_interaction(entry) if rated else (_item(entry),) for entry in text.split(",")]
        history, place = pl.DataFrame(rows, schema=list(columns), orient="row"), "--history"
    elif path is not None:
        from cfuica.data.readers import read_table

        history = read_table(path, only=columns).frame.select(columns)
        place = str(path)
    else:
        return None
    check_once(history["item"], place, rated=rated)
    return history


def say_unread(history: pl.DataFrame | None, items: Vocabulary) -> None:
    """Say on standard error which items of a history are not known, as nothing is read of them."""
    if history is None:
        return
    unknown = history["item"].filter(items.encode(history["item"]) < 0)
    if len(unknown):
        others = f" and {len(unknown) - 1:,} more" if len(unknown) > 1 else ""
        typer.echo(
            f"The model does not know the item {unknown[0]!r}{others} of the history, of which "
            f"nothing is read.",
            err=True,
        )


def _item(entry: str) -> str:
    if not entry.strip():
        raise SettingsError(
            "--history has an empty id among its items; separate ids by one comma, and give ids "
            "that contain commas in a file (--history-file)."
        )
    return entry.strip()


def _interaction(entry: str) -> tuple[str, float]:
    # Ids may have colons in them; ratings have none.
    item, _, rating = (part.strip() for part in entry.rpartition(":"))
    if not item:
        raise SettingsError(
            f"--history: {short(entry)} is not of the form ITEM:RATING, such as 318:5; separate "
            f"several by commas, and give ids that contain commas in a file (--history-file)."
        )
    if not is_number(rating):
        found = "no rating" if not rating else f"the rating {short(rating)}"
        raise SettingsError(
            f"--history: {short(entry)} has {found} behind its last colon, but a finite number was "
            f"expected; give one."
        )
    return item, float(rating)


def where_of(given: list[str]) -> dict[str, list[str]]:
    """Column to the values of which an item must have one; a repeated column has several."""
    values: dict[str, list[str]] = {}
    for assignment in given:
        column, value = _assignment("--where", assignment, "COLUMN=VALUE", "genres=Comedy")
        values.setdefault(column, []).append(value)
    return values


def max_per_of(given: list[str]) -> dict[str, int]:
    """Column to how many items of one value there may be."""
    limits: dict[str, int] = {}
    for assignment in given:
        column, number = _assignment("--max-per", assignment, "COLUMN=N", "genres=2")
        if not (number.isascii() and number.isdecimal() and int(number) >= 1):
            raise SettingsError(
                f"--max-per {assignment!r}: {number!r} is not a whole number of at least 1; give "
                f"how many items of one {column} there may be."
            )
        if column in limits:
            raise SettingsError(f"--max-per names the column {column!r} twice; give it once.")
        limits[column] = int(number)
    return limits


def _assignment(option: str, text: str, form: str, example: str) -> tuple[str, str]:
    column, _, value = (part.strip() for part in text.partition("="))
    if not column or not value:
        raise SettingsError(
            f"{option} {text!r} is not of the form {form}, for example {option} {example}."
        )
    return column, value
