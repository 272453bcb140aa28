"""Run one command function as an app of its own."""

from __future__ import annotations

from collections.abc import Callable

import typer
from typer.testing import CliRunner

from tests.cli.harness import Outcome


def run_command(command: Callable[..., None], *arguments: object) -> Outcome:
    """The command with these arguments; an error of ours is raised as `main` would catch it."""
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(command)
    result = CliRunner().invoke(app, list(map(str, arguments)))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Outcome(result.exit_code, result.stdout, result.stderr)
