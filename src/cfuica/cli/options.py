"""Options that several commands share, without their being written out in each.

How a file is to be read: the options that all commands share which read one.

`--set key=value` into settings, and values as they are written there.

How a ranking is tested: the options that `evaluate` and `compare` share.

Words of the command line as what a model is asked: ids, histories, rules.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from cfuica.data.layout import ReadOptions, is_number, short
from cfuica.errors import SettingsError
from cfuica.settings import CommonSettings, RatingSettings

if TYPE_CHECKING:
    import polars as pl

    from cfuica.data.vocabulary import Vocabulary
Command = Callable[..., None]


def in_place_of(argument: str, make: Callable[..., Any]) -> Callable[[Command], Command]:
    """Give a command the options of `make` in the place of one argument, which is what they make.

    Typer sees the options; the command gets `make(**options)`.
    """

    def decorate(command: Command) -> Command:
        stated = inspect.signature(make, eval_str=True).parameters
        own = inspect.signature(command, eval_str=True).parameters
        parameters = {name: each for name, each in (own | stated).items() if name != argument}

        @functools.wraps(command)
        def wrapper(**given: Any) -> None:
            made = make(**{name: given.pop(name) for name in stated})
            command(**given, **{argument: made})

        # What typer asks a function for.
        keyword_only = inspect.Parameter.KEYWORD_ONLY
        wrapper.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [each.replace(kind=keyword_only) for each in parameters.values()]
        )
        wrapper.__annotations__ = {name: each.annotation for name, each in parameters.items()}
        return wrapper

    return decorate


def check_choice(option: str, value: str | None, *stored: str) -> None:
    """Refuse a word that an option does not know; None is an option that was not given."""
    if value is not None and value not in stored:
        raise SettingsError(f"{option} {value} is not known; it is either {' or '.join(stored)}.")


def given(**options: Any) -> dict[str, Any]:
    """The options that were given: what is left out has the default of whoever is asked."""
    return {name: value for name, value in options.items() if value is not None}


_PANEL = "How the file is read (found out where not given)"


def _column(role: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        metavar="COLUMN",
        help=f"Name of the {role} column, or its number from 1.",
        rich_help_panel=_PANEL,
    )
    return option


UserColumn = Annotated[str | None, _column("user")]
ItemColumn = Annotated[str | None, _column("item")]
RatingColumn = Annotated[str | None, _column("rating")]
TimeColumn = Annotated[str | None, _column("time")]
Separator = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="What separates the fields.", rich_help_panel=_PANEL),
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Whether the first line names the columns.",
        rich_help_panel=_PANEL,
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(metavar="utf-8|latin-1", help="Encoding of a text file.", rich_help_panel=_PANEL),
]
BadRows = Annotated[
    str,
    typer.Option(
        metavar="refuse|skip",
        help="A row that is no interaction: refuse the file, or skip the row.",
        rich_help_panel=_PANEL,
    ),
]
NoRating = Annotated[
    list[float] | None,
    typer.Option(
        metavar="VALUE",
        help="A rating that means none was given; may be repeated.",
        rich_help_panel=_PANEL,
    ),
]
NoRatingMeans = Annotated[
    str,
    typer.Option(
        metavar="implicit|drop",
        help="Keep an interaction without a rating as implicit, or drop it.",
        rich_help_panel=_PANEL,
    ),
]


def read_options(
    *,
    user_column: UserColumn = None,
    item_column: ItemColumn = None,
    rating_column: RatingColumn = None,
    time_column: TimeColumn = None,
    separator: Separator = None,
    header: Header = None,
    encoding: Encoding = None,
    bad_rows: BadRows = "refuse",
    no_rating: NoRating = None,
    no_rating_means: NoRatingMeans = "implicit",
) -> ReadOptions:
    """The options under their names at the command line as the readers take them."""
    check_choice("--encoding", encoding, "utf-8", "latin-1")
    check_choice("--bad-rows", bad_rows, "refuse", "skip")
    check_choice("--no-rating-means", no_rating_means, "implicit", "drop")
    return ReadOptions(
        user=user_column,
        item=item_column,
        rating=rating_column,
        timestamp=time_column,
        separator=separator,
        header=header,
        encoding=encoding,  # type: ignore[arg-type]
        bad_rows=bad_rows,  # type: ignore[arg-type]
        no_rating=tuple(no_rating or ()),
        no_rating_means=no_rating_means,  # type: ignore[arg-type]
    )


reads_files = in_place_of("options", read_options)
"""Give a command all these options in the place of its one argument `options`."""


S = TypeVar("S", bound=CommonSettings)


def changed(settings: S, set_: list[str], seed: int | None) -> S:
    """Settings with the command line's changes."""
    changes = ({} if seed is None else {"seed": seed}) | assignments(set_)
    if "l2" in changes and isinstance(settings, RatingSettings):
        # Who names a penalty means it as it is.
        changes = {"l2_ratings": None} | changes
    return settings.replaced(**changes)


def assignments(set_: list[str]) -> dict[str, Any]:
    """Name to value of each `key=value`; values are read as JSON, else as text."""
    changes: dict[str, Any] = {}
    for assignment in set_:
        key, separator, text = assignment.partition("=")
        if not separator or not key:
            raise SettingsError(
                f"--set {assignment!r} is not of the form KEY=VALUE, for example "
                f"--set hidden_users=200."
            )
        changes[key.strip()] = _value(text.strip())
    return changes


def written(value: Any) -> str:
    """A value as `--set` reads it."""
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value)


def _value(text: str) -> Any:
    if text.lower() in ("none", "null"):
        return None
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


Protocol = Annotated[
    str | None,
    typer.Option(
        metavar="full|paper|ncf|date",
        help="How a ranking is tested; without it 'full', or 'date' after --split date.",
        show_default=False,
    ),
]
At = Annotated[
    str,
    typer.Option("--at", metavar="K,K,...", help="Cut-offs: what the first K of a list hold."),
]
DEFAULT_AT = "5,10,20"


def cutoffs_of(at: str) -> tuple[int, ...]:
    """The cut-offs that --at names."""
    words = [word.strip() for word in at.split(",")]
    if not all(word.isascii() and word.isdecimal() and int(word) >= 1 for word in words):
        raise SettingsError(
            f"--at {at!r} is not of the form K,K,... with whole numbers of at least 1; give for "
            f"example --at 1,5,10."
        )
    return tuple(sorted({int(word) for word in words}))


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
