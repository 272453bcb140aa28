"""cfuica doctor"""

from __future__ import annotations

from typing import Annotated

import typer


def doctor(
    json_: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Check the installation, the machine and the data, and that this machine computes right.

    Exits with 1 where something is wrong, and says what to do. What it prints belongs into a bug
    report.

    Example:  cfuica doctor --json
    """
    import json

    from cfuica.doctor import examine

    diagnosis = examine()
    if json_:
        typer.echo(json.dumps(diagnosis.as_json()))
    else:
        from rich.console import Console

        from cfuica.cli.tables import diagnosis_in_terminal

        Console(emoji=False).print(diagnosis_in_terminal(diagnosis), highlight=False)
    if not diagnosis.healthy:
        raise typer.Exit(1)
