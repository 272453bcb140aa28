"""What a minibatch costs against another checkout: median of paired ratios of CPU seconds.

    python benchmarks/against.py OLD [--data ml-1m] [--minibatches 60]

Two worker processes, one of OLD and one of this checkout, train the same model on the same data.
They take turns, a minibatch each, so that whatever else the machine does meets both alike. CPU
seconds are those of all threads of a worker, drawing of the next minibatch included. Each task is
measured with its own preset: `paper` for ratings, `default` for rankings. OLD needs an environment
of its own in OLD/.venv.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
WARM_UP = 5

# Runs in either checkout, so it knows the words of both: presets and the name of the callback.
WORKER = """
import inspect, sys, time
import cfuica

task, data, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
if task == "rating":
    preset = getattr(cfuica, "rating_preset", None) or cfuica.preset
    model, settings = cfuica.RatingModel, preset("paper")
else:
    model, settings = cfuica.RankingModel, cfuica.ranking_preset("default").replaced(epochs=None)
settings = settings.replaced(schedule="planned", max_steps=steps, validate_every=10**9)

class Turns:
    last = 0.0
    def started(self, settings): pass
    def validated(self, progress): pass
    def stepped(self, *_):
        now = time.process_time()
        print(now - self.last, flush=True)
        sys.stdin.readline()
        self.last = now

table = cfuica.load_data(data)
name = "callback" if "callback" in inspect.signature(model.fit).parameters else "listener"
model(settings).fit(table if task == "ranking" else table.rated(), **{name: Turns()})
"""


def worker(checkout: Path, task: str, data: str, steps: int) -> subprocess.Popen[str]:
    """A training that waits for a line after every minibatch."""
    return subprocess.Popen(
        [str(checkout / ".venv" / "bin" / "python"), "-c", WORKER, task, data, str(steps)],
        env={**os.environ, "PYTHONPATH": str(checkout / "src")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def turn(one: subprocess.Popen[str]) -> float:
    """CPU seconds of its next minibatch."""
    assert one.stdin is not None
    assert one.stdout is not None
    one.stdin.write("\n")
    one.stdin.flush()
    line = one.stdout.readline()
    if not line:
        sys.exit(f"against.py: a worker ended with {one.wait()}; its message stands above")
    return float(line)


def measure(old: Path, task: str, data: str, minibatches: int) -> dict[str, float]:
    """Median CPU seconds of both, and the median of new / old over pairs of minibatches."""
    steps = minibatches + WARM_UP + 1
    workers = [worker(checkout, task, data, steps) for checkout in (old, HERE)]
    try:
        for one in workers:
            assert one.stdout is not None
            one.stdout.readline()  # the first minibatch, with all that comes before it
        pairs = []
        for number in range(minibatches + WARM_UP):
            order = (0, 1) if number % 2 else (1, 0)
            seconds = {which: turn(workers[which]) for which in order}
            if number >= WARM_UP:
                pairs.append((seconds[0], seconds[1]))
    finally:
        for one in workers:
            one.kill()
    return {
        "ratio": statistics.median(new / before for before, new in pairs),
        "old_cpu_seconds": statistics.median(before for before, _ in pairs),
        "new_cpu_seconds": statistics.median(new for _, new in pairs),
        "minibatches": len(pairs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("--data", default="ml-1m")
    parser.add_argument("--minibatches", type=int, default=60)
    parser.add_argument("--task", choices=("rating", "ranking"), action="append")
    given = parser.parse_args()
    for task in given.task or ("rating", "ranking"):
        found = measure(given.old.resolve(), task, given.data, given.minibatches)
        print(json.dumps({"task": task, "data": given.data, **found}), flush=True)


if __name__ == "__main__":
    main()
