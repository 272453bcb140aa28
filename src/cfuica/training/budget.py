"""Memory and time of a training, predicted before it starts.

`budget_of` counts what a training allocates: tables, moments, gradients, copies, minibatches and
validation. `check_memory` refuses what cannot fit, with settings that would, and `fitting_floor`
chooses `min_row_interactions` so that a rating training fits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from cfuica.data.matrix import InteractionMatrix, RatedPairs
from cfuica.data.memory import of_machine
from cfuica.errors import SettingsError
from cfuica.model.network import Network, hidden_units
from cfuica.model.shared_rows import SharedRows
from cfuica.ops.runtime import resident_memory, thread_count
from cfuica.ops.tables import OTHER, SIDES, SideName
from cfuica.settings import CommonSettings, RankingSettings, RatingSettings
from cfuica.sizing import DRAWING
from cfuica.training.checkpoint import Checkpointer
from cfuica.training.clusters import rows_with, shared_rows
from cfuica.training.starting_factors import bytes_needed
from cfuica.training.trainer import Callback

# The share of the memory that a training may have without being asked for less.
COMFORTABLE = 0.6
# Nanoseconds on one core: of Adam per parameter, and per number of a row that is read or written
# for an interaction in a context or for a pair (`cfuica bench step`, MovieLens 1M).
_ADAM_NS, _GATHER_NS = 1.1, 0.35
# In such numbers: a score of a softmax or of a validation, and each unit of the product behind it.
_SOFTMAX, _RANKING, _PRODUCT = 8, 25, 0.25
# What numba, torch's buffers and fragmentation take beside the arrays that are counted.
_OVERHEAD = 0.15e9
# From here on what a training needs is said before it starts.
WORTH_SAYING_BYTES, WORTH_SAYING_SECONDS = 2e9, 120.0
FLOORS = (2, 3, 5, 8, 12, 20, 30, 50, 80, 120, 200, 300, 500, 1000)


@dataclass(frozen=True)
class Sizes:
    """What the memory of a training depends on, beside the settings."""

    users: int
    items: int
    interactions: int
    labels: int
    valid: int  # Pairs, or users with a next item, to validate on.

    def of(self, side: SideName) -> int:
        return self.users if side == "users" else self.items


@dataclass(frozen=True)
class Budget:
    """Bytes of a whole process at its peak, and seconds of training on this machine's threads."""

    bytes: float
    seconds: float | None

    def __str__(self) -> str:
        time = ""
        if self.seconds is not None:
            minutes = self.seconds / 60
            time = (
                f" and about {_rounded(minutes)} minutes"
                if minutes >= 1.5
                else (" and about a minute" if minutes >= 0.5 else " and less than a minute")
            )
        total = of_machine()
        of_all = "" if total == float("inf") else f" of {total / 1e9:.0f} GB"
        return f"Training needs about {self.bytes / 1e9:.1f} GB{of_all}{time}."


def _rounded(minutes: float) -> int:
    return round(minutes) if minutes < 20 else 5 * round(minutes / 5)


def budget_of(
    settings: CommonSettings,
    sizes: Sizes,
    shared: Mapping[SideName, SharedRows] | None = None,
    *,
    resident: float | None = None,
) -> Budget:
    """The budget of a training with these settings, all of whose defaults are resolved.

    `resident` are the bytes of the process before training, by default those of now.
    """
    resident = resident_memory() if resident is None else resident
    rating = isinstance(settings, RatingSettings)
    tables = [
        table_bytes(settings, sizes, shared or {}, cold_start=settings.is_cold_start(number))
        for number in range(settings.networks)
    ]
    copies = 3 + (settings.weight_average > 0)  # parameters and two moments
    copies += settings.keep_best or settings.schedule == "patience"
    batch, numbers = _minibatch(settings, sizes, shared or {})
    in_training = max(
        sum(tables[:number]) + own * (copies + 0.5) for number, own in enumerate(tables)
    )
    # At the end the parameters of the ensemble are there as they were trained and merged.
    merged = sum(tables[: settings.ensemble_size]) if settings.ensemble_size > 1 else 0.0
    at_end = sum(tables) + merged * 1.25
    # Validation encodes every user and item that it predicts for.
    queries = min(sizes.users, sizes.valid) + min(sizes.items, sizes.valid)
    hidden = sum(hidden_units(settings).values()) / max(len(hidden_units(settings)), 1)
    validation = 4.0 * hidden * (queries if rating else sizes.users + sizes.items)
    validation += 8.0 * sizes.interactions + 24.0 * sizes.labels * sizes.valid
    starting = 0.0
    if factors := getattr(settings, "start_from_factors", 0):
        starting = tables[0] + bytes_needed(sizes.users, sizes.items, factors)
    peak = max(starting, in_training + batch + validation, at_end + validation)
    seconds = None
    if settings.schedule == "planned" and settings.max_steps is not None:
        scores = 0.0 if rating else float(sizes.valid * sizes.items)
        scores *= settings.max_steps // settings.validate_every
        ranked = scores * (_PRODUCT * hidden + _RANKING)
        numbers = settings.networks * (settings.max_steps * numbers + ranked)
        work = settings.max_steps * sum(tables) / 4 * _ADAM_NS + numbers * _GATHER_NS
        seconds = work * 1e-9 / thread_count()
    return Budget(resident + peak + _OVERHEAD, seconds)


def table_bytes(
    settings: CommonSettings,
    sizes: Sizes,
    shared: Mapping[SideName, SharedRows],
    *,
    cold_start: bool = False,
) -> float:
    """Bytes of the parameters of one network."""
    rows: dict[SideName, int] = {
        name: shared[name].n_rows if name in shared else sizes.of(name) + 1 for name in SIDES
    }
    with torch.device("meta"):
        network = Network.of(settings, rows, sizes.labels, cold_start=cold_start, shared=shared)
    return 4.0 * network.parameter_count()


def _minibatch(
    settings: CommonSettings, sizes: Sizes, shared: Mapping[SideName, SharedRows]
) -> tuple[float, float]:
    """(bytes, numbers of rows that are read or written) of one minibatch, about."""
    units = hidden_units(settings)
    batch_items = getattr(settings, "batch_items", None) or sizes.items
    batch: dict[SideName, float] = {
        "users": min(settings.batch_users, sizes.users),
        "items": min(batch_items, sizes.items),
    }
    if isinstance(settings, RatingSettings):
        return _rating_minibatch(settings, sizes, units, batch, shared)
    assert isinstance(settings, RankingSettings)
    every = float(sum(units.values()))
    share = sum(batch[OTHER[name]] / max(sizes.of(OTHER[name]), 1) for name in units)
    entries = 0.8 * sizes.interactions * share
    positions = sizes.interactions * batch["users"] / max(sizes.users, 1)
    # The users side encodes the items, the items side the positions of histories.
    queries = batch["items"] if "users" in units else 0.0
    if "items" in units:
        queries += batch["users"] + positions
    candidates = sizes.items
    if settings.loss == "sampled-softmax":
        candidates = min(candidates, settings.softmax_candidates + 4096)
    numbers = entries * (every + DRAWING)
    if settings.loss == "bernoulli":
        part = batch["items"] / max(sizes.items, 1)
        numbers += positions * part * (1 + settings.negatives) * every
    else:
        numbers += positions * candidates * (_PRODUCT * every + _SOFTMAX)
    return 16.0 * entries + 24.0 * every * (queries + candidates), numbers


def _rating_minibatch(
    settings: RatingSettings,
    sizes: Sizes,
    units: Mapping[SideName, int],
    batch: Mapping[SideName, float],
    shared: Mapping[SideName, SharedRows],
) -> tuple[float, float]:
    """`_minibatch` of a rating model."""
    longest = settings.max_context or math.inf
    pairs = sizes.interactions * math.prod(batch[name] / max(sizes.of(name), 1) for name in SIDES)
    # Logits, probabilities and gradients of the pairs.
    total, numbers = 24.0 * pairs * sizes.labels, 0.0
    for name, width in units.items():
        # A side encodes the other side's part of the block, and decodes for its own.
        rows, queries = batch[name], batch[OTHER[name]]
        if queries:  # without those that have no pair
            queries *= -math.expm1(-pairs / queries)
        if name in shared:
            rows = min(rows, shared[name].n_table_rows)
        length = min(longest, sizes.interactions / max(sizes.of(OTHER[name]), 1))
        entries = 0.6 * queries * length
        # Entries and their readers, of this block and of the next; hidden vectors and their
        # gradients; the gradient of the rows of V.
        total += 24.0 * entries + 32.0 * width * queries + 8.0 * sizes.labels * width * rows
        numbers += (width + DRAWING) * entries + width * pairs * sizes.labels
    return total, numbers


def available_memory() -> float:
    """Bytes that this process may have in all, what it has already included."""
    free = float("inf")
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        free = 1024.0 * next(int(x.split()[1]) for x in lines if x.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        pass  # another system
    return min(free + resident_memory(), of_machine())


def check_memory(
    budget: Budget, smaller: Callable[[], list[tuple[str, Budget]]], available: float | None = None
) -> None:
    """Refuse a training that cannot fit; `smaller` gives settings that may, with their budgets."""
    available = available_memory() if available is None else available
    if budget.bytes <= available:
        return
    fitting = [
        f"{change} (about {other.bytes / 1e9:.1f} GB)"
        for change, other in smaller()
        if other.bytes <= available
    ]
    remedy = (
        f"set {', or '.join(fitting[:3])}" if fitting else "give fewer users, items or hidden units"
    )
    raise SettingsError(
        f"Training needs about {budget.bytes / 1e9:.1f} GB of memory, but {available / 1e9:.1f} GB "
        f"are there; {remedy}."
    )


def with_floor(sizes_of: Mapping[SideName, np.ndarray], floor: int) -> dict[SideName, SharedRows]:
    """The rows where users and items with fewer interactions than a floor share one."""
    found: dict[SideName, SharedRows] = {}
    for name, counts in sizes_of.items():
        members = np.flatnonzero(counts < floor)
        if len(members):
            found[name] = rows_with(len(counts), members, None)
    return found


def fitting_floor(
    settings: RatingSettings,
    sizes: Sizes,
    sizes_of: Mapping[SideName, np.ndarray],
    available: float | None = None,
) -> int:
    """The lowest `min_row_interactions` with which a training fits comfortably; 0: no floor.

    `sizes_of` are the numbers of interactions of all users and items. Where none is enough there is
    none, and `check_memory` refuses the training.
    """
    available = available_memory() if available is None else available
    resident = resident_memory()
    if budget_of(settings, sizes, resident=resident).bytes <= COMFORTABLE * available:
        return 0
    for floor in FLOORS:
        rows = with_floor(sizes_of, floor)
        needed = budget_of(settings, sizes, rows, resident=resident).bytes
        if needed <= COMFORTABLE * available:
            return floor
    return 0


def plan(
    matrix: InteractionMatrix,
    values_k: np.ndarray,
    settings: RatingSettings,
    valid: RatedPairs | None,
    callback: Callback,
    checkpointer: Checkpointer | None = None,
) -> tuple[RatingSettings, dict[SideName, SharedRows]]:
    """The settings of a rating training, with a floor where it would not fit, and the rows that
    users or items share; refuses what cannot fit."""
    n_valid = 0 if valid is None else valid.n
    sizes = Sizes(matrix.n_users, matrix.n_items, matrix.n_interactions, matrix.n_labels, n_valid)
    counts = {name: matrix.by(name).sizes for name in SIDES}
    is_clustered = settings.user_clusters or settings.item_clusters
    if settings.min_row_interactions is None and not is_clustered:
        floor = fitting_floor(settings, sizes, counts)
        if floor:
            callback.note(f"So that training fits into memory, min_row_interactions is {floor}.")
            settings = settings.replaced(min_row_interactions=floor)
    shared = shared_rows(matrix, values_k, settings, callback, checkpointer, valid)
    agree(settings, sizes, callback, shared)
    return settings, shared


def agree(
    settings: CommonSettings,
    sizes: Sizes,
    callback: Callback,
    shared: Mapping[SideName, SharedRows] | None = None,
) -> None:
    """Say what a large training needs, and refuse one that cannot fit."""
    budget = budget_of(settings, sizes, shared)
    check_memory(budget, lambda: smaller_settings(settings, sizes, shared or {}))
    if budget.bytes >= WORTH_SAYING_BYTES or (budget.seconds or 0) >= WORTH_SAYING_SECONDS:
        callback.note(str(budget))


def smaller_settings(
    settings: CommonSettings, sizes: Sizes, shared: Mapping[SideName, SharedRows]
) -> list[tuple[str, Budget]]:
    """Changes of settings that need less memory, as they are given, and the budgets with them."""
    found = []
    for part in (2, 4, 8):
        units = {"hidden_users": settings.hidden_users, "hidden_items": settings.hidden_items}
        halved = {name: max(8, value // part) for name, value in units.items()}
        if factors := getattr(settings, "start_from_factors", 0):
            halved["start_from_factors"] = min(factors, halved["hidden_items"])
        text = " ".join(f"{name}={value}" for name, value in halved.items())
        found.append((text, budget_of(settings.replaced(**halved), sizes, shared)))
    if settings.ensemble_size > 1:
        single = settings.replaced(ensemble_size=1)
        found.insert(0, ("ensemble_size=1", budget_of(single, sizes, shared)))
    return found
