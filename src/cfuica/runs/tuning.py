"""Tuning: trials of settings, chosen by Optuna and judged on the validation set.

A trial trains one network. Trial 0 has the settings that tuning starts from; each later one draws
those of the search space. A trial that validates worse than the median of the earlier ones, at the
same share of its steps, is pruned. All trials are in the folder, so tuning goes on where it was
stopped. The test set is not part of it: not even its ids are.

TUNING/trials.db    the trials, of Optuna (SQLite)
TUNING/best.toml    the settings of the best trial so far
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from cfuica.data.split_tables import DataSplit
from cfuica.errors import CfuicaError, Interrupted, SettingsError
from cfuica.io import locked, write_text_atomically
from cfuica.models.recommender import kind_named
from cfuica.settings import CommonSettings, RankingSettings, TrainingSettings
from cfuica.training.checkpoint import TrainingDiverged
from cfuica.training.trainer import Callback, Progress, usable_device

if TYPE_CHECKING:
    from types import ModuleType

    from optuna import Study
    from optuna.trial import FrozenTrial, Trial

# A trial is one network, whatever the ensemble: what suits one suits all of them.
_SINGLE = {"ensemble_size": 1, "cold_start_units": 0, "bilinear_rate": 0.0, "refit": False}
VALIDATIONS = 10  # Of a trial on a planned schedule.
# So many trials are finished before any is pruned, and so much of each (in percent of its steps).
_UNPRUNED_TRIALS, _UNPRUNED_PERCENT = 4, 20
_STUDY = "cfuica"


def require_optuna() -> ModuleType:
    """Optuna, or an error that says how to get it."""
    try:
        import optuna
    except ImportError as error:
        raise SettingsError(
            f"Tuning needs the extra tune ({error}): pip install 'cfuica[tune]'."
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


@dataclass(frozen=True)
class Tuned:
    """What the trials so far have found; `value` is that of the best, `start` that of trial 0."""

    settings: TrainingSettings
    changed: dict[str, Any]  # What differs from the settings that tuning started from.
    measure: str
    value: float
    start: float | None
    number: int
    finished: int
    pruned: int

    def as_json(self) -> dict[str, Any]:
        """The figures, and the settings of the best trial."""
        return {
            "measure": self.measure,
            "best": self.value,
            "start": self.start,
            "trial": self.number,
            "finished": self.finished,
            "pruned": self.pruned,
            "changed": self.changed,
            "settings": self.settings.model_dump(),
        }

    def toml(self) -> str:
        """The settings of the best trial, for `cfuica train --settings`."""
        start = "" if self.start is None else f", {self.start:.4f} before tuning"
        return self.settings.toml(
            f"The best of {self.finished} trials: validation {self.measure} {self.value:.4f} of "
            f"one network{start}.\ncfuica train DATA {self.settings.option} --settings FILE"
        )


class Tuning:
    """The trials in a folder."""

    def __init__(
        self, folder: Path, data_split: DataSplit, start: TrainingSettings, fixed: Collection[str]
    ) -> None:
        """Settings of `fixed` names stay as they are in `start`."""
        if data_split.valid is None:
            raise SettingsError(
                "Tuning is judged by a validation set, and there is none; give a share with "
                "--valid."
            )
        usable_device(getattr(start, "device", "cpu"))
        self.folder, self.start, self._fixed = folder, start, fixed
        if not start.space:
            raise SettingsError(
                f"The model {start.model} has no settings to search; train it as it is."
            )
        self.space = {name: each for name, each in start.space.items() if name not in fixed}
        if not self.space:
            raise SettingsError(
                f"--set fixes all that is searched ({', '.join(start.space)}); leave one of them "
                f"out."
            )
        self.train, self.valid = data_split.train, data_split.valid
        rows = pl.concat([self.train.frame, self.valid.frame])
        self.whole = replace(self.train, frame=rows, items=None, item_space=None)

    def run(self, trials: int, seconds: float | None, say: Callable[[str], None]) -> Tuned:
        """Train until there are so many trials in the folder, or for so many seconds."""
        optuna = require_optuna()
        database = self.folder / "trials.db"
        if self.folder.exists() and not database.is_file() and any(self.folder.iterdir()):
            raise CfuicaError(
                f"The folder {self.folder} exists and has no trials; choose another --out."
            )
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CfuicaError(
                f"The folder {self.folder} cannot be created: {error.strerror}."
            ) from None
        deadline = None if seconds is None else time.monotonic() + seconds
        with locked(self.folder, self._refuse):
            study = self._study(optuna, database)
            try:
                while self._tried(study) < trials and not _is_over(deadline):
                    self._trial(optuna, study, deadline, say)
            except KeyboardInterrupt:
                raise Interrupted(
                    "Tuning was stopped; go on with the same command.", signal.SIGINT
                ) from None
            if (tuned := self._tuned(study)) is None:
                raise CfuicaError(
                    "No trial was finished; give more --minutes or --trials, or a smaller model "
                    "with --set."
                )
            return tuned

    def _refuse(self) -> None:
        raise CfuicaError(
            f"Another process is tuning in {self.folder}; wait until it ends, or stop it."
        )

    def _study(self, optuna: ModuleType, database: Path) -> Study:
        try:
            study: Study = optuna.create_study(
                storage=optuna.storages.RDBStorage(f"sqlite:///{database}"),
                study_name=_STUDY,
                load_if_exists=True,
                pruner=optuna.pruners.MedianPruner(_UNPRUNED_TRIALS, _UNPRUNED_PERCENT),
            )
        except Exception as error:  # of SQLAlchemy, which tuning does not import
            reason = str(error).splitlines()[0]
            raise CfuicaError(
                f"{database} cannot be read as trials ({reason}); choose another --out."
            ) from None
        own = {
            "settings": self.start.model_dump(),
            "ranges": {name: list(each) for name, each in self.space.items()},
            "data": [self.train.sha256(), self.valid.sha256()],
        }
        earlier = study.user_attrs.get("of")
        if earlier is None:
            study.set_user_attr("of", own)
        elif earlier != own:
            other = " and ".join(name for name, each in own.items() if earlier.get(name) != each)
            raise CfuicaError(
                f"The trials in {self.folder} are of other {other}; give the options of before, or "
                f"choose another --out."
            )
        for trial in study.get_trials(states=(optuna.trial.TrialState.RUNNING,)):
            study.tell(trial.number, state=optuna.trial.TrialState.FAIL)  # its process was killed
        return study

    def _tried(self, study: Study) -> int:
        """Trials that ended by themselves; those that were stopped do not count."""
        return sum(
            trial.state.name in ("COMPLETE", "PRUNED") or "diverged" in trial.user_attrs
            for trial in study.get_trials(deepcopy=False)
        )

    def _trial(
        self,
        optuna: ModuleType,
        study: Study,
        deadline: float | None,
        say: Callable[[str], None],
    ) -> None:
        # A seed for each trial, so that it draws the same however often tuning was stopped.
        seed = (self.start.seed + self._tried(study)) % 2**32
        study.sampler = optuna.samplers.TPESampler(seed=seed)
        trial: Trial = study.ask()
        # The settings that tuning starts from come first, unless they were tried already.
        first = not self._tried(study)
        drawn: dict[str, Any] = {}
        if not first:
            drawn = {name: _drawn(trial, name, *each) for name, each in self.space.items()}
        settings = self.start.replaced(**drawn)
        trial.set_user_attr("settings", settings.model_dump())
        trial.set_user_attr("first", first)
        began, states = time.monotonic(), optuna.trial.TrialState
        callback = _Pruning(trial, deadline, may_prune=not first)
        try:
            value, measure = self._validated(settings, callback)
        except _Pruned:
            study.tell(trial, state=states.PRUNED)
            outcome = "pruned"
        except TrainingDiverged:
            trial.set_user_attr("diverged", True)
            study.tell(trial, state=states.FAIL)
            outcome = "diverged"
        except _OutOfTime:
            study.tell(trial, state=states.FAIL)
            return
        else:
            trial.set_user_attr("measure", measure)
            study.tell(trial, value)
            outcome = f"{measure} {abs(value):.4f}"
            tuned = self._tuned(study)
            assert tuned is not None
            write_text_atomically(self.folder / "best.toml", tuned.toml())
            outcome += ", the best" if tuned.number == trial.number else ""
        shown = ", ".join(
            f"{name}={each:.3g}" if isinstance(each, float) else f"{name}={each}"
            for name, each in drawn.items()
        )
        say(
            f"trial {trial.number}: {outcome}, {time.monotonic() - began:.0f} s, "
            f"{shown or 'the settings before tuning'}"
        )

    def _validated(self, settings: TrainingSettings, callback: Callback) -> tuple[float, str]:
        """The validation score of one network, low where it is good, and the measure's name."""
        single = {name: _SINGLE[name] for name in _SINGLE if name in type(settings).model_fields}
        settings = settings.replaced(**single)
        is_planned = isinstance(settings, CommonSettings) and settings.schedule == "planned"
        if is_planned and "validate_every" not in self._fixed:
            every = max(1, self._steps(settings) // VALIDATIONS)
            settings = settings.replaced(validate_every=every)
        model = kind_named(settings.model, settings.task).model(settings)
        model.fit(
            self.train, valid=self.valid, vocabulary=self.whole, callback=callback, progress=False
        )
        last: Progress = model.trained.last
        assert last.valid is not None
        assert last.best is not None
        value = last.best if settings.keeps_best else last.valid.value
        return last.valid.sign * value, last.valid.measure

    def _steps(self, settings: TrainingSettings) -> int:
        """The steps of a planned schedule."""
        if isinstance(settings, RankingSettings) and settings.epochs is not None:
            from cfuica.training.orderings import blocks_per_epoch

            timeline = self.train.timeline(
                users=self.whole.users,
                items=self.whole.item_ids,
                has_times=self.train.has_times,
            )
            settings = settings.planned(blocks_per_epoch(timeline, settings))
        return settings.most_steps

    def _tuned(self, study: Study) -> Tuned | None:
        trials = study.get_trials(deepcopy=False)
        complete = [trial for trial in trials if trial.state.name == "COMPLETE"]
        if not complete:
            return None
        best = min(complete, key=_value)
        settings = type(self.start)(**best.user_attrs["settings"])
        before = self.start.model_dump()
        return Tuned(
            settings=settings,
            changed={n: v for n, v in settings.model_dump().items() if v != before[n]},
            measure=best.user_attrs["measure"],
            value=abs(_value(best)),
            start=next((abs(_value(t)) for t in complete if t.user_attrs["first"]), None),
            number=best.number,
            finished=len(complete),
            pruned=sum(trial.state.name == "PRUNED" for trial in trials),
        )


def _value(trial: FrozenTrial) -> float:
    assert trial.value is not None
    return trial.value


def _drawn(trial: Trial, name: str, kind: str, *values: Any) -> Any:
    if kind == "choice":
        return trial.suggest_categorical(name, values)
    # Three digits tell as much, and a person can read them.
    return float(f"{trial.suggest_float(name, *values, log=kind == 'log'):.3g}")


def _is_over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline


class _Pruned(Exception):
    """The trial is worse than the earlier ones were."""


class _OutOfTime(Exception):
    """The time of all trials is over."""


class _Pruning(Callback):
    """Reports each validation to Optuna, and ends a trial that is not worth going on with."""

    def __init__(self, trial: Trial, deadline: float | None, *, may_prune: bool) -> None:
        self._trial, self._deadline, self._may_prune = trial, deadline, may_prune
        self._reported = -1

    def stepped(self, member: int, step: int, loss: float) -> None:
        if _is_over(self._deadline):
            raise _OutOfTime

    def validated(self, progress: Progress) -> None:
        assert progress.valid is not None
        # By the share of the steps, so that trials of different lengths compare.
        planned = progress.steps_planned
        at = round(100 * progress.step / planned) if planned else progress.step
        if at == self._reported:  # more than a hundred validations
            return
        self._reported = at
        self._trial.report(progress.valid.sign * progress.valid.value, at)
        if self._may_prune and progress.step != planned and self._trial.should_prune():
            raise _Pruned
