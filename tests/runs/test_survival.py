"""Real processes, killed with SIGKILL."""

from __future__ import annotations

import json
import subprocess
import sys


def test_a_run_that_is_killed_at_any_moment_goes_on_to_the_same_bits() -> None:
    rounds = subprocess.run(
        [sys.executable, "-m", "tests.runs.kill_rounds", "--rounds", "20"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert rounds.stdout, rounds.stderr
    found = json.loads(rounds.stdout)
    assert (found["rounds"], found["equal"], found["unequal"]) == (20, 20, [])
    inside = [moment for moment in found["killed"] if moment.endswith("writing a checkpoint")]
    assert len(inside) >= 5, found["killed"]
    assert rounds.stderr == ""
