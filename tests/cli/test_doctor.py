from __future__ import annotations

import json
from pathlib import Path

import pytest

from cfuica.cli.doctor import doctor
from tests.cli.single import run_command


@pytest.fixture(autouse=True)
def _sound_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CFUICA_DATA", str(tmp_path))
    monkeypatch.delenv("CFUICA_THREADS", raising=False)


def test_a_sound_installation_exits_with_0() -> None:
    result = run_command(doctor)
    assert result.code == 0
    assert "All is well." in result.out


def test_json_is_all_there_is_whatever_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    assert json.loads(run_command(doctor, "--json").out)["healthy"] is True
    monkeypatch.setenv("CFUICA_THREADS", "many")
    result = run_command(doctor, "--json")
    assert result.code == 1
    assert result.err == ""
    told = json.loads(result.out)
    assert told["healthy"] is False
    assert [check["name"] for check in told["checks"] if not check["ok"]] == ["CFUICA_THREADS"]


def test_a_problem_exits_with_1_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CFUICA_THREADS", "many")
    result = run_command(doctor)
    assert result.code == 1
    assert "To do: Set CFUICA_THREADS to a whole number" in result.out


def test_the_help_has_an_example() -> None:
    assert "Example:  cfuica doctor --json" in run_command(doctor, "--help").out
