"""The self-test must notice a kernel that is wrong; here every one of them is made so."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from cfuica.doctor.kernels import check_kernels
from cfuica.kernels import adam, calibrate, cost, decode, draw, encode, live, score, select

NAMES = [
    "draw",
    "encode",
    "decode",
    "cost",
    "decode_backward_members",
    "decode_backward_queries",
    "encode_backward",
    "adam",
    "fill",
    "hidden_vectors",
    "calibrate",
    "expected",
    "worst",
    "best",
]


def test_every_kernel_is_found_right_and_the_passes_are_timed() -> None:
    checks = check_kernels()
    assert [check.name for check in checks] == [f"kernel {name}" for name in NAMES]
    assert [check for check in checks if not check.ok or check.advice] == []
    assert sum(check.seconds or 0 for check in checks) > 0


# The place of an output among a kernel's arguments before start and stop.
OUTPUTS = [
    (encode, "encode", -1),
    (decode, "decode", -1),
    (cost, "cost", -2),
    (decode, "decode_backward_members", -3),
    (decode, "decode_backward_members", -2),
    (decode, "decode_backward_queries", -2),
    (encode, "encode_backward", -2),
    (adam, "adam", 0),
    (live, "fill", -1),
    (live, "hidden_vectors", -1),
    (calibrate, "calibrate", -1),
    (score, "expected", -1),
    (score, "worst", -1),
]


@pytest.mark.parametrize(("module", "name", "output"), OUTPUTS)
@pytest.mark.parametrize("wrong", [1.01, float("nan")])
def test_a_kernel_that_is_wrong_in_its_first_row_is_found_out(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, output: int, wrong: float
) -> None:
    right = getattr(module, name)

    def broken(*arguments: object) -> None:
        *arrays, start, stop = arguments
        right(*arrays, start, stop)
        if stop > start:
            arrays[output][start] *= wrong

    monkeypatch.setattr(module, name, broken)
    wrong_ones = [check for check in check_kernels() if not check.ok]
    assert wrong_ones[0].name == f"kernel {name}"
    assert "cannot be trusted" in wrong_ones[0].advice


def test_a_ranking_with_two_items_in_the_wrong_order_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = select.best

    def broken(*arguments: Any) -> None:
        right(*arguments)
        members_bn, start, stop = arguments[-4], *arguments[-2:]
        if stop > start:
            members_bn[start, :2] = members_bn[start, 1::-1]

    monkeypatch.setattr(select, "best", broken)
    assert [check.name for check in check_kernels() if not check.ok] == ["kernel best"]


def test_a_block_cut_wrongly_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    right = draw.observed_pairs
    monkeypatch.setattr(
        draw, "observed_pairs", lambda *arguments: [found[:-1] for found in right(*arguments)]
    )
    assert check_kernels()[0].ok is False


@pytest.mark.parametrize(("module", "name"), [(encode, "encode"), (draw, "contexts")])
def test_a_kernel_that_fails_is_a_verdict_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str
) -> None:
    def fail(*_: object) -> None:
        raise TypeError("no such signature\nand more lines")

    monkeypatch.setattr(module, name, fail)
    wrong = [check for check in check_kernels() if not check.ok]
    assert wrong[0].found == "TypeError: no such signature"
    assert wrong[0].name == ("kernel encode" if module is encode else "kernel draw")
