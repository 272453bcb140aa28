"""What training and serving cost against another checkout: medians of paired ratios of CPU seconds.

    python benchmarks/against.py OLD [--data ml-1m] [--blocks 60] [--what rating ranking ...]

Two worker processes, one of OLD and one of this checkout, do the same work on the same data. They
take turns, a block each, so that whatever else the machine does meets both alike. CPU seconds are
those of all threads of a worker. A block is a minibatch (`rating`: preset `paper`, `ranking`:
preset `default`; the drawing of the next minibatch is part of it), or some calls of a fitted model
of ratings (`observe`, `recommend` one user, `explain`; preset `default` after two minibatches), or
of rankings (`ranking-observe`, `ranking-recommend`, `ranking-explain`). OLD needs an environment of
its own in OLD/.venv.
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

# Runs in either checkout, so it uses what both have.
WORKER = """
import sys, time
import cfuica

what, data, blocks = sys.argv[1], sys.argv[2], int(sys.argv[3])
task = "ranking" if what.startswith("ranking") else "rating"
table = cfuica.load_data(data)
last = 0.0

def turn():
    global last
    print(time.process_time() - last, flush=True)
    sys.stdin.readline()
    last = time.process_time()

class Turns:
    def started(self, settings): pass
    def validated(self, progress): pass
    def stepped(self, *_): turn()

class Silence(Turns):
    def stepped(self, *_): pass

def fitted(preset, steps, callback):
    if task == "rating":
        model, settings = cfuica.RatingModel, cfuica.rating_preset(preset)
    else:
        model, settings = cfuica.RankingModel, cfuica.ranking_preset(preset).replaced(epochs=None)
    settings = settings.replaced(schedule="planned", max_steps=steps, validate_every=10**9)
    return model(settings).fit(table if task == "ranking" else table.rated(), callback=callback)

if what in ("rating", "ranking"):
    fitted("paper" if task == "rating" else "default", blocks, Turns())
else:
    model = fitted("default", 2, Silence())
    users, items = table.users.ids.to_list(), table.item_ids.ids.to_list()
    calls = {
        "observe": lambda n: model.observe([(users[n], items[-n % len(items)], 3.0)]),
        "recommend": lambda n: model.recommend(users[n]),
        "explain": lambda n: model.explain(users[n], items[n % len(items)]),
    }
    call, each = calls[what.split("-")[-1]], {"observe": 100}.get(what.split("-")[-1], 5)
    calls["recommend"](0)
    for block in range(blocks):
        for n in range(each):
            call(37 * (block * each + n) % len(users))
        turn()
"""


def worker(checkout: Path, what: str, data: str, blocks: int) -> subprocess.Popen[str]:
    """A process that waits for a line after every block."""
    return subprocess.Popen(
        [str(checkout / ".venv" / "bin" / "python"), "-c", WORKER, what, data, str(blocks)],
        env={**os.environ, "PYTHONPATH": str(checkout / "src")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def turn(one: subprocess.Popen[str]) -> float:
    """CPU seconds of its next block."""
    assert one.stdin is not None
    assert one.stdout is not None
    one.stdin.write("\n")
    one.stdin.flush()
    line = one.stdout.readline()
    if not line:
        sys.exit(f"against.py: a worker ended with {one.wait()}; its message stands above")
    return float(line)


def measure(old: Path, what: str, data: str, blocks: int) -> dict[str, float]:
    """Median CPU seconds of both, and the median of new / old over pairs of blocks."""
    workers = [worker(checkout, what, data, blocks + WARM_UP + 1) for checkout in (old, HERE)]
    try:
        for one in workers:
            assert one.stdout is not None
            one.stdout.readline()  # the first block, with all that comes before it
        pairs = []
        for number in range(blocks + WARM_UP):
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
        "blocks": len(pairs),
    }


WHAT = (
    "rating", "ranking", "observe", "recommend", "explain",
    "ranking-observe", "ranking-recommend", "ranking-explain",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("--data", default="ml-1m")
    parser.add_argument("--blocks", type=int, default=60)
    parser.add_argument("--what", choices=WHAT, nargs="+", default=WHAT)
    given = parser.parse_args()
    for what in given.what:
        found = measure(given.old.resolve(), what, given.data, given.blocks)
        print(json.dumps({"what": what, "data": given.data, **found}), flush=True)


if __name__ == "__main__":
    main()
