"""Axis ticks at numbers people would choose."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

_SMALLEST = 1e-300  # shares of numbers below it would be rounded to zero


@dataclass(frozen=True)
class Scale:
    """An axis from ``low`` to ``high`` with its ticks and their texts."""

    low: float
    high: float
    ticks: list[float]
    texts: list[str]


def scale_of(values: Sequence[float], *, margin: float, target: int, whole: bool = False) -> Scale:
    """An axis for ``values``, longer than they are by ``margin`` of their span at either end."""
    low, high = _span(values, margin=margin)
    ticks = nice_ticks(low, high, target=target, whole=whole)
    return Scale(low, high, ticks, tick_labels(ticks))


def nice_ticks(low: float, high: float, *, target: int = 6, whole: bool = False) -> list[float]:
    """About ``target`` ticks or fewer inside [low, high], at multiples of 1, 2, 2.5 or 5 × 10^n.

    ``whole`` keeps them to whole numbers, for axes that count something. Needs ``low < high``.
    """
    step = _nice_step((high - low) / target, whole=whole)
    # Multiples are counted in integers, so that errors do not add up along the axis.
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [multiple * step for multiple in range(first, last + 1)]


def tick_labels(ticks: list[float]) -> list[str]:
    """The ticks as text, all with as many decimals as the finest of them needs."""
    if len(ticks) < 2:
        return [f"{tick:.6g}" for tick in ticks]
    step = ticks[1] - ticks[0]
    largest = max(abs(tick) for tick in ticks)
    if largest >= 1e7 or step < 1e-6:
        return [f"{tick:.6g}" for tick in ticks]
    decimals = next((d for d in range(8) if abs(round(step, d) - step) <= 1e-6 * step), 8)
    # Adding 0.0 turns the -0.0 that rounding may leave into 0.0.
    return [f"{round(tick, decimals) + 0.0:,.{decimals}f}" for tick in ticks]


def _nice_step(rough: float, *, whole: bool) -> float:
    """The smallest nice step that is at least ``rough``."""
    magnitude = 10.0 ** math.floor(math.log10(rough))
    nice = (factor * magnitude for factor in (1.0, 2.0, 2.5, 5.0, 10.0, 20.0))
    step = next(candidate for candidate in nice if candidate >= rough * (1 - 1e-9))
    if whole and (step < 1.0 or step == 2.5):
        return 1.0 if step < 1.0 else 5.0
    return step


def _span(values: Sequence[float], *, margin: float) -> tuple[float, float]:
    """Lowest and highest value, moved apart by ``margin`` of the span and never equal."""
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    if high - low <= max(1e-9 * max(abs(low), abs(high)), _SMALLEST):
        half = 0.5 * abs(low) if _SMALLEST < abs(low) < 1 else max(0.5, 1e-3 * abs(low))
        return low - half, high + half
    return low - margin * (high - low), high + margin * (high - low)
