"""Real processes, killed with SIGKILL."""

from __future__ import annotations

import json
import subprocess
import sys

ROUNDS = 10


def test_a_run_that_is_killed_at_any_moment_goes_on_to_the_same_bits() -> None:
    words = [sys.executable, "-m", "tests.runs.kill_rounds", "--rounds", str(ROUNDS), "--seed"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # Two at a time: each plays its rounds one after another, on hardly more than one core.
    players = [subprocess.Popen([*words, str(seed)], **pipes) for seed in range(2)]
    killed = []
    for player in players:
        out, err = player.communicate()
        assert out, err
        found = json.loads(out)
        assert (found["rounds"], found["equal"], found["unequal"]) == (ROUNDS, ROUNDS, [])
        killed += found["killed"]
        assert err == ""
    inside = [moment for moment in killed if moment.endswith("writing a checkpoint")]
    assert len(inside) >= 5, killed
