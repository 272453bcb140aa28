"""`cfuica explain`: the influence of each interaction on a prediction."""

from __future__ import annotations

from typing import Annotated

import typer

from cfuica.cli.options import UNKNOWN, History, HistoryFile, Run, Unknown, check_choice, given
from cfuica.cli.output import FOR_PEOPLE, Output, gives_a_table


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
    from cfuica.cli.options import history_of, ids, say_unread
    from cfuica.models.recommender import load

    if sum(each is not None for each in (user, history, history_file)) != 1:
        raise typer.BadParameter("give one of --user, --history or --history-file")
    check_choice("--unknown", unknown, *UNKNOWN)
    some_user = None if user is None else ids("--user", [user])[0]
    (some_item,) = ids("--item", [item])
    model = load(run)
    ad_hoc = history_of(history, history_file, rated=model.reads_ratings)
    explanation = model.explain(some_user, some_item, **given(history=ad_hoc, unknown=unknown))
    say_unread(ad_hoc, model.items)
    from cfuica.cli.tables import explanation_in_terminal

    output.give(
        explanation.history,
        what="interactions",
        shown=lambda: explanation_in_terminal(explanation, n),
        as_json=explanation.as_json,
    )
