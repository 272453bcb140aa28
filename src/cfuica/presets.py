"""Settings by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from cfuica.errors import SettingsError
from cfuica.settings import CommonSettings, RankingSettings, Settings

S = TypeVar("S")

PRESETS: dict[str, tuple[str, Settings]] = {
    "default": (
        "three models joined into one, and one for strangers, on a plan: the best in ten minutes",
        Settings(
            members=3,
            hidden_users=256,
            hidden_items=256,
            size_power=1,
            strangers=128,
            bridge_rate=0.03,
            learning_rate=8e-3,
            l2=1e-4,
            l2_ratings=855_179,  # those of the fold it was chosen on
            schedule="planned",
            max_steps=2400,
            validate_every=200,
        ),
    ),
    "paper": (
        "the published experiments' settings: Table 1 of the paper",
        Settings(),
    ),
    "paper-as-written": (
        "what the paper's text alone says: plain NLL, no label sharing, strict estimator",
        Settings(
            share_labels=False,
            ordinal_weight=0.0,
            estimator="strict",
            epsilon=1e-8,
            max_norm=None,
            max_entry=None,
        ),
    ),
}


# The schedule, its rate and the span of the average are our own: the published schedule, patience
# on validation, takes 10^5 minibatches, and the published average, of some 100 minibatches, is
# worse on the validation item. Like the published models they are those that validated best. The
# penalty is the published one, read as beside the mean over all pairs, negatives among them; the
# optimiser is that of the published rating model.
_PAPER_RANKING = RankingSettings(
    activation="relu",
    hidden_users=256,
    hidden_items=256,
    cost="bernoulli",
    negatives=4,
    ordering="chronological",
    ties="together",
    batch_users=200,
    batch_items=200,
    learning_rate=3e-3,
    epsilon=1e-4,
    l2=1e-5,
    epochs=96,
    schedule="planned",
    hold=0,
    keep_best=True,
    average=0.2,
    validate_every=620,  # an epoch of MovieLens 1M
)

RANKING_PRESETS: dict[str, tuple[str, RankingSettings]] = {
    "default": (
        "two models joined into one, whose units learn how fast they forget, and one more layer",
        RankingSettings(
            members=2,
            hidden_users=128,
            hidden_items=128,
            memory=True,
            layer=256,
            cost="softmax",
            ties="apart",
            drop_behaviours=0.2,
            drop_users=0.5,
            dropout=0.2,
            batch_users=32,
            learning_rate=4e-3,
            epsilon=1e-8,
            l2=0,
            max_entry=None,
            epochs=8,
            schedule="planned",
            validate_every=189,
        ),
    ),
    "paper": ("the published experiments' settings: Table 2 of the paper", _PAPER_RANKING),
    "paper-uniform": (
        "the same over all orderings of a user's behaviours, half as long",
        _PAPER_RANKING.replaced(ordering="uniform", epochs=48),
    ),
    "paper-inverse": (
        "the same with every user's behaviours backwards, stopped after four epochs",
        # The more it learns of what comes before, the worse it says what comes after. No average:
        # over so few steps it is no better.
        _PAPER_RANKING.replaced(ordering="inverse", epochs=4, average=0),
    ),
}


def preset(name: str) -> Settings:
    """The settings of a preset of the rating model."""
    return _named(name, PRESETS, RANKING_PRESETS)


def ranking_preset(name: str) -> RankingSettings:
    """The settings of a preset of the ranking model."""
    return _named(name, RANKING_PRESETS, PRESETS)


def _named(
    name: str,
    presets: Mapping[str, tuple[str, S]],
    of_the_other_task: Mapping[str, tuple[str, CommonSettings]],
) -> S:
    if name in presets:
        return presets[name][1]
    if name not in of_the_other_task:
        raise SettingsError(f"There is no preset '{name}'; the presets are {', '.join(presets)}.")
    task = of_the_other_task[name][1].task
    function = {Settings.task: preset, RankingSettings.task: ranking_preset}[task].__name__
    raise SettingsError(
        f"The preset '{name}' is one of the task {task}: ask for it with --task {task}, in Python "
        f"with {function}('{name}'), or take one of {', '.join(presets)}."
    )
