"""The doctor as a whole: what is told, what is not, and what a problem looks like."""

from __future__ import annotations

import json
import os
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from cfuica.cli.tables import diagnosis_in_terminal
from cfuica.doctor import installation
from cfuica.doctor.installation import Check, Diagnosis, Package, examine, with_tilde


def shown(diagnosis: Diagnosis) -> str:
    out = StringIO()
    Console(file=out, width=80).print(diagnosis_in_terminal(diagnosis))
    return out.getvalue()


def test_a_sound_installation_is_healthy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CFUICA_DATA", str(tmp_path))
    monkeypatch.setenv("CFUICA_THREADS", "2")
    found = examine()
    assert found.healthy
    told = json.loads(json.dumps(found.as_json()))
    topics = {"versions", "extra_dev", "machine", "data", "data_folder", "cache_folder"}
    assert topics | {"environment"} < told.keys()
    assert told["versions"].keys() >= {"cfuica", "python", "platform", "numba", "torch"}
    assert told["machine"]["threads"] == 2
    assert told["machine"]["devices"][0] == "cpu"
    assert told["data"].keys() >= {"ml-100k", "ml-1m"}
    assert told["data_folder"]["free_gb"] >= 0
    assert told["cache_folder"]["free_gb"] >= 0
    text = shown(found)
    assert "All is well." in text
    assert "WRONG" not in text


def test_home_and_unknown_variables_are_not_given_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setenv("CFUICA_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("CFUICA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CFUICA_TOKEN", "hush")
    assert installation.environment()["CFUICA_DATA"] == f"~{os.sep}data"
    assert installation.environment()["CFUICA_TOKEN"] == "set"
    assert installation.environment()["CFUICA_CACHE"] == f"~{os.sep}cache"
    assert installation.data_folder()["path"] == f"~{os.sep}data"
    assert installation.cache_folder()["path"] == f"~{os.sep}cache"
    for check in installation.check_environment():
        assert str(tmp_path) not in check.found
    assert with_tilde(tmp_path) == "~"
    assert with_tilde(f"{tmp_path}-elsewhere") == f"{tmp_path}-elsewhere"


@pytest.mark.parametrize("threads", ["x", "0", "-1", "1.5"])
def test_a_number_of_threads_that_would_be_ignored_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, threads: str
) -> None:
    monkeypatch.setenv("CFUICA_THREADS", threads)
    monkeypatch.delenv("CFUICA_DATA", raising=False)
    (check,) = installation.check_environment()
    assert (check.name, check.ok) == ("CFUICA_THREADS", False)
    assert "a whole number from 1" in check.advice


def test_a_data_folder_that_is_none_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CFUICA_THREADS", raising=False)
    monkeypatch.setenv("CFUICA_DATA", str(tmp_path / "nowhere"))
    (check,) = installation.check_environment()
    assert not check.ok
    assert check.found.endswith("nowhere is no folder")


def test_kernels_that_are_not_compiled_or_not_kept_are_a_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from cfuica.ops import encode

    assert installation.check_kernel_cache().ok
    monkeypatch.setattr(installation.os, "access", lambda *_: False)
    assert "NUMBA_CACHE_DIR" in installation.check_kernel_cache().advice
    monkeypatch.setattr(encode, "encode", lambda *_: None)
    assert "NUMBA_DISABLE_JIT" in installation.check_kernel_cache().advice


def test_without_a_needed_package_the_rest_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "packages", lambda: [Package("torch", "2.4", None, None)])
    found = examine()
    assert [check.name for check in found.checks] == ["packages"]
    assert not found.healthy
    assert "not there" in shown(found)


def test_each_problem_says_once_what_to_do() -> None:
    checks = [
        Check("a", True, "fine"),
        Check("b", False, "broken [/b]", "Repair it."),
        Check("c", False, "broken", "Repair it."),
    ]
    text = shown(Diagnosis({"topic": {"name": "[/x]"}}, checks))
    assert text.count("WRONG") == 2
    assert text.count("To do: Repair it.") == 1
    assert "All is well" not in text
