from __future__ import annotations

import pytest

from cfuica.doctor import installation as room
from cfuica.doctor.installation import Package, check_packages, packages


def test_what_cfuica_declares_is_looked_for() -> None:
    found = {package.name: package for package in packages()}
    assert {"numba", "numpy", "polars", "torch", "typer"} <= found.keys()
    assert found["numpy"].extra is None
    assert found["numpy"].suffices
    assert found["pytest"].extra == "dev"
    assert check_packages(list(found.values())).ok


@pytest.mark.parametrize(
    ("installed", "least", "suffices"),
    [
        ("2.13.0+cpu", "2.4", True),
        ("2.4", "2.4.0", False),  # shorter counts as older; nobody declares it so
        ("1.26.4", "1.26", True),
        ("0.9", "0.10", False),
        ("3.0.0rc1", "2", True),
        (None, "0", False),
    ],
)
def test_versions_are_compared_as_numbers(
    installed: str | None, least: str, suffices: bool
) -> None:
    assert Package("p", least, None, installed).suffices is suffices


def test_what_is_missing_or_old_is_named_with_the_command_that_repairs_it() -> None:
    check = check_packages(
        [
            Package("torch", "2.4", None, "1.9"),
            Package("numba", "0.60", None, None),
            Package("numpy", "1.26", None, "2.0"),
            Package("gymnastics", "9", "sport", None),
        ]
    )
    assert check.ok is False
    assert check.found == "torch is 1.9, numba is missing"
    assert check.advice.endswith("pip install 'torch>=2.4' 'numba>=0.60'")


def test_a_missing_extra_is_no_problem() -> None:
    assert check_packages([Package("numpy", "1", None, "2"), Package("web", "1", "web", None)]).ok


def test_a_tree_that_was_never_installed_says_how_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: str) -> list[str]:
        raise room.PackageNotFoundError

    monkeypatch.setattr(room, "requires", unknown)
    assert packages() == []
    assert "pip install -e ." in check_packages([]).advice
