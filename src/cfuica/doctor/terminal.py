"""A diagnosis for the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from cfuica.doctor.diagnosis import Diagnosis


def in_terminal(diagnosis: Diagnosis) -> Group:
    """Facts by topic, verdicts, and what to do where something is wrong."""
    facts = Table(show_header=False)
    for topic, values in diagnosis.facts.items():
        facts.add_section()
        for place, (name, value) in enumerate(values.items()):
            facts.add_row(
                "" if place else topic.replace("_", " "), escape(name), escape(_told(value))
            )
    checks = Table(title="Checks", title_justify="left")
    for column in ("", "check", "found"):
        checks.add_column(column, overflow="fold")
    checks.add_column("s", justify="right")
    for check in diagnosis.checks:
        seconds = "" if check.seconds is None else f"{check.seconds:.2f}"
        verdict = "[green]ok[/green]" if check.ok else "[bold red]WRONG[/bold red]"
        checks.add_row(verdict, escape(check.name), escape(check.found), seconds)
    wrong = [check for check in diagnosis.checks if not check.ok]
    # One advice may repair several.
    advice = dict.fromkeys(check.advice for check in wrong)
    last: list[RenderableType] = [escape(f"To do: {sentence}") for sentence in advice]
    return Group(facts, checks, *(last or ["All is well."]))


def _told(value: Any) -> str:
    if value is None:
        return "not there"
    return ", ".join(value) if isinstance(value, list) else str(value)
