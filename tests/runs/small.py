"""A world and settings small enough to train in a moment."""

from __future__ import annotations

from functools import cache

from cfuica.data.synthetic import World, make_world
from cfuica.data.table import Interactions
from cfuica.metrics.rating_metrics import RatingScores
from cfuica.settings import RatingSettings
from cfuica.training.trainer import Progress

TINY = RatingSettings(
    hidden_users=8,
    hidden_items=8,
    batch_users=50,
    batch_items=30,
    learning_rate=1e-2,
    schedule="planned",
    max_steps=20,
    validate_every=10,
)

# The same for a command line, whatever the preset.
SET_TINY = [
    argument
    for name in ("hidden_users", "hidden_items", "batch_users", "batch_items")
    for argument in ("--set", f"{name}={getattr(TINY, name)}")
] + [
    argument
    for change in (
        "ensemble_size=1",
        "cold_start_units=0",
        "bilinear_rate=0",
        "length_normalisation=0",
        "max_steps=4",
        "validate_every=2",
    )
    for argument in ("--set", change)
]


@cache
def small_world() -> World:
    """100 users with integer ids, 60 titled items, 2,200 ratings from 1 to 5."""
    return make_world(users=100, items=60, ratings=2200)


def small_table() -> Interactions:
    """The table of the small world."""
    return small_world().table


def progress(*, step: int = 10, rmse: float | None = 0.9, **changes: object) -> Progress:
    """A validation with plausible numbers."""
    values: dict[str, object] = {
        "member": 0,
        "networks": 1,
        "step": step,
        "steps_planned": 20,
        "loss": 1.25,
        "rate": 0.01,
        "gradient_norm": 0.5,
        "valid": None if rmse is None else RatingScores(rmse=rmse, mae=0.7, nll=1.3, n=100),
        "best": rmse,
        "verdict": "improved",
        "seconds": 3.0,
        "seconds_in_steps": 2.5,
    }
    return Progress(**{**values, **changes})  # type: ignore[arg-type]
