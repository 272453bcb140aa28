"""The doctor: what it reports, what it keeps to itself, and that it finds a broken operation."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from cfuica import doctor
from cfuica.cli.machine import diagnosis_in_terminal
from cfuica.doctor import Check, Diagnosis, Package, check_computation, check_packages, examine


def shown(diagnosis: Diagnosis) -> str:
    out = StringIO()
    Console(file=out, width=80).print(diagnosis_in_terminal(diagnosis))
    return out.getvalue()


def test_a_sound_installation_is_healthy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CFUICA_DATA", str(tmp_path))
    monkeypatch.setenv("CFUICA_THREADS", "2")
    diagnosis = examine()
    assert diagnosis.healthy
    report = json.loads(json.dumps(diagnosis.as_json()))
    topics = {"versions", "machine", "data", "data_folder", "cache_folder"}
    assert topics | {"environment", "healthy", "checks"} == report.keys()
    assert report["versions"].keys() >= {"cfuica", "python", "platform", "numba", "torch"}
    assert report["machine"].keys() >= {"cpu", "cores", "memory_gb", "devices"}
    assert report["machine"]["threads"] == 2
    assert report["machine"]["devices"][0] == "cpu"
    assert report["data"].keys() >= {"ml-100k", "ml-1m"}
    assert report["data_folder"]["free_gb"] >= 0
    assert report["cache_folder"]["free_gb"] >= 0
    text = shown(diagnosis)
    assert "All is well." in text
    assert "WRONG" not in text


def test_the_home_folder_and_unknown_variables_stay_private(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setenv("CFUICA_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("CFUICA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CFUICA_TOKEN", "hush")
    facts = doctor.surroundings()
    assert facts["environment"]["CFUICA_DATA"] == f"~{os.sep}data"
    assert facts["environment"]["CFUICA_TOKEN"] == "set"
    assert facts["data_folder"]["path"] == f"~{os.sep}data"
    assert facts["cache_folder"]["path"] == f"~{os.sep}cache"
    assert str(tmp_path) not in str(doctor.check_environment())
    assert doctor.with_tilde(tmp_path) == "~"
    assert doctor.with_tilde(f"{tmp_path}-elsewhere") == f"{tmp_path}-elsewhere"


@pytest.mark.parametrize("setting", ["THREADS=x", "THREADS=0", "THREADS=1.5", "DATA=/no/folder"])
def test_a_variable_that_would_be_ignored_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    for name in ("CFUICA_THREADS", "CFUICA_DATA"):
        monkeypatch.delenv(name, raising=False)
    name, _, value = f"CFUICA_{setting}".partition("=")
    monkeypatch.setenv(name, value)
    (check,) = doctor.check_environment()
    assert (check.name, check.ok, check.found) == (name, False, value)
    assert f"Set {name} to a" in check.advice


def test_operations_that_are_not_compiled_or_not_stored_are_a_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from cfuica.ops import encode

    assert doctor.check_numba_cache().ok
    monkeypatch.setattr(doctor.os, "access", lambda *_: False)
    assert "NUMBA_CACHE_DIR" in doctor.check_numba_cache().advice
    monkeypatch.setattr(encode, "apply_f", lambda *_: None)
    assert "NUMBA_DISABLE_JIT" in doctor.check_numba_cache().advice


def test_without_a_needed_package_nothing_else_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "packages", lambda: [Package("torch", "2.4", None)])
    diagnosis = examine()
    assert [check.name for check in diagnosis.checks] == ["packages"]
    assert not diagnosis.healthy
    assert "not there" in shown(diagnosis)
    program = (
        "import sys; sys.modules.update(dict.fromkeys(('torch', 'numba', 'numpy', 'polars')))\n"
        "import cfuica.doctor"  # an import of one of these would now fail
    )
    subprocess.run([sys.executable, "-c", program], check=True)


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


def test_packages_are_those_that_cfuica_declares() -> None:
    found = {package.name: package for package in doctor.packages()}
    assert {"numba", "numpy", "polars", "torch", "typer"} <= found.keys()
    assert found["numpy"].suffices
    assert "pytest" not in found  # it is of an extra
    assert check_packages(list(found.values())).ok


@pytest.mark.parametrize(
    ("installed", "least", "suffices"),
    [
        ("2.13.0+cpu", "2.4", True),
        ("1.26.4", "1.26", True),
        ("0.9", "0.10", False),
        ("3.0.0rc1", "2", True),
        (None, "0", False),
    ],
)
def test_versions_are_compared_as_numbers(
    installed: str | None, least: str, suffices: bool
) -> None:
    assert Package("p", least, installed).suffices is suffices


def test_a_missing_or_old_package_is_named_with_the_command_that_repairs_it() -> None:
    enough = Package("numpy", "1.26", "2.0")
    old, missing = Package("torch", "2.4", "1.9"), Package("numba", "0.60", None)
    assert check_packages([enough]).ok
    check = check_packages([old, missing, enough])
    assert check.ok is False
    assert check.found == "torch is 1.9, numba is missing"
    assert check.advice.endswith("pip install 'torch>=2.4' 'numba>=0.60'")


def test_a_tree_that_was_never_installed_says_how_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: str) -> list[str]:
        raise doctor.PackageNotFoundError

    monkeypatch.setattr(doctor, "requires", unknown)
    assert doctor.packages() == []
    assert "pip install -e ." in check_packages([]).advice


def test_this_machine_computes_right() -> None:
    checks = check_computation()
    assert len(checks) == 7
    assert all(check.ok and not check.advice for check in checks)


@pytest.mark.parametrize(
    ("operation", "output", "check"),
    [
        ("ops.encode._add_up", -3, "rating minibatch"),
        ("ops.encode._activate_rows", -3, "rating minibatch"),
        ("ops.encode._derive_rows", -3, "rating minibatch"),
        ("ops.encode._sum_readers", -4, "rating minibatch"),
        ("ops.decode._decode_rows", -3, "rating minibatch"),
        ("ops.decode._decode_by_rows", -4, "rating minibatch"),
        ("ops.decode._decode_by_queries", -3, "rating minibatch"),
        ("ops.decode._bias_by_rows", -4, "rating minibatch"),
        ("ops.loss._rating", -3, "rating minibatch"),
        ("ops.adam._adam_rows", 0, "rating minibatch"),
        ("ops.encode._scan", -3, "softmax minibatch"),
        ("ops.encode._scan_backward", -5, "softmax minibatch"),
        ("ops.loss._softmax_gradients", 0, "softmax minibatch"),
        ("ops.loss._bernoulli", -3, "Bernoulli minibatch"),
        ("ops.running_sums.fill", -3, "live rating model"),
        ("ops.running_sums.shift", 1, "live rating model"),
        ("ops.decode._row_products", -3, "live ranking model"),
        ("ops.topk.top_k", -4, "top-k and ranks"),
        ("ops.topk.among_all", -4, "top-k and ranks"),
    ],
)
def test_a_broken_operation_is_found(
    monkeypatch: pytest.MonkeyPatch, operation: str, output: int, check: str
) -> None:
    """`output` is the argument that the operation writes to, which is then a little wrong."""
    module, _, name = operation.rpartition(".")
    sound: Callable[..., Any] = getattr(importlib.import_module(f"cfuica.{module}"), name)

    def broken(*args: Any) -> Any:
        result, out = sound(*args), args[output]
        out[...] = out * np.float32(1.001) if out.dtype.kind == "f" else out[..., ::-1].copy()
        return result

    monkeypatch.setenv("CFUICA_THREADS", "1")  # one call writes all rows
    monkeypatch.setattr(f"cfuica.{operation}", broken)
    failed = {each.name: each for each in check_computation() if not each.ok}
    assert check in failed
    assert "cannot be trusted" in failed[check].advice


def test_an_operation_that_raises_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(*_: Any) -> None:
        raise FloatingPointError("overflow\nat 0x0")

    monkeypatch.setattr("cfuica.ops.loss._bernoulli", raising)
    (check,) = (check for check in check_computation() if not check.ok)
    assert (check.name, check.found) == ("Bernoulli minibatch", "FloatingPointError: overflow")
