"""The self-test must notice a kernel that is wrong; here every one of them is made so."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from cfuica.doctor import kernels
from cfuica.doctor.kernels import STEPS, check_kernels
from tests.doctor.called_kernels import called_kernels

# Of kernels that compute rows start..stop of arrays: the places of these among the arguments before
# start and stop. Those that are not here return what they compute.
OUTPUTS: dict[str, list[int]] = {
    "encode.encode": [-1],
    "decode.decode": [-1],
    "bridge.bridge": [-1],
    "cost.cost": [-2],
    "decode.decode_backward_members": [-3, -2],
    "decode.decode_backward_queries": [-2],
    "encode.encode_backward": [-2],
    "adam.adam": [0],
    "scan.scan": [-2, -1],
    "softmax.softmax_slopes": [0, -1],
    "scan.scan_backward": [-3, -2, -1],
    "scan.later_sums": [-1],
    "cost.bernoulli": [-2, -1],
    "live.fill": [-1],
    "live.hidden_vectors": [-1],
    "own_bias.residuals": [-2, -1],
    "scan.advance": [-1],
    "scan.read": [-1],
    "scan.without_each": [-1],
    "products.products": [-1],
    "products.paired": [-1],
    "products.chosen": [-1],
    "calibrate.calibrate": [-1],
    "score.expected": [-1],
    "score.worst": [-1],
    "select.best": [-2],
    "rank.among_all": [-2, -1],
    "rank.among_candidates": [-1],
    "absent.draw": [-1],
    "introsort.last_of_each": [-1],
}
# Of kernels that change arrays as a whole: the place among all arguments.
WHOLE = {"live.shift": 1, "live.repack": -2}
# Kernels that are bound to another name where the doctor's steps reach them.
BOUND = {"softmax.softmax_slopes": "cfuica.learning.catalogue"}


def test_every_kernel_that_the_house_calls_is_looked_at() -> None:
    looked_at = {name for names in STEPS for name in names}
    assert looked_at == called_kernels()


def test_every_kernel_is_found_right_and_the_passes_are_timed() -> None:
    checks = check_kernels()
    assert [check.name for check in checks] == [
        f"kernel {name}" for names in STEPS for name in names
    ]
    assert [check for check in checks if not check.ok or check.advice] == []
    assert sum(check.seconds or 0 for check in checks) > 0


def replace(monkeypatch: pytest.MonkeyPatch, kernel: str, with_what: Any) -> None:
    module, _, name = kernel.partition(".")
    monkeypatch.setattr(BOUND.get(kernel, f"cfuica.kernels.{module}") + f".{name}", with_what)


def right(kernel: str) -> Any:
    module, _, name = kernel.partition(".")
    return getattr(importlib.import_module(f"cfuica.kernels.{module}"), name)


def spoil(array: np.ndarray, wrong: float) -> None:
    """In the first row: by a factor, or, where numbers are whole, by one."""
    if array.dtype == np.bool_:
        array[0] = ~array[0]
    elif np.issubdtype(array.dtype, np.integer):
        array[0] += 1
    else:
        array[0] *= wrong


def the_first_that_is_wrong(monkeypatch: pytest.MonkeyPatch, kernel: str) -> str:
    """Of the kernels that are looked at up to this one."""
    last = next(number for number, names in enumerate(STEPS) if kernel in names)
    monkeypatch.setattr(kernels, "STEPS", dict(list(STEPS.items())[: last + 1]))
    wrong = next(check for check in check_kernels() if not check.ok)
    assert "cannot be trusted" in wrong.advice
    return wrong.name.removeprefix("kernel ")


CASES = [
    pytest.param(kernel, output, wrong, id=f"{kernel} {output} {wrong}")
    for kernel, outputs in OUTPUTS.items()
    for output in outputs
    for wrong in (10.0, float("nan"))
]


@pytest.mark.parametrize(("kernel", "output", "wrong"), CASES)
def test_a_kernel_that_is_wrong_in_its_first_row_is_found_out(
    monkeypatch: pytest.MonkeyPatch, kernel: str, output: int, wrong: float
) -> None:
    compiled = right(kernel)

    def broken(*arguments: Any) -> Any:
        found = compiled(*arguments)
        *arrays, start, stop = arguments
        if start == 0 < stop:
            spoil(arrays[output], wrong)
        return found

    replace(monkeypatch, kernel, broken)
    assert the_first_that_is_wrong(monkeypatch, kernel) == kernel


@pytest.mark.parametrize("kernel", sorted(called_kernels() - set(OUTPUTS)))
def test_a_kernel_that_is_wrong_as_a_whole_is_found_out(
    monkeypatch: pytest.MonkeyPatch, kernel: str
) -> None:
    compiled = right(kernel)

    def broken(*arguments: Any) -> Any:
        found = compiled(*arguments)
        if kernel in WHOLE:
            spoil(arguments[WHOLE[kernel]], 10.0)
        else:
            spoil(found[-1] if isinstance(found, tuple) else found, 10.0)
        return found

    replace(monkeypatch, kernel, broken)
    assert the_first_that_is_wrong(monkeypatch, kernel) == kernel


@pytest.mark.parametrize("kernel", ["encode.encode", "draw.contexts", "rank.among_all"])
def test_a_kernel_that_fails_is_a_verdict_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, kernel: str
) -> None:
    def fail(*_: object) -> None:
        raise TypeError("no such signature\nand more lines")

    replace(monkeypatch, kernel, fail)
    wrong = {check.name: check for check in check_kernels() if not check.ok}
    assert wrong[f"kernel {kernel}"].found == "TypeError: no such signature"
    # Whatever does not build on it is looked at all the same.
    assert "kernel introsort.last_of_each" not in wrong
