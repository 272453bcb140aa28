"""Options that several commands share, and their values as the library takes them.

`reads_files` gives a command the options of reading a file. `changed` applies `--set key=value` to
settings. The other functions parse ids, ad-hoc histories, cut-offs and filters of items.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from cfuica.data.layout import FIND_OUT, PAIR, NoSuchColumn, ReadOptions, is_number, short
from cfuica.errors import NoRows, SettingsError

if TYPE_CHECKING:
    import polars as pl

    from cfuica.data.table import Interactions
    from cfuica.models.recommender import Recommender
    from cfuica.settings import TrainingSettings
# 128 + the number of the signal, as in shells.
USER_ERROR, BUG, INTERRUPTED, TERMINATED = 1, 70, 130, 143

EXIT_CODES = (
    "Exit codes: 0 done, 1 something given cannot be used, 2 wrong usage, 70 a bug in cfuica, "
    "130 Ctrl-C, 143 SIGTERM."
)

Command = Callable[..., None]


def in_place_of(argument: str, make: Callable[..., Any]) -> Callable[[Command], Command]:
    """Replace one argument of a command by the options of `make`.

    Typer sees the options; the command gets `make(**options)` as that argument.
    """

    def decorate(command: Command) -> Command:
        stated = inspect.signature(make, eval_str=True).parameters
        own = inspect.signature(command, eval_str=True).parameters
        parameters = {name: each for name, each in (own | stated).items() if name != argument}

        @functools.wraps(command)
        def wrapper(**given: Any) -> None:
            made = make(**{name: given.pop(name) for name in stated})
            command(**given, **{argument: made})

        # Typer reads both.
        keyword_only = inspect.Parameter.KEYWORD_ONLY
        wrapper.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [each.replace(kind=keyword_only) for each in parameters.values()]
        )
        wrapper.__annotations__ = {name: each.annotation for name, each in parameters.items()}
        return wrapper

    return decorate


def check_choice(option: str, value: str | None, *choices: str) -> None:
    """Refuse a value that is not one of the choices; None is an option that was not given."""
    if value is not None and value not in choices:
        raise SettingsError(f"{option} {value} is not known; it is either {' or '.join(choices)}.")


def given(**options: Any) -> dict[str, Any]:
    """The options that were given; the others have the default of the called function."""
    return {name: value for name, value in options.items() if value is not None}


_PANEL = "How the file is read (found out where not given)"


def _reading(text: str, *names: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=_PANEL)


def _column(role: str) -> Any:
    return _reading(f"Name of the {role} column, or its number from 1.", metavar="COLUMN")


def _event_column(role: str) -> Any:
    text = f"Name of the column of the {role} of events, or its number from 1; '' for none."
    return _reading(text, metavar="COLUMN")


def read_options(
    *,
    user_column: Annotated[str | None, _column("user")] = None,
    item_column: Annotated[str | None, _column("item")] = None,
    rating_column: Annotated[str | None, _column("rating")] = None,
    time_column: Annotated[str | None, _column("time")] = None,
    type_column: Annotated[str | None, _event_column("type")] = None,
    weight_column: Annotated[str | None, _event_column("weight")] = None,
    types: Annotated[
        str | None,
        _reading(
            "Rankings: types of events to read, weakest first; of a pair the strongest counts.",
            metavar="TYPE,TYPE...",
        ),
    ] = None,
    targets: Annotated[
        str | None,
        _reading(
            "Rankings: types of events to predict; the others are context only.",
            metavar="TYPE,TYPE...",
        ),
    ] = None,
    count_repeats: Annotated[
        bool,
        _reading("Rankings: weigh a pair by how many rows it has.", "--count-repeats"),
    ] = False,
    time_unit: Annotated[
        str | None,
        _reading("Unit of times that are numbers since 1970.", metavar="s|ms|us|ns"),
    ] = None,
    time_format: Annotated[
        str | None,
        _reading("Form of the times, such as %d/%m/%Y; in UTC without a zone.", metavar="FORMAT"),
    ] = None,
    separator: Annotated[str | None, _reading("Separator of the fields.", metavar="TEXT")] = None,
    header: Annotated[
        bool | None, _reading("Whether the first line names the columns.", "--header/--no-header")
    ] = None,
    encoding: Annotated[
        str | None, _reading("Encoding of a text file.", metavar="utf-8|latin-1")
    ] = None,
    bad_rows: Annotated[
        str,
        _reading(
            "A row that is no interaction: refuse the file, or skip the row.", metavar="refuse|skip"
        ),
    ] = "refuse",
    no_rating: Annotated[
        list[float] | None,
        _reading("A value that means no rating; may be repeated.", metavar="VALUE"),
    ] = None,
    no_rating_means: Annotated[
        str,
        _reading(
            "Keep an interaction without a rating as implicit, or drop it.", metavar="implicit|drop"
        ),
    ] = "implicit",
    max_memory: Annotated[
        float | None,
        _reading("Most that the rows may take, in GB; default half of all memory.", metavar="GB"),
    ] = None,
) -> ReadOptions:
    """The reading options of the command line as `ReadOptions`."""
    check_choice("--time-unit", time_unit, "s", "ms", "us", "ns")
    check_choice("--encoding", encoding, "utf-8", "latin-1")
    check_choice("--bad-rows", bad_rows, "refuse", "skip")
    check_choice("--no-rating-means", no_rating_means, "implicit", "drop")
    return ReadOptions(
        user=user_column,
        item=item_column,
        rating=rating_column,
        timestamp=time_column,
        type=type_column,
        weight=weight_column,
        types=names_of(types),
        targets=names_of(targets),
        count_repeats=count_repeats,
        time_unit=time_unit,  # type: ignore[arg-type]
        time_format=time_format,
        separator=separator,
        header=header,
        encoding=encoding,  # type: ignore[arg-type]
        bad_rows=bad_rows,  # type: ignore[arg-type]
        no_rating=tuple(no_rating or ()),
        no_rating_means=no_rating_means,  # type: ignore[arg-type]
        max_memory=max_memory,
        progress=reading_line() if sys.stderr is not None and sys.stderr.isatty() else None,
    )


_SECONDS_BEFORE_LINE = 1.0


def reading_line() -> Callable[[str, float], None]:
    """What shows on a terminal how much of a file is read, once that takes longer."""
    start = time.monotonic()
    text = ""

    def show(name: str, done: float) -> None:
        nonlocal text
        before, text = text, f"reading {Path(name).name}: {done:.0%}" if done < 1 else ""
        if text != before and time.monotonic() - start >= _SECONDS_BEFORE_LINE:
            # The cursor goes back, so that whatever comes next replaces the line.
            print(f"{text}\033[K", end="\r", file=sys.stderr, flush=True)

    return show


def names_of(text: str | None) -> tuple[str, ...]:
    """The names of a list with commas, each once."""
    return tuple(dict.fromkeys(name.strip() for name in (text or "").split(",") if name.strip()))


# Give a command all reading options in place of its argument `options`.
reads_files = in_place_of("options", read_options)


S = TypeVar("S", bound="TrainingSettings")


def changed(settings: S, set_: list[str], seed: int | None, file: Path | None = None) -> S:
    """Settings with those of a file, and then with the changes of the command line."""
    if file is not None:
        settings = settings.with_file(file)
    return settings.replaced(**({} if seed is None else {"seed": seed}) | assignments(set_))


def assignments(set_: list[str]) -> dict[str, Any]:
    """Name to value of each `key=value`; values are JSON, else text."""
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
        metavar="full|paper|ncf",
        help="Protocol of a ranking test; default 'full' where the run ranks.",
        show_default=False,
    ),
]
At = Annotated[
    str,
    typer.Option("--at", metavar="K,K,...", help="Cut-offs K of the metrics of top-K lists."),
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


def seeds_of(text: str, seed: int | None = None, option: str = "--seeds") -> list[int]:
    """The seeds that --seeds names, each once, or the folds that --folds names."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdecimal() and int(word) < 2**63 for word in words):
        raise SettingsError(
            f"{option} {text!r} is not of the form N,N,... with whole numbers; give for example "
            f"{option} 0,1,2."
        )
    if seed is not None:
        raise SettingsError("--seed and --seeds exclude each other; give one of them.")
    return list(dict.fromkeys(map(int, words)))


Run = Annotated[Path, typer.Argument(help="A run or model folder.", metavar="RUN")]
History = Annotated[
    str | None,
    typer.Option(
        metavar="ITEM:RATING,...",
        help="Ad-hoc history of an anonymous user; the rating is behind the last colon. For a "
        "ranking model ITEM,ITEM,..., newest last.",
    ),
]
HistoryFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Ad-hoc history as a file with these columns, of any format, newest in its last row; "
        "timestamps are not read.",
    ),
]


Items = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Item metadata, CSV or Parquet: a column of item ids and any others.",
    ),
]


CF_UICA = "cf-uica"
# Written out, because the table of the models is slow to import for a help text.
ModelName = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="NAME",
        help="cf-uica, or a baseline. Of ratings: global-mean, item-mean, bias, pmf, biasmf, "
        "item-knn-ratings, u-rbm, i-rbm, u-autorec, i-autorec, nnmf, llorma-local, "
        "llorma-global, u-cf-nade-s, i-cf-nade-s. Of rankings: itempop, itemknn, bpr, eals, "
        "neumf, cdae, ease, ials.",
    ),
]
TaskName = Annotated[
    str | None,
    typer.Option("--task", help="'rating' or 'ranking', as in train.", show_default="rating"),
]
SettingsFile = Annotated[
    Path | None,
    typer.Option(
        "--settings",
        metavar="FILE",
        help="Settings as TOML, in place of those of the preset; --set changes them.",
    ),
]


def _serve_or_error(value: str | None) -> str | None:
    check_choice("--unknown", value, "serve", "error")
    return value


Unknown = Annotated[
    str | None,
    typer.Option(
        metavar="serve|error",
        callback=_serve_or_error,
        help="Users and items that the model does not have: serve them as cold-start, or refuse.",
        show_default="serve",
    ),
]


def ids(option: str, given: list[str]) -> list[str]:
    """Each id once, without surrounding spaces, as in the readers of files."""
    stripped = [each.strip() for each in given]
    if "" in stripped:
        raise SettingsError(f"{option} is empty, but an id was expected; give one.")
    return list(dict.fromkeys(stripped))


def table_of_file(
    path: Path, options: ReadOptions = FIND_OUT, *, only: tuple[str, ...] | None = None
) -> Interactions:
    """The rows of a file that may have none; with `only` they are no interactions."""
    import polars as pl

    from cfuica.data.readers import read_table
    from cfuica.data.table import Interactions

    try:
        return read_table(path, options, only=only)
    except NoRows:
        types = {role: pl.Float64 if role == "rating" else pl.String for role in only or PAIR}
        return Interactions(pl.DataFrame(schema=types), source=str(path))


def users_of_file(path: Path) -> pl.Series:
    """The users of a file with a column user, each once, in the order of the file."""
    return table_of_file(path, only=("user",)).frame["user"].unique(maintain_order=True)


def exclusions_of_file(path: Path) -> pl.DataFrame | pl.Series:
    """User and item of a file, or the items of one that has no users."""
    try:
        table_of_file(path, only=PAIR[:1])
    except NoSuchColumn:
        return table_of_file(path, only=PAIR[1:]).frame["item"]
    return table_of_file(path, only=PAIR).frame


def say_unknown(model: Recommender, **given: Any) -> dict[str, set[str]]:
    """Report on standard error which of these `users` and `items` the model does not know; returns
    them as text, by role."""
    from cfuica.data.frames import as_id_column

    found = {}
    for axis, ids in given.items():
        role = axis.removesuffix("s")
        unknown, note = model.catalogue.unknown(axis, as_id_column(role, ids))  # type: ignore[arg-type]
        found[role] = {str(one) for one in unknown}
        if note:
            typer.echo(note, err=True)
    return found


def history_of(text: str | None, path: Path | None, *, rated: bool) -> pl.DataFrame | None:
    """The ad-hoc history of --history or --history-file as a frame, if either is given.

    It has the items and, where the model reads ratings (`rated`), the ratings.
    """
    import polars as pl

    from cfuica.data.frames import check_once

    if text is not None and path is not None:
        raise SettingsError("--history and --history-file exclude each other; give one of them.")
    columns = ("item", "rating") if rated else ("item",)
    if text is not None:
        entries = text.split(",") if text.strip() else []
        rows = [_interaction(entry) if rated else (_item(entry),) for entry in entries]
        types = dict(zip(columns, (pl.String, pl.Float64), strict=False))
        history, place = pl.DataFrame(rows, schema=types, orient="row"), "--history"
    elif path is not None:
        history = table_of_file(path, only=columns).frame.select(columns)
        place = str(path)
    else:
        return None
    check_once(history["item"], place, rated=rated)
    return history


def say_unread(history: pl.DataFrame | None, model: Recommender) -> None:
    """Report on standard error which items of a history the model does not have."""
    if history is None:
        return
    unknown, note = model.catalogue.unknown("items", history["item"])
    if len(unknown):
        typer.echo(f"Of the history, {note} What is unknown is ignored.", err=True)


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


def where_of(given: list[str]) -> list[tuple[str, str, str]]:
    """Column, comparison and text of the value of each --where."""
    conditions = []
    for text in given:
        found = re.fullmatch(r"\s*([^<>=!]+?)\s*(<=|>=|!=|=|<|>)\s*(.*\S)\s*", text, re.DOTALL)
        if found is None:
            raise SettingsError(
                f"--where {text!r} is not of the form COLUMN=VALUE, for example --where "
                f"genres=Comedy; the others are <, <=, >, >= and !=, as in --where 'price<10'."
            )
        conditions.append((found[1], found[2], found[3]))
    return conditions


def max_per_of(given: list[str]) -> dict[str, int]:
    """Column to the largest number of items with the same value."""
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
