"""`cfuica doctor`: check installation, machine and data."""

from __future__ import annotations

import typer

from cfuica.cli.options import JsonOnly


def doctor(
    json_: JsonOnly = False,
) -> None:
    """Check the installation, the machine and the data, and that this machine computes correctly.

    Exits with 1 where something is wrong, and says what to do. Add the output to bug reports.

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
