"""What there is to train for: a task has its settings, its presets and its model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cfuica.artifact.model_folder import load_artifact
from cfuica.errors import SettingsError
from cfuica.models.ranking_model import RankingModel
from cfuica.models.rating_model import RatingModel
from cfuica.settings import (
    CommonSettings,
    RankingSettings,
    RatingSettings,
    ranking_preset,
    rating_preset,
)

Model = RatingModel | RankingModel


@dataclass(frozen=True)
class Task:
    """How a task is named in settings, presets and models."""

    settings: type[CommonSettings]
    preset: Callable[[str], CommonSettings]
    model: type[Any]
    split: str
    """The split that its protocols have."""


TASKS = {
    RatingSettings.task: Task(RatingSettings, rating_preset, RatingModel, "random"),
    RankingSettings.task: Task(RankingSettings, ranking_preset, RankingModel, "leave-one-out"),
}


def task_named(name: str) -> Task:
    """The task of this name."""
    if name not in TASKS:
        raise SettingsError(f"--task {name} is not known; the tasks are {' and '.join(TASKS)}.")
    return TASKS[name]


def load(folder: str | Path) -> Any:
    """The `RatingModel` or `RankingModel` of a model folder, or of a run folder, which has one."""
    settings, artifact = load_artifact(folder)
    return TASKS[settings.task].model.from_artifact(settings, artifact)
