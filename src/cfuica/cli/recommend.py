"""`cfuica recommend`: top-n items for users or ad-hoc histories."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cfuica.cli.options import UNKNOWN, History, HistoryFile, Run, Unknown, check_choice, given
from cfuica.cli.output import FOR_PEOPLE, Output, gives_a_table

if TYPE_CHECKING:
    import polars as pl
_RULES = "Which items"
_OPTIONS = {
    "items": "--item",
    "exclude": "--exclude",
    "where": "--where",
    "max_per": "--max-per",
    "min_support": "--min-support",
}


def _filter(text: str, *names: str, **options: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=_RULES, **options)


@gives_a_table
def recommend(
    run: Run,
    user: Annotated[list[str] | None, typer.Option(help="A user's id; may be repeated.")] = None,
    users_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File with a column user, of any format."),
    ] = None,
    all_users: Annotated[
        bool, typer.Option("--all-users", help="For every user of the model.")
    ] = False,
    history: History = None,
    history_file: HistoryFile = None,
    n: Annotated[int, typer.Option("-n", min=1, help="How many items for each.")] = 10,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="expected|lower|blend",
            help="Rating models: rank by the expected rating, by a lower bound of the predicted "
            "distribution, or by a blend with the number of ratings (default).",
            show_default=False,
        ),
    ] = None,
    item: Annotated[list[str] | None, _filter("Choose among these items; may be repeated.")] = None,
    exclude: Annotated[list[str] | None, _filter("Leave out this item; may be repeated.")] = None,
    where: Annotated[
        list[str] | None,
        _filter(
            "Only items that have this value in a column of the item table; repeated for one "
            "column, one of the values.",
            metavar="COLUMN=VALUE",
        ),
    ] = None,
    max_per: Annotated[
        list[str] | None,
        _filter("At most N items with the same value in this column.", metavar="COLUMN=N"),
    ] = None,
    min_support: Annotated[
        int | None,
        _filter(
            "Only items that at least this many users interacted with.",
            min=0,
            show_default="1, or 0 for a ranking model",
        ),
    ] = None,
    include_seen: Annotated[
        bool, _filter("Also items of the user's history.", "--include-seen")
    ] = False,
    unknown: Unknown = None,
    output: Output = FOR_PEOPLE,
) -> None:
    """Recommend the items that a user is predicted to rate highest, or to choose next.

    Example:  cfuica recommend runs/ml-1m --user 42 -n 10 --where genres=Comedy

    An anonymous user is served from an ad-hoc history of ratings:
    cfuica recommend runs/ml-1m --history '318:5,296:4' --format json
    or for a ranking model from a history of items, newest last:
    cfuica recommend runs/ranking --history 318,296
    """
    from cfuica.cli.options import (
        history_of,
        ids,
        max_per_of,
        say_unread,
        users_of_file,
        where_of,
    )
    from cfuica.inference.filters import column_of, read_where
    from cfuica.models.recommender import load

    targets = (user, users_file, all_users or None, history, history_file)
    if sum(each is not None for each in targets) != 1:
        raise typer.BadParameter(
            "give one of --user, --users-file, --all-users, --history or --history-file"
        )
    check_choice("--unknown", unknown, *UNKNOWN)
    check_choice("--by", by, "expected", "lower", "blend")
    users: Any = None if user is None else ids("--user", user)
    if users_file is not None:
        users = users_of_file(users_file)
    rules = given(
        items=ids("--item", item) if item else None,
        exclude=ids("--exclude", exclude) if exclude else None,
        where=where_of(where) if where else None,
        max_per=max_per_of(max_per) if max_per else None,
        min_support=min_support,
    )
    model = load(run)
    ad_hoc = history_of(history, history_file, rated=model.reads_ratings)
    if where:
        rules["where"] = read_where(model.catalogue.item_metadata, rules["where"])
    for column in rules.get("max_per", ()):
        column_of(model.catalogue.item_metadata, column, "--max-per")
    if all_users:
        users = model.users.ids
    top = model.recommend(
        users,
        n,
        **given(history=ad_hoc, by=by, unknown=unknown),
        **rules,
        exclude_seen=not include_seen,
    )
    say_unread(ad_hoc, model.items)
    if missing := _left_out(top, users):
        typer.echo(_nothing(missing, rules, include_seen), err=True)
    from cfuica.cli.tables import ranked_for_each

    target = "For this history" if users is None else "For user"
    score = "expected rating" if by == "expected" else "score"
    output.give(
        top,
        what="recommendations",
        shown=lambda: ranked_for_each(top, "user", target, score),
    )


def _left_out(top: pl.DataFrame, users: Any) -> list[str]:
    """The users without any recommendation, in words."""
    if users is None:
        return [] if top.height else ["this history"]
    served = {str(one) for one in top["user"].unique()}
    return [f"user {one}" for one in users if str(one) not in served]


def _nothing(missing: list[str], rules: dict[str, Any], include_seen: bool) -> str:
    others = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
    names = [_OPTIONS[rule] for rule in rules]
    remedies = [f"loosen {', '.join(names)}"] if names else []
    remedies += [] if include_seen else ["add --include-seen"]
    remedy = f"; {' or '.join(remedies)}" if remedies else ""
    return f"There is nothing to recommend to {missing[0]}{others}: no item is left{remedy}."
