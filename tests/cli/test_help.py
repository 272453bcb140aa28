from __future__ import annotations

import re

import pytest

import cfuica
from tests.cli.harness import done, run

COMMANDS = ["train", "evaluate", "predict", "recommend", "demo", "bench", "bench step"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_helps_with_an_example_of_itself(command: str) -> None:
    text = done(*command.split(), "--help").out
    assert f"Example:  cfuica {command}" in text


def test_the_help_names_every_command_and_where_to_start() -> None:
    text = done("--help").out
    for command in COMMANDS:
        assert re.search(rf"\b{command.split()[0]}\b", text)
    assert "cfuica demo" in text


@pytest.mark.parametrize("arguments", [[], ["bench"]])
def test_without_a_command_the_help_is_shown(arguments: list[str]) -> None:
    outcome = run(*arguments)
    assert "Usage: cfuica" in outcome.out + outcome.err
    assert "Commands" in outcome.out + outcome.err


def test_the_version_is_the_packages() -> None:
    assert done("--version").out == f"cfuica {cfuica.__version__}\n"


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["train", "demo"], ["recommend", "run", "--user", "1", "-n", "0"]]
)
def test_wrong_usage_is_told_with_exit_code_2(arguments: list[str]) -> None:
    outcome = run(*arguments)
    assert outcome.code == 2
    assert outcome.out == ""
    assert "Usage" in outcome.err
    assert "Traceback" not in outcome.err
