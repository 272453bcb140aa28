"""A split of ours as files, for a system that cfuica does not import.

    .venv/bin/python benchmarks/peers/split.py ml-1m --task rating --fold 1 --out DIR
    .venv/bin/python benchmarks/peers/split.py ml-1m --task ranking --out DIR

The split is that of `cfuica train`. DIR gets

    run/                     a run of the plainest model, for `cfuica evaluate DIR/run
                             --predictions FILE`; run/test.parquet is the test set
    train.parquet            user, item, rating and timestamp, where there are any
    valid.parquet            the same, to choose settings and the number of epochs by
    asked-PROTOCOL.parquet   what has to be answered, without the answers: pairs of user and item
                             (and their timestamps, where ratings are asked for) that need a
                             rating or a score; or users alone, who need a ranking of all unseen
                             items
    seen-PROTOCOL.parquet    what may be read when a ranking protocol asks: all but its test items

The protocol is `rating`, or one of the ranking protocols that the data has (docs/ranking.md).
Training sets and histories are in the order of time, of equal times in that of the data.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from cfuica.data.layout import FIND_OUT
from cfuica.data.split_tables import DataSplit, SplitRequest
from cfuica.errors import DataError
from cfuica.evaluation.protocols import RunVocabulary, ranking_test_for
from cfuica.io import parquet_bytes, write_bytes_atomically
from cfuica.models.recommender import kind_named
from cfuica.run_folder import RunFolder
from cfuica.runs.inputs import read_split
from cfuica.runs.run import Job
from cfuica.training.display import TrainingCallback

# The run has to be there to evaluate with; what it learned does not matter.
PLAINEST = {"rating": "global-mean", "ranking": "itempop"}
RATING = "rating"


def main() -> None:
    """Write one split."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="name, file or folder of the interactions")
    parser.add_argument("--task", required=True, choices=list(PLAINEST))
    parser.add_argument("--fold", type=int, help="the random fold to test on, for ratings")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    write_split(given.data, given.task, given.fold, given.out)


def write_split(data: str, task: str, fold: int | None, out: Path) -> None:
    """Split, make the run, and write the files."""
    kind = kind_named(PLAINEST[task], task)
    request = SplitRequest(kind.split, fold=fold)
    data_split = read_split(data, None, None, request, FIND_OUT, task=task)
    if data_split.test is None or data_split.valid is None:
        raise DataError(f"{data} is too small to train, validate and test on; give other data.")
    folder = RunFolder.create(out / "run", overwrite=True)
    Job.new(folder, data_split, kind.preset("default"), preset="default").run(TrainingCallback())
    for name, frame in tables(data_split, folder, task):
        write_bytes_atomically(out / f"{name}.parquet", parquet_bytes(frame))


def tables(
    data_split: DataSplit, folder: RunFolder, task: str
) -> Iterator[tuple[str, pl.DataFrame]]:
    """(name, table) of each file."""
    assert data_split.test is not None
    assert data_split.valid is not None
    yield "train", in_time(data_split.train.frame)
    yield "valid", in_time(data_split.valid.frame)
    if task == RATING:
        pairs = data_split.test.frame
        asked = [name for name in ("user", "item", "timestamp") if name in pairs.columns]
        yield f"asked-{RATING}", pairs.select(asked)
        return
    vocabulary = RunVocabulary.of_run(folder)
    for protocol in data_split.description["protocols"]:
        test = ranking_test_for(protocol, folder, vocabulary)[0]
        users = vocabulary.users.decode(test.users_u)
        tested = pl.DataFrame(
            {
                "user": users.gather(test.relevant.row_of_entry()),
                "item": vocabulary.items.decode(test.relevant.indices),
            }
        )
        seen = data_split.whole.frame.join(
            tested, on=["user", "item"], how="anti", maintain_order="left"
        )
        yield f"seen-{protocol}", in_time(seen)
        if test.candidates_duc is None:
            yield f"asked-{protocol}", pl.DataFrame({"user": users})
            continue
        draws, _, candidates = test.candidates_duc.shape
        item = pl.Series(test.candidates_duc.ravel())
        row = pl.int_range(users.len(), eager=True).repeat_by(candidates).explode()
        pairs = pl.DataFrame({"row": pl.concat([row] * draws), "item": item})
        pairs = pairs.filter(pl.col("item") >= 0).unique().sort("row", "item")
        yield (
            f"asked-{protocol}",
            pl.DataFrame(
                {
                    "user": users.gather(pairs["row"]),
                    "item": vocabulary.items.decode(pairs["item"].to_numpy()),
                }
            ),
        )


def in_time(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows in the order of time, of equal times as they were."""
    return frame.sort("timestamp", maintain_order=True) if "timestamp" in frame else frame


if __name__ == "__main__":
    main()
