"""`cfuica bench` on the embedded data: what it prints, as a table and as JSON."""

from __future__ import annotations

import json

import pytest

from tests.cli.harness import done

WORDS = ("bench", "step", "--data", "demo", "--hidden", 4, "--repeats", 3, "--dense-repeats", 1)


def test_the_table_has_every_part_and_both_speed_ups() -> None:
    text = done(*WORDS).out
    for word in ("draw", "encode", "decode", "loss", "adam", "rest"):
        assert word in text
    assert text.count("x faster") == 2


def test_json_has_the_figures_and_nothing_else() -> None:
    printed = json.loads(done(*WORDS, "--json").out)
    assert printed["repeats"] == 3
    assert printed["hidden"] == {"users": 4, "items": 4}
    assert printed["speedup"] == pytest.approx(printed["dense_median_s"] / printed["median_s"])


def test_the_prediction_of_a_test_set_is_timed_in_all_forms() -> None:
    words = ("bench", "test", "--data", "demo", "--hidden", 4)
    text = done(*words).out
    assert "Predicting 6,000 ratings" in text
    assert "dense, at its best" in text
    printed = json.loads(done(*words, "--json").out)
    assert min(printed[name] for name in printed if name.endswith("median_s")) > 0
