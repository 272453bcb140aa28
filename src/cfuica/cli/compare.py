"""cfuica compare"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cfuica.cli.protocols import DEFAULT_AT, At, Protocol, cutoffs_of


def compare(
    first: Annotated[Path, typer.Argument(help="A run folder.", metavar="RUN")],
    second: Annotated[Path, typer.Argument(help="Another one.", metavar="RUN")],
    protocol: Protocol = None,
    at: At = DEFAULT_AT,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Compare two runs on the test part that they share: first less second.

    Example:  cfuica compare runs/ours runs/theirs --protocol full

    The intervals hold 95% of 1,000 resamples of the users, the same for both runs;
    'other side of 0' is the share of the resamples that contradict the sign of the
    difference. Rankings by every metric, ratings by RMSE and MAE.
    """
    import json

    from cfuica.runs.comparing import compare as compare_runs
    from cfuica.runs.folder import RunFolder

    folders = [RunFolder.open(run) for run in (first, second)]
    comparison = compare_runs(*folders, protocol=protocol, cutoffs=cutoffs_of(at))
    if json_:
        typer.echo(json.dumps(comparison.as_json()))
        return
    from rich.console import Console

    from cfuica.runs.tables import compared

    by = "ratings" if comparison.protocol is None else f"protocol {comparison.protocol}"
    title = f"{by}, {comparison.users:,} users, 95% intervals over users"
    Console(emoji=False).print(compared(title, comparison))
