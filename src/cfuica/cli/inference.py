"""Questions to a saved model: `cfuica predict`, `recommend`, `similar` and `explain`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from cfuica.cli.options import (
    History,
    HistoryFile,
    Run,
    Unknown,
    check_choice,
    exclusions_of_file,
    given,
    history_of,
    ids,
    max_per_of,
    names_of,
    reads_files,
    say_unknown,
    say_unread,
    table_of_file,
    users_of_file,
    where_of,
)
from cfuica.cli.output import (
    FOR_PEOPLE,
    Output,
    bar,
    gives_a_table,
    marked,
    plain,
    plain_table,
    progress_of,
    ranked_for_each,
    say_notes,
    table_of,
    titled,
)
from cfuica.data.layout import FIND_OUT, PAIR, ReadOptions

if TYPE_CHECKING:
    import polars as pl

    from cfuica.data.table import Interactions
    from cfuica.models.recommender import Recommender
_RULES = "Which items"


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
    exclude_file: Annotated[
        Path | None,
        _filter("File of items to leave out, or of users and their items.", metavar="FILE"),
    ] = None,
    where: Annotated[
        list[str] | None,
        _filter(
            "Only items with this value in a column of the item metadata, or compared by <, <=, >, "
            ">= or != ('price<10'); repeated with = for one column, one of the values.",
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
    exclude_seen: Annotated[
        str | None,
        _filter(
            "Leave out items of the user's history only where they are of these types of events.",
            metavar="TYPE,TYPE...",
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

    All users, to a file; the same command goes on where it was ended:
    cfuica recommend runs/ml-1m --all-users -n 100 --out recs.parquet
    """
    from cfuica.inference.filters import column_of, read_where
    from cfuica.models.recommender import load

    targets = (user, users_file, all_users or None, history, history_file)
    if sum(each is not None for each in targets) != 1:
        raise typer.BadParameter(
            "give one of --user, --users-file, --all-users, --history or --history-file"
        )
    if include_seen and exclude_seen is not None:
        raise typer.BadParameter("give --include-seen or --exclude-seen, and not both")
    check_choice("--by", by, "expected", "lower", "blend")
    users: Any = None if user is None else ids("--user", user)
    if users_file is not None:
        users = users_of_file(users_file)
    if exclude and exclude_file is not None:
        raise typer.BadParameter("give --exclude or --exclude-file, and not both")
    excluded: Any = ids("--exclude", exclude) if exclude else None
    if exclude_file is not None:
        excluded = exclusions_of_file(exclude_file)
    rules = given(
        items=ids("--item", item) if item else None,
        exclude=excluded,
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
    unknown_ids: dict[str, set[str]] = {}
    if all_users:
        users = model.users.ids
    elif users is not None and unknown != "error":
        unknown_ids = say_unknown(model, users=users)
    for option in ("items", "exclude"):
        if option in rules:
            say_unknown(model, items=rules[option])
    options = given(history=ad_hoc, by=by, unknown=unknown) | rules
    options["exclude_seen"] = not include_seen if exclude_seen is None else names_of(exclude_seen)
    if all_users and output.takes_parts:
        words = (n, by, item, exclude, where, max_per, min_support, exclude_seen, include_seen)
        missing = _to_file(run, model, n, options, output, [*words, _hash(exclude_file)])
        if missing:
            typer.echo(_nothing(missing, rules, include_seen), err=True)
        return
    top = model.recommend(users, n, **options)
    say_unread(ad_hoc, model)
    if missing := _left_out(top, users):
        typer.echo(_nothing(missing, rules, include_seen), err=True)
    target = "For this history" if users is None else "For user"
    score = "expected rating" if by == "expected" else "score"
    output.give(
        top,
        what="recommendations",
        shown=lambda: ranked_for_each(top, "user", target, score),
        as_json=lambda: marked(top, unknown_ids),
    )


def _to_file(
    run: Path, model: Recommender, n: int, options: dict[str, Any], output: Output, words: list[Any]
) -> list[str]:
    """Recommend to all users of the model, part by part; returns those without any recommendation.

    `words` are the options as they were given, by which a command that goes on is known.
    """
    import cfuica
    from cfuica.artifact import manifest_of
    from cfuica.models.part_files import answered_in_parts

    assert output.file is not None
    users = model.users.ids
    manifest = (manifest_of(run) or b"").decode("utf-8", "replace")
    request = {"cfuica": cfuica.__version__, "model": manifest, "options": words}
    missing: list[str] = []

    def frames(parts: Iterable[tuple[pl.Series, pl.DataFrame]]) -> Iterator[pl.DataFrame]:
        for own, top in parts:
            missing.extend(_left_out(top, own))
            yield top

    with (
        progress_of(len(users), "users") as show,
        answered_in_parts(
            output.file, request, users, n, lambda own: model.recommend(own, n, **options), show
        ) as parts,
    ):
        output.give_parts(frames(parts), what="recommendations")
    return missing


def _hash(path: Path | None) -> str | None:
    """What tells a file from another."""
    from cfuica.io import sha256_of_file

    return None if path is None else sha256_of_file(path)


def _left_out(top: pl.DataFrame, users: Any) -> list[str]:
    """The users without any recommendation, in words."""
    if users is None:
        return [] if top.height else ["this history"]
    served = {str(one) for one in top["user"].unique()}
    return [f"user {one}" for one in users if str(one) not in served]


def _nothing(missing: list[str], rules: dict[str, Any], include_seen: bool) -> str:
    others = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
    names = ["--item" if rule == "items" else f"--{rule.replace('_', '-')}" for rule in rules]
    remedies = [f"loosen {', '.join(names)}"] if names else []
    remedies += [] if include_seen else ["add --include-seen"]
    remedy = f"; {' or '.join(remedies)}" if remedies else ""
    return f"There is nothing to recommend to {missing[0]}{others}: no item is left{remedy}."


@gives_a_table
def similar(
    run: Run,
    item: Annotated[list[str] | None, typer.Option(help="An item's id; may be repeated.")] = None,
    user: Annotated[list[str] | None, typer.Option(help="A user's id; may be repeated.")] = None,
    n: Annotated[int, typer.Option("-n", min=1, help="How many for each.")] = 10,
    min_support: Annotated[
        int | None,
        typer.Option(
            min=1, help="Only those with at least this many interactions.", show_default=False
        ),
    ] = None,
    unknown: Unknown = None,
    output: Output = FOR_PEOPLE,
) -> None:
    """List the items most similar to an item, or the users most similar to a user.

    Example:  cfuica similar runs/ml-1m --item 318 -n 5
    """
    from cfuica.models.recommender import load

    if (item is None) == (user is None):
        raise typer.BadParameter("give --item or --user, and not both")
    options = given(min_support=min_support, unknown=unknown)
    items, users = ids("--item", item or []), ids("--user", user or [])
    model = load(run)
    kind = "item" if items else "user"
    if items:
        found = model.similar_items(items, n, **options)
    else:
        found = model.similar_users(users, n, **options)
    unknown_ids = say_unknown(model, **{f"{kind}s": items or users})
    if not found.height:
        typer.echo(f"There is no other {kind} with so many interactions to compare with.", err=True)
    output.give(
        found,
        what=f"similar {kind}s",
        shown=lambda: ranked_for_each(found, kind, f"Most like {kind}"),
        as_json=lambda: marked(found, unknown_ids),
    )


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
    from cfuica.models.recommender import load

    table = table_of_file(pairs, options, only=PAIR)
    say_notes(table.source_notes)
    model, cold_start = load(run), given(unknown=unknown)
    unknown_ids: dict[str, set[str]] = {}
    if unknown != "error":
        unknown_ids = say_unknown(model, users=table.frame["user"], items=table.frame["item"])
    predictions = model.predict(table, **cold_start)
    if distribution:
        predictions = predictions.with_columns(**_distribution(model, table, cold_start))
    output.give(
        predictions,
        what="predictions",
        shown=lambda: plain_table(predictions),
        as_json=lambda: marked(predictions, unknown_ids),
    )


def _distribution(
    model: Any, pairs: Interactions, cold_start: dict[str, Any]
) -> dict[str, pl.Series]:
    """Columns of probabilities by name, ratings ascending."""
    import polars as pl

    p_pk = model.predict_proba(pairs, **cold_start)
    values = model.scale.values
    # Means of bins may need all digits.
    names = [f"{v:g}" if float(f"{v:g}") == v else repr(v) for v in values]
    return {f"p({name})": pl.Series(p_pk[:, k]) for k, name in enumerate(names)}


@gives_a_table
def explain(
    run: Run,
    item: Annotated[str, typer.Option(help="The item's id.")],
    user: Annotated[str | None, typer.Option(help="The user's id.")] = None,
    history: History = None,
    history_file: HistoryFile = None,
    n: Annotated[
        int, typer.Option("-n", min=1, help="How many interactions of the history to show.")
    ] = 10,
    unknown: Unknown = None,
    output: Output = FOR_PEOPLE,
) -> None:
    """Explain a predicted rating or rank by the influence of each interaction of the history.

    Example:  cfuica explain runs/ml-1m --user 42 --item 318

    Changes are exact counterfactuals given the parameters: the expected rating (or
    the score of a ranking model) minus its value without that interaction, without
    the user's history, or without the interactions of other users. JSON has all of
    it; CSV and Parquet have the history.
    """
    from cfuica.models.recommender import load

    if sum(each is not None for each in (user, history, history_file)) != 1:
        raise typer.BadParameter("give one of --user, --history or --history-file")
    some_user = None if user is None else ids("--user", [user])[0]
    (some_item,) = ids("--item", [item])
    model = load(run)
    ad_hoc = history_of(history, history_file, rated=model.reads_ratings)
    explanation = model.explain(some_user, some_item, **given(history=ad_hoc, unknown=unknown))
    unknown_ids = say_unknown(model, **given(users=some_user, items=some_item))
    say_unread(ad_hoc, model)
    cold_roles = [role for role, own in unknown_ids.items() if own]
    output.give(
        explanation.history,
        what="interactions",
        shown=lambda: explanation_in_terminal(explanation, n),
        as_json=lambda: explanation.as_json() | ({"unknown": cold_roles} if cold_roles else {}),
    )


_BAR = 20  # characters of a probability of 1


def explanation_in_terminal(explanation: Any, n: int) -> Group:
    """The prediction, the n most influential interactions, and the influence of each side.

    An explanation of a ranking score has no distribution and no raters by rating.
    """
    history = explanation.history
    shown: list[RenderableType] = [_headline(explanation)]
    if hasattr(explanation, "distribution"):
        pairs = explanation.distribution.select("rating", "probability").iter_rows()
        rows = [(plain(rating, "g"), bar(p, _BAR), f"{p:.1%}") for rating, p in pairs]
        table = table_of(("rating", "", "probability"), rows, left=(1,))
        shown.append(titled("Predicted distribution", table))
    if history.height:
        of_all = f"{n:,} of {history.height:,}" if n < history.height else f"{history.height:,}"
        shown.append(_changes(history.head(n), f"History: the largest changes ({of_all})"))
    else:
        shown.append(Text("There is no history."))
    parts = explanation.contributions
    withheld = parts["interactions"].is_null()
    if not withheld.all():
        shown.append(_changes(parts.filter(~withheld), "Without each contribution"))
    hidden = parts.filter(withheld)["contribution"]
    shown += [Text(f"{part} is withheld: {explanation.too_few}.") for part in hidden]
    if hasattr(explanation, "raters") and explanation.raters.height:
        shown.append(_changes(explanation.raters, "Others on this item, by their rating"))
    return Group(*shown)


def _headline(explanation: Any) -> Text:
    item = f"item {explanation.item}"
    if explanation.title:
        item += f" ({explanation.title})"
    target = "this history" if explanation.user is None else f"user {explanation.user}"
    is_rating = hasattr(explanation, "expected")
    value = explanation.expected if is_rating else explanation.score
    return Text.assemble(
        "Expected rating " if is_rating else "Score ",
        (f"{value:.2f}", "bold"),
        " of ",
        plain(item),
        " for ",
        plain(target),
        ".",
    )


def _changes(frame: pl.DataFrame, title: str) -> Group:
    """A table without the titles if all are null."""
    if "title" in frame.columns and frame["title"].null_count() == frame.height:
        frame = frame.drop("title")
    return titled(title, frame)
