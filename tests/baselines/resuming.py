"""A training of ratings that is stopped and resumed, against one that is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfuica.baselines.iterative import Iterative
from cfuica.data.split_tables import DataSplit
from cfuica.training.checkpoint import TrainingInterrupted
from tests.baselines.test_iterative import StopAfter
from tests.runs.small import small_table


def trained(model: Iterative, **options: Any) -> Iterative:
    """Fitted to the small world, with a validation set."""
    split = DataSplit.random(small_table(), folds=10, fold=0, valid=0.1, seed=0)
    return model.fit(split.train, valid=split.valid, vocabulary=split.whole, **options)


def assert_resumes(make: Callable[[], Iterative], folder: Path) -> None:
    """Stopped after two epochs, twice, it ends in the bits of an uninterrupted training."""
    whole = trained(make())
    for _ in range(2):
        with pytest.raises(TrainingInterrupted, match="stopped after epoch"):
            trained(make(), checkpointer=StopAfter(folder, 2))
    resumed = trained(make(), checkpointer=StopAfter(folder, 10_000))
    for name in whole._shapes(whole.catalogue.data):
        one, other = (getattr(each, f"{name}_") for each in (whole, resumed))
        np.testing.assert_array_equal(one, other)
    assert whole.trained is not None
    assert resumed.trained is not None
    for one, other in zip(whole.trained.history, resumed.trained.history, strict=True):
        assert (one.loss, one.rate, one.verdict) == (other.loss, other.rate, other.verdict)
