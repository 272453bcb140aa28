"""One training run: tables in, a run folder out."""

from __future__ import annotations

import platform
import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import cfuica
from cfuica.kernels.threads import thread_count
from cfuica.learning.trainer import Listener, Progress
from cfuica.rating_model import RatingModel
from cfuica.runs.folder import RunFolder
from cfuica.runs.listeners import Everyone, MetricsFile
from cfuica.runs.parts import Parts
from cfuica.runs.report import write_run_report
from cfuica.settings import Settings


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
