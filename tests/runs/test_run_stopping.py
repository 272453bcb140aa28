from __future__ import annotations

import os
import signal
import threading

import pytest

from cfuica.runs.run import StopRequest

BOTH = (signal.SIGINT, signal.SIGTERM)


@pytest.mark.parametrize("number", BOTH)
def test_the_first_signal_is_remembered(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    with StopRequest() as stop:
        assert stop.signal is None
        signal.raise_signal(number)
        assert stop.signal == number
    assert capfd.readouterr().err == "\nStopping after this minibatch; once more to stop at once.\n"


@pytest.mark.parametrize("second", BOTH)
def test_the_second_one_stops_at_once_and_the_third_is_ignored(second: signal.Signals) -> None:
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(second)
        for number in BOTH:
            signal.raise_signal(number)
        assert stop.signal == signal.SIGTERM


def test_afterwards_signals_mean_what_they_meant_before() -> None:
    before = [signal.getsignal(number) for number in BOTH]
    with StopRequest():
        assert [signal.getsignal(number) for number in BOTH] != before
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert [signal.getsignal(number) for number in BOTH] == before


def test_a_terminal_that_has_gone_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "write", gone)
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGTERM)
        assert stop.signal == signal.SIGTERM


def test_in_another_thread_signals_are_left_to_the_caller() -> None:
    before = [signal.getsignal(number) for number in BOTH]
    found: list[object] = []

    def work() -> None:
        with StopRequest() as stop:
            found.append(stop.signal)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [None]
    assert [signal.getsignal(number) for number in BOTH] == before
