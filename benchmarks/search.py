"""Compare settings on the validation part of fold 0, where alone they are chosen.

    .venv/bin/python benchmarks/search.py ml-1m members=1 members=1,dropout=0.25 ...

Each argument is the preset `default` with some settings changed ("default" changes none). Prints
the validation RMSE of the joined model and of its members, and the minutes of training. Test parts
are not touched.
"""

from __future__ import annotations

import argparse

from cfuica.cli.settings import changed
from cfuica.data.registry import resolve
from cfuica.data.splits import Split
from cfuica.learning.rating import make_validator, train
from cfuica.presets import preset


def main() -> None:
    """Train each, one after another."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("changes", nargs="+", metavar="KEY=VALUE,...")
    parser.add_argument("--preset", default="default")
    given = parser.parse_args()
    table = resolve(given.data)
    maps = {"users": table.users, "items": table.item_ids, "scale": table.scale}
    split = Split.random(table.n, folds=10, fold=0, valid=0.05, seed=0)
    matrix = table.take(split.train).matrix(**maps)
    valid = table.take(split.valid).rated_pairs(**maps)
    values_k = table.scale.values_array()
    validate = make_validator(matrix, valid, values_k)
    for changes in given.changes:
        assignments = [] if changes == "default" else changes.split(",")
        settings = changed(preset(given.preset), assignments, None)
        fitted = train(matrix, settings, values_k, valid=valid)
        known = [progress for progress in fitted.history if not progress.strangers]
        last = {progress.member: progress for progress in known}.values()
        members = ", ".join(f"{progress.valid.rmse:.4f}" for progress in last if progress.valid)
        print(
            f"{changes}: joined {validate(fitted.model).rmse:.4f}, members {members}, "
            f"{fitted.seconds / 60:.1f} min",
            flush=True,
        )


if __name__ == "__main__":
    main()
