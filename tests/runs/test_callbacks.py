from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from cfuica.errors import SettingsError
from cfuica.runs import callbacks
from cfuica.runs.callbacks import (
    JsonLines,
    MetricsFile,
    PlainLines,
    describe,
    progress_callback,
)
from cfuica.training.display import CallbackList, LiveDisplay, TrainingCallback
from cfuica.training.trainer import Callback, Progress
from tests.runs.small import TINY, progress


def terminal(width: int = 100) -> Console:
    return Console(force_terminal=True, width=width, file=StringIO(), color_system=None)


def shown(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_a_terminal_gets_a_live_display_and_a_pipe_plain_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stderr", StringIO())
    assert isinstance(progress_callback(terminal()), LiveDisplay)
    assert isinstance(progress_callback(Console(file=StringIO())), PlainLines)


def test_the_live_display_shows_where_training_stands() -> None:
    console = terminal()
    with LiveDisplay(console) as live:
        live.started(TINY)
        live.stepped(0, 10, 1.0)
        live.validated(progress(rmse=0.9123, best=0.9012))
    text = shown(console)
    assert "training" in text
    assert "10 steps" in text
    assert "RMSE 0.9123, best 0.9012" in text
    assert "\x1b[?25l" in text  # the cursor hides while it runs ...
    assert text.rstrip("\n").endswith("\x1b[?25h")  # ... and comes back


def test_the_live_display_has_a_bar_per_member() -> None:
    console = terminal()
    with LiveDisplay(console) as live:
        live.started(TINY.replaced(ensemble_size=2))
        for member in range(2):
            live.stepped(member, 1, 1.0)
            live.validated(progress(member=member, networks=2))
    assert "model 1/2" in shown(console)
    assert "model 2/2" in shown(console)


def test_the_live_display_names_the_cold_start_network() -> None:
    console = terminal()
    with LiveDisplay(console) as live:
        live.started(TINY.replaced(cold_start_units=3))
        for member in range(2):
            live.stepped(member, 1, 1.0)
    text = shown(console)
    assert "model 1/2 " in text
    assert "cold_start " in text
    assert "model 2/2" not in text


def test_the_live_display_fits_a_narrow_terminal_and_an_open_end() -> None:
    console = terminal(width=80)
    with LiveDisplay(console) as live:
        live.started(TINY.replaced(schedule="patience", ensemble_size=4, cold_start_units=8))
        live.stepped(4, 1, 1.0)
        live.stepped(0, 1, 1.0)
        live.stepped(0, 2400, 1.0)
        live.validated(progress(rmse=0.9123))
        time.sleep(0.2)  # so that the rate has no absurd width
        live.stepped(0, 2401, 1.0)
    last = shown(console).split("\x1b[2K")[-1]
    assert "RMSE 0.9123, best 0.9123" in last
    assert "2401 steps" in last
    assert "…" not in last


def test_the_first_step_has_no_fantastic_rate() -> None:
    console = terminal()
    with LiveDisplay(console) as live:
        live.started(TINY)
        live.stepped(0, 1, 1.0)
    assert " 0.0/s" in shown(console)


def test_the_live_display_ends_when_training_fails() -> None:
    console = terminal()
    with pytest.raises(ZeroDivisionError), LiveDisplay(console):
        raise ZeroDivisionError
    assert shown(console).rstrip("\n").endswith("\x1b[?25h")


def lines_of(reports: list[Progress], clock: list[float], monkeypatch: pytest.MonkeyPatch) -> str:
    times = iter(clock)
    monkeypatch.setattr(callbacks.time, "monotonic", lambda: next(times))
    stream = StringIO()
    with PlainLines(stream) as plain:
        plain.started(TINY)  # 20 steps
        for report in reports:
            plain.validated(report)
    return stream.getvalue()


def test_plain_lines_come_at_most_every_ten_seconds_but_always_for_what_matters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reports = [
        progress(step=1),
        progress(step=2),  # 1 s later: not worth a line
        progress(step=3, verdict="cut"),
        progress(step=4),  # 11 s later
        progress(step=20),  # the last one
    ]
    text = lines_of(reports, [100.0, 101.0, 101.5, 112.6, 112.7], monkeypatch)
    assert [line.split()[1] for line in text.splitlines()] == ["1/20", "3/20", "4/20", "20/20"]
    assert "rate cut" in text.splitlines()[1]


def test_the_last_line_comes_without_a_plan_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    reports = [progress(step=step, steps_planned=None) for step in (10, 20)]
    assert "step 20 " in lines_of(reports, [100.0, 100.1], monkeypatch)


def test_a_line_says_what_there_is_to_say() -> None:
    assert describe(progress(rmse=0.91234)) == (
        "step 10/20  loss 1.2500  rate 0.01  valid RMSE 0.9123  best 0.9123  3 s"
    )
    unvalidated = progress(rmse=None, networks=4, member=1, steps_planned=None)
    assert describe(unvalidated) == "model 2/4 step 10  loss 1.2500  rate 0.01  3 s"
    cold_start = progress(member=3, networks=4, cold_start=True)
    assert describe(cold_start).startswith("model 4/4 (cold start) step 10/20  loss 1.2500 ")


def test_metrics_are_written_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsFile(path) as metrics:
        metrics.validated(progress(step=10))
        assert json.loads(path.read_text())["step"] == 10  # readable while it runs
        metrics.validated(progress(step=20, rmse=None))
    first, second = map(json.loads, path.read_text().splitlines())
    assert first["valid"] == {"rmse": 0.9, "mae": 0.7, "nll": 1.3, "n": 100}
    assert second["valid"] is None


def test_metrics_begin_with_what_a_checkpoint_remembers(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 10}\n{"step": 20}\n{"st')  # of a process that was killed
    with MetricsFile(path, [{"step": 10}]) as metrics:
        assert path.read_text() == '{"step": 10}\n'
        metrics.validated(progress(step=20))
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [10, 20]


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        ("live", LiveDisplay),
        ("lines", PlainLines),
        ("json", JsonLines),
        ("quiet", TrainingCallback),
    ],
)
def test_a_mode_decides_whatever_the_terminal(mode: str, kind: type) -> None:
    for console in (terminal(), Console(file=StringIO())):
        assert type(progress_callback(console, mode)) is kind


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(SettingsError, match="choose from auto, live, lines, json, quiet"):
        progress_callback(terminal(), "loud")


def test_json_lines_say_everything() -> None:
    stream = StringIO()
    with JsonLines(stream) as lines:
        lines.started(TINY)
        lines.stepped(0, 1, 1.0)
        lines.validated(progress(step=10))
    started, validated = map(json.loads, stream.getvalue().splitlines())
    assert started == {"event": "started", "settings": TINY.model_dump()}
    assert validated == {"event": "validated", **asdict(progress(step=10))}


def test_everyone_hears_everything_in_order() -> None:
    heard: list[str] = []

    class Ear(Callback):
        def __init__(self, name: str) -> None:
            self.name = name

        def started(self, settings: object) -> None:
            heard.append(f"{self.name} started")

        def stepped(self, member: int, step: int, loss: float) -> None:
            heard.append(f"{self.name} stepped {member} {step} {loss}")

        def validated(self, progress: Progress) -> None:
            heard.append(f"{self.name} validated {progress.step}")

    all_rows = CallbackList([Ear("a"), Ear("b")])
    all_rows.started(TINY)
    all_rows.stepped(1, 2, 3.0)
    all_rows.validated(progress(step=4))
    assert heard == [
        "a started",
        "b started",
        "a stepped 1 2 3.0",
        "b stepped 1 2 3.0",
        "a validated 4",
        "b validated 4",
    ]
