"""`cfuica similar`: nearest items or users."""

from __future__ import annotations

from typing import Annotated

import typer

from cfuica.cli.options import UNKNOWN, Run, Unknown, check_choice, given
from cfuica.cli.output import FOR_PEOPLE, Output, gives_a_table


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
    from cfuica.cli.options import ids
    from cfuica.models.recommender import load

    if (item is None) == (user is None):
        raise typer.BadParameter("give --item or --user, and not both")
    check_choice("--unknown", unknown, *UNKNOWN)
    options = given(min_support=min_support, unknown=unknown)
    items, users = ids("--item", item or []), ids("--user", user or [])
    model = load(run)
    kind = "item" if items else "user"
    if items:
        found = model.similar_items(items, n, **options)
    else:
        found = model.similar_users(users, n, **options)
    if not found.height:
        typer.echo(f"There is no other {kind} with so many interactions to compare with.", err=True)
    from cfuica.cli.tables import ranked_for_each

    output.give(
        found,
        what=f"similar {kind}s",
        shown=lambda: ranked_for_each(found, kind, f"Most like {kind}"),
    )
