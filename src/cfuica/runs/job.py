"""One training run: tables in, a run folder out."""

from __future__ import annotations

import platform
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import polars as pl

import cfuica
from cfuica.data.splits import Split
from cfuica.data.table import BehaviourTable
from cfuica.errors import DataError
from cfuica.kernels.threads import thread_count
from cfuica.learning.trainer import Listener, Progress
from cfuica.rating_model import RatingModel
from cfuica.runs.folder import RunFolder
from cfuica.runs.listeners import Everyone, MetricsFile
from cfuica.runs.report import write_run_report
from cfuica.settings import Settings


@dataclass(frozen=True)
class Parts:
    """The tables of a run: `whole` spans the axes, the others are parts of it."""

    whole: BehaviourTable
    train: BehaviourTable
    valid: BehaviourTable | None
    test: BehaviourTable | None
    about: dict[str, Any]

    @classmethod
    def random(
        cls, table: BehaviourTable, *, folds: int, fold: int, valid: float, seed: int
    ) -> Parts:
        """Table 1's protocol: a fold to test on, a share of the rest to validate on."""
        split = Split.random(table.n, folds=folds, fold=fold, valid=valid, seed=seed)
        about = {"kind": "random", "folds": folds, "fold": fold, "valid": valid, "seed": seed}
        return cls.of_split(table, split, about={**about, "sha256": split.sha256()})

    @classmethod
    def of_split(cls, table: BehaviourTable, split: Split, *, about: dict[str, Any]) -> Parts:
        """The parts that a split's row numbers name."""
        return cls(
            whole=table,
            train=table.take(split.train),
            valid=table.take(split.valid) if len(split.valid) else None,
            test=table.take(split.test) if len(split.test) else None,
            about=about,
        )

    @classmethod
    def everything(cls, table: BehaviourTable, *, valid: float, seed: int) -> Parts:
        """All ratings to train on, less a share to validate on; no test part."""
        split = Split.without_test(table.n, valid=valid, seed=seed)
        about = {"kind": "none", "valid": valid, "seed": seed, "sha256": split.sha256()}
        return cls.of_split(table, split, about=about)

    @classmethod
    def given(
        cls, train: BehaviourTable, test: BehaviourTable, *, valid: float, seed: int
    ) -> Parts:
        """A split made elsewhere. The axes span both tables, so that no test id is unknown."""
        part = cls.everything(train, valid=valid, seed=seed)
        return cls(
            whole=_joined(train, test),
            train=part.train,
            valid=part.valid,
            test=test,
            about={**part.about, "kind": "given", "test_sha256": test.sha256()},
        )


def _joined(train: BehaviourTable, test: BehaviourTable) -> BehaviourTable:
    common = [name for name in train.frame.columns if name in test.frame.columns]
    for table in (train, test):
        if "rating" not in table.frame.columns:
            raise DataError(f"{table.source} has no ratings; give it a column 'rating'.")
    for role in ("user", "item"):
        if train.frame[role].dtype != test.frame[role].dtype:
            raise DataError(
                f"The {role} ids are {train.frame[role].dtype} in {train.source} and "
                f"{test.frame[role].dtype} in {test.source}; write them alike in both."
            )
    frame = pl.concat([train.frame.select(common), test.frame.select(common)])
    pairs = frame.select("user", "item")
    if pairs.unique().height < pairs.height:
        shared = pairs.height - pairs.unique().height
        raise DataError(
            f"{shared} (user, item) pairs of {test.source} are also in {train.source}; a rating "
            f"to test on must not be trained on: take them out of one of the two."
        )
    return BehaviourTable(
        frame,
        items=train.items,
        item_space=train.item_space,
        source=f"{train.source} and {test.source}",
        source_notes=(*train.source_notes, *test.source_notes),
    )


def run_training(
    folder: RunFolder,
    parts: Parts,
    settings: Settings,
    *,
    preset_name: str,
    listener: Listener,
) -> RatingModel:
    """Train, save the model, and record what anyone needs to repeat it."""
    started = time.time()
    model = RatingModel(settings)
    try:
        if parts.test is not None:
            folder.write_test(parts.test)
        with MetricsFile(folder.metrics) as metrics:
            model.fit(
                parts.train,
                valid=parts.valid,
                spans=parts.whole,
                listener=Everyone([metrics, listener]),
            )
    except BaseException:
        folder.discard_unless_begun()
        raise
    assert model.fitted is not None
    fitted = model.fitted
    record = {
        "cfuica": cfuica.__version__,
        "date": datetime.fromtimestamp(started, UTC).isoformat(timespec="seconds"),
        "preset": preset_name,
        "settings": settings.model_dump(),
        "data": {
            "source": parts.whole.source,
            "sha256": parts.whole.sha256(),
            "users": parts.whole.users.size,
            "items": parts.whole.item_ids.size,
            "train": parts.train.n,
            "valid": parts.valid.n if parts.valid else 0,
            "test": parts.test.n if parts.test else 0,
        },
        "split": parts.about,
        "training": {
            "steps": fitted.steps,
            "seconds": round(fitted.seconds, 3),
            "seconds_in_minibatches": round(fitted.seconds_in_steps, 3),
            "parameters": fitted.model.parameter_count(),
            "peak_memory_gb": round(peak_memory_gb(), 3),
            "last": _as_record(fitted.history[-1]) if fitted.history else None,
        },
        "machine": {
            "platform": platform.platform(),
            "python": platform.python_version(),
            "threads": thread_count(),
        },
    }
    model.knowledge.card.update(
        {key: record[key] for key in ("date", "preset", "data", "split", "training")}
    )
    model.save(folder.model)
    write_run_report(folder, record, fitted.history)
    folder.write_record(record)
    return model


def _as_record(progress: Progress) -> dict[str, Any]:
    return asdict(progress)


def peak_memory_gb() -> float:
    """The most memory this process ever held, in GB (0 where the system does not tell)."""
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if platform.system() == "Darwin" else 1024) / 1e9
