from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import cfuica
from cfuica.cli import app
from tests.cli.harness import done, run


def commands(group: Any, above: str = "") -> Iterator[str]:
    """The words of every command that there is."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{above}{name} ")
        else:
            yield f"{above}{name}"


COMMANDS = sorted(commands(typer.main.get_command(app)))


def test_all_commands_are_found() -> None:
    assert {"train", "data get", "data show", "doctor", "bench step"} <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_helps_with_an_example_of_itself(command: str) -> None:
    text = done(*command.split(), "--help").out
    assert f"Example:  cfuica {command}" in text
    assert "Exit codes: 0 done, 1 " in text


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_run_by_a_test_of_its_own(command: str) -> None:
    name = "bench" if command.startswith("bench") else command.replace(" ", "_")
    assert (Path(__file__).parent / f"test_{name}.py").is_file()


def test_the_help_names_every_command_and_where_to_start() -> None:
    text = done("--help").out
    for command in COMMANDS:
        assert re.search(rf"\b{command.split()[0]}\b", text)
    assert "cfuica demo" in text


@pytest.mark.parametrize("arguments", [[], ["bench"], ["data"]])
def test_without_a_command_the_help_is_shown(arguments: list[str]) -> None:
    outcome = run(*arguments)
    assert "Usage: cfuica" in outcome.out + outcome.err
    assert "Commands" in outcome.out + outcome.err


def test_the_version_is_the_packages() -> None:
    assert done("--version").out == f"cfuica {cfuica.__version__}\n"


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["train", "demo"], ["recommend", "run", "--user", "1", "-n", "0"]]
)
def test_wrong_usage_is_reported_with_exit_code_2(arguments: list[str]) -> None:
    outcome = run(*arguments)
    assert outcome.code == 2
    assert outcome.out == ""
    assert "Usage" in outcome.err
    assert "Traceback" not in outcome.err
