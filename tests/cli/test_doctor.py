from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.harness import done, run


@pytest.fixture(autouse=True)
def _sound_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CFUICA_DATA", str(tmp_path))
    monkeypatch.delenv("CFUICA_THREADS", raising=False)


def test_a_sound_installation_exits_with_0() -> None:
    assert "All is well." in done("doctor").out


def test_everything_can_be_compiled_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    monkeypatch.setattr("cfuica.models.warm_up.warm_up", compiled.append)
    assert "All is well." in done("doctor", "--compile").out
    assert compiled == ["rating", "ranking"]


def test_json_is_all_there_is_whatever_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    assert json.loads(done("doctor", "--json").out)["healthy"] is True
    monkeypatch.setenv("CFUICA_THREADS", "many")
    result = run("doctor", "--json")
    assert result.code == 1
    assert result.err == ""
    printed = json.loads(result.out)
    assert printed["healthy"] is False
    assert [check["name"] for check in printed["checks"] if not check["ok"]] == ["CFUICA_THREADS"]


def test_a_problem_exits_with_1_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CFUICA_THREADS", "many")
    result = run("doctor")
    assert result.code == 1
    assert "To do: Set CFUICA_THREADS to a whole number" in result.out
