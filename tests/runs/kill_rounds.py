"""Kill real trainings with SIGKILL at random moments, resume them, and compare with one that ran
through.

    .venv/bin/python -m tests.runs.kill_rounds --rounds 20

A round counts if the process was killed after its first checkpoint and before its end. It is then
resumed, every second time killed once more, and must end in the same model, bit for bit, in the
same metrics, and with nothing left over. Every step is kept, and half of the kills wait for a
checkpoint that is being written. Processes are forked from this one, which has imported everything
and used nothing: importing would take most of the time.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from cfuica.cli import main as cfuica

# What only the forks use is imported for them.


SETTINGS = {
    "members": ["schedule=planned", "ensemble_size=2", "max_steps=8", "validate_every=3"],
    "patience": ["schedule=patience", "ensemble_size=1", "patience=2", "max_steps=20",
                 "validate_every=1", "learning_rate=0.1", "stop_rate=0.002", "rate_divisor=3"],
}  # fmt: skip
OPTIONS = ["--checkpoint-every", "0", "--progress", "quiet"]
SMALL = [
    "hidden_users=12",
    "hidden_items=9",
    "cold_start_units=5",
    "batch_users=60",
    "batch_items=40",
]
MEMBERS, PATIENCE = SETTINGS


@dataclass(frozen=True)
class Whole:
    """A training that ran through, and its pace."""

    run: Path
    steps: int
    seconds_per_step: float

    @classmethod
    def of(cls, run: Path) -> Whole:
        training = json.loads((run / "run.json").read_text("utf-8"))["training"]
        return cls(run, training["steps"], training["seconds"] / training["steps"])


def main() -> None:
    """Play the rounds; a line of JSON says how many were equal and where the kills fell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    chance = random.Random(given.seed)
    killed: list[str] = []
    differences: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        data = _data(folder / "ratings.csv")
        _wait(_fork(_new(data, folder / "warm", MEMBERS)))  # compiles the kernels
        whole = {}
        for name in SETTINGS:
            _wait(_fork(_new(data, folder / name, name)))
            whole[name] = Whole.of(folder / name)
        while len(differences) < given.rounds:
            name = list(SETTINGS)[len(differences) % len(SETTINGS)]
            run = folder / f"round-{len(killed)}"
            _kill(_fork(_new(data, run, name)), run, whole[name], chance)
            killed.append(_state(run))
            if killed[-1] in ("nothing yet", "finished"):
                continue
            if len(differences) % 4 > 1:
                _kill(_fork(_resume(run)), run, whole[name], chance)
                killed.append(f"resumed: {_state(run)}")
            if _state(run) != "finished":
                _wait(_fork(_resume(run)))
            differences.append(_difference(run, whole[name].run))
    unequal = [difference for difference in differences if difference]
    said = {"rounds": len(differences), "equal": len(differences) - len(unequal)}
    print(json.dumps({**said, "unequal": unequal, "killed": killed}))
    sys.exit(1 if unequal else 0)


def _data(path: Path) -> Path:
    """200 users, 100 items, 4,000 ratings, without using anything that starts threads."""
    chance = random.Random(1)
    pairs = sorted({(chance.randrange(200), chance.randrange(100)) for _ in range(4500)})
    rows = [f"{user},{item},{1 + (user * item + chance.randrange(2)) % 5}" for user, item in pairs]
    path.write_text("\n".join(["user,item,rating", *rows]) + "\n", "utf-8")
    return path


def _new(data: Path, run: Path, name: str) -> list[str]:
    changes = [word for change in SMALL + SETTINGS[name] for word in ("--set", change)]
    return ["train", str(data), "--out", str(run), *OPTIONS, *changes]


def _resume(run: Path) -> list[str]:
    return ["train", "--resume", str(run), *OPTIONS]


def _fork(arguments: list[str]) -> int:
    child = os.fork()
    if child == 0:
        sys.argv = ["cfuica", *arguments]
        code = 70
        try:
            cfuica()
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            os._exit(code)
    return child


def _kill(child: int, run: Path, whole: Whole, chance: random.Random) -> None:
    """At a random moment of a random step, which may be a little after the last one."""
    step = chance.randint(max(_step(run), 1), whole.steps)
    while _step(run) < step and _is_running(child):
        time.sleep(0.001)
    time.sleep(chance.uniform(0, 1.5 * whole.seconds_per_step))
    if chance.random() < 0.5:
        while not _is_writing(run) and _is_running(child):
            pass
        time.sleep(chance.uniform(0, 0.002))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _is_running(child: int) -> bool:
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def _is_writing(run: Path) -> bool:
    return any(name.startswith(".unsealed-") for name in _names(run))


def _step(run: Path) -> int:
    """Of the newest checkpoint, which is numbered so where every step is kept; 0 before it."""
    numbers = [int(n.split("-")[1]) for n in _names(run) if n.startswith("checkpoint-")]
    return max(numbers, default=0)


def _names(run: Path) -> list[str]:
    try:
        return os.listdir(run / "unfinished")
    except FileNotFoundError:  # not there yet, or just removed by a run that ends
        return []


def _wait(child: int) -> None:
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise SystemExit(f"A training ended with {os.waitstatus_to_exitcode(status)}.")


def _state(run: Path) -> str:
    record = run / "run.json"
    if record.is_file() and json.loads(record.read_text("utf-8"))["status"] == "finished":
        return "finished"
    if not _step(run):
        return "nothing yet"
    if list(run.glob(".unsealed-model-*")):
        return "while saving the model"
    if _is_writing(run):
        return "while writing a checkpoint"
    return "between two checkpoints"


def _difference(run: Path, reference: Path) -> str:
    """What differs; nothing where the two are equal."""
    for name in ("model/model.safetensors", "model/interactions.parquet", "test.parquet"):
        if (run / name).read_bytes() != (reference / name).read_bytes():
            return name
    # A process killed after its last word may leave what it was removing.
    left = set(os.listdir(run)) - set(os.listdir(reference)) - {"unfinished"}
    if left:
        return f"left over: {sorted(left)}"
    return "" if _metrics(run) == _metrics(reference) else "metrics.jsonl"


def _metrics(run: Path) -> list[dict[str, object]]:
    lines = (run / "metrics.jsonl").read_text("utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    return [{k: v for k, v in each.items() if "seconds" not in k} for each in records]


if __name__ == "__main__":
    main()
