"""cfuica recommend"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def recommend(
    run: Annotated[Path, typer.Argument(help="A run or model folder.", metavar="RUN")],
    user: Annotated[list[str], typer.Option(help="A user's id; may be repeated.")],
    n: Annotated[int, typer.Option("-n", min=1, help="How many items.")] = 10,
    include_seen: Annotated[
        bool, typer.Option("--include-seen", help="Also items the user has rated.")
    ] = False,
    min_support: Annotated[
        int, typer.Option(min=1, help="Only items that at least so many users rated.")
    ] = 5,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """The items a user is predicted to rate highest.

    Example:  cfuica recommend runs/ml-1m --user 42 -n 10
    """
    from cfuica.model_folder import load

    top = load(run).recommend(user, n, exclude_seen=not include_seen, min_support=min_support)
    served = {str(one) for one in top["user"]}
    for one in user:
        if one not in served:
            typer.echo(
                f"There is nothing to recommend to user {one}: no item that at least "
                f"{min_support} users rated is left; lower --min-support or add --include-seen.",
                err=True,
            )
    if json_:
        import json

        typer.echo(json.dumps(top.to_dicts()))
        return
    from rich.console import Console

    from cfuica.runs.tables import recommendations

    for (one,), rows in top.group_by("user", maintain_order=True):
        Console().print(recommendations(rows, f"For user {one}"))
