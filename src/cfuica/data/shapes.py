"""Synthetic tables with the counts and the long tails of public data sets, up to any size.

A table has as many users, items and interactions as the data set it is like, and the same Gini
coefficients of the interactions per user and per item. Every pair is there once, and every user and
item has an interaction. A rating is the mean of its pair (biases of user and item, and a product of
latent factors) plus Gaussian noise, rounded to 1 to 5 stars. So its distribution is known, and with
it the floor: the RMSE of the best possible prediction, the mean of that distribution.

Which items a user rates depends on popularity and taste, never on the noise. Users are drawn in
blocks, so memory does not grow with the number of interactions. `synthetic.py` has the small data
of the demo, with titles and genres.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfuica.data.splits import hashes, in_first_fold, normals, permutation, uniforms
from cfuica.errors import SettingsError
from cfuica.io import atomic_file

Real = NDArray[np.float64]
Integer = NDArray[np.int64]

_ROWS = 1 << 21  # Rows drawn and written at a time.
_QUANTILES = 20_000  # By so many points a distribution of counts is fitted.
_GINI_TOLERANCE = 0.01
_FACTORS = 16


@dataclass(frozen=True)
class Shape:
    """The counts of a data set, its long tails, and the model of its ratings."""

    users: int
    items: int
    interactions: int
    gini_users: float  # Gini coefficient of the interactions per user
    gini_items: float
    least_per_user: int
    most_per_user: int
    most_per_item: int
    # Standard deviations, in stars: of the biases, of the latent factors' product, of the noise.
    user_bias: float = 0.38
    item_bias: float = 0.42
    taste: float = 0.65
    noise: float = 0.83
    mean: float = 3.1
    # A user comes to choose an item by its popularity and by the logistic function of `pull` times
    # the taste, in standard deviations, less `choosy`.
    pull: float = 1.0
    choosy: float = 0.0
    first_second: int = 940_000_000  # 1999-10-15
    days: int = 2250

    def resized(self, users: int | None, items: int | None, interactions: int | None) -> Shape:
        """With other counts; the most of a user or item grow with the mean, as far as there are
        items or users."""
        users, items = users or self.users, items or self.items
        interactions = interactions or self.interactions
        per_user = interactions / users / (self.interactions / self.users)
        per_item = interactions / items / (self.interactions / self.items)
        return replace(
            self,
            users=users,
            items=items,
            interactions=interactions,
            most_per_user=min(math.ceil(self.most_per_user * per_user), items),
            most_per_item=min(math.ceil(self.most_per_item * per_item), users),
        )


# Netflix: counts and the most ratings of a movie from KONECT, the most of a user counted in 2007.
# The Gini coefficients are ours, chosen so that log-normal counts agree with what is reported: a
# median of 96 ratings per user (here 94), 16,419 users with fewer than 10 (here 17,100), and 0.792
# as the coefficient of all users and movies together (KONECT). The median movie has 909 ratings
# here, in truth about 561: its long tail is longer than log-normal.
# MovieLens 1M: all computed from ratings.dat.
# The shop is made up. Its users are drawn to a sixth of the catalogue each: with the weak pull of
# the others, histories of ten interactions would say next to nothing beside popularity.
SHAPES = {
    "netflix": Shape(480_189, 17_770, 100_480_507, 0.63, 0.82, 1, 17_653, 232_944),
    "ml-1m": Shape(
        6_040, 3_706, 1_000_209, 0.529, 0.634, 20, 2_314, 3_428,
        taste=0.5, mean=3.2, first_second=956_700_000, days=1038,
    ),
    "shop": Shape(
        300_000, 300_000, 3_000_000, 0.6, 0.7, 1, 3_000, 10_000, pull=2.0, choosy=2.0
    ),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Block:
    """The interactions of consecutive users, each (n,)."""

    user: NDArray[np.int32]  # from 1, as items
    item: NDArray[np.int32]
    rating: NDArray[np.int8]
    timestamp: Integer
    expected: NDArray[np.float32]  # the mean of the distribution that the rating is drawn from


def gini(counts: NDArray[Any]) -> float:
    """0 where all have the same count, near 1 where one has all."""
    ascending = np.sort(counts).astype(np.float64)
    n = ascending.size
    ranks = np.arange(1, n + 1)
    return float(2 * (ranks @ ascending) / (n * ascending.sum()) - (n + 1) / n)


def synthetic_blocks(shape: Shape, seed: int) -> Iterator[Block]:
    """The table of a seed, block by block, in the order of the users."""
    from cfuica.ops.runtime import run_rows
    from cfuica.ops.synthesis import draw_users

    per_user = _counts(
        "user", shape.users, shape.interactions, shape.gini_users, shape.least_per_user,
        shape.most_per_user,
    )[permutation(shape.users, seed, 1)]  # fmt: skip
    per_item = _counts(
        "item", shape.items, shape.interactions, shape.gini_items, 1, shape.most_per_item
    )[permutation(shape.items, seed, 2)]
    offsets = np.concatenate([[0], np.cumsum(per_user)])
    certain_offsets, certain = _certain(offsets, shape.items, seed)
    weight = _weights(per_user - np.diff(certain_offsets), per_item - 1)
    accept, other = _alias(weight)

    # Popular items are liked more. The first factors matter most.
    fame = np.log(per_item)
    fame = (fame - fame.mean()) / max(fame.std(), 1e-9)
    bias_i = shape.item_bias * (0.5 * fame + math.sqrt(0.75) * normals(shape.items, seed, 3))
    bias_u = shape.user_bias * normals(shape.users, seed, 4)
    spread_f = 1.0 / np.sqrt(np.arange(1, _FACTORS + 1))
    spread_f *= shape.taste / np.linalg.norm(spread_f)
    taste_uf = normals(shape.users * _FACTORS, seed, 5).reshape(-1, _FACTORS).astype(np.float32)
    factors_if = spread_f * normals(shape.items * _FACTORS, seed, 6).reshape(-1, _FACTORS)
    key = hashes(1, seed, 7)[0]

    first = 0
    while first < shape.users:
        last = int(np.searchsorted(offsets, offsets[first] + _ROWS, side="right")) - 1
        last = min(max(last, first + 1), shape.users)
        local = offsets[first : last + 1] - offsets[first]
        n = int(local[-1])
        item, stars = np.empty(n, np.int32), np.empty(n, np.int8)
        expected, times = np.empty(n, np.float32), np.empty(n, np.int64)
        run_rows(
            draw_users, last - first, first, local, certain_offsets, certain, weight, accept, other,
            bias_u, bias_i, taste_uf, factors_if, key, shape.mean, shape.noise,
            shape.pull / shape.taste, shape.choosy, shape.first_second, 86_400.0 * shape.days,
            item, stars, expected, times, work=local,
        )  # fmt: skip
        numbers = np.arange(first + 1, last + 1, dtype=np.int32)
        user = np.repeat(numbers, np.diff(local))
        yield Block(user, item + np.int32(1), stars, times, expected)
        first = last


def _counts(
    what: str, n: int, total: int, wanted: float, least: int, most: int
) -> NDArray[np.int64]:
    """(n,) ascending log-normal counts between `least` and `most` of this sum and Gini coefficient.

    The width is found by bisection, and the median for each width.
    """
    if not least * n <= total <= most * n:
        raise SettingsError(
            f"{n:,} {what}s cannot have {total:,} interactions, each at least {least:,} and at "
            f"most {most:,}; give another --{what}s or --interactions."
        )
    points = min(n, _QUANTILES)
    normal = NormalDist()
    z = np.array([normal.inv_cdf((at + 0.5) / points) for at in range(points)])

    def fitted(width: float) -> Real:
        low, high = math.log(least) - 8 * width, math.log(most) + 8 * width
        for _ in range(50):
            middle = (low + high) / 2
            mean = np.clip(np.exp(middle + width * z), least, most).mean()
            low, high = (middle, high) if mean < total / n else (low, middle)
        return np.clip(np.exp(high + width * z), least, most)

    narrow, wide = 1e-3, 8.0
    for _ in range(30):
        width = (narrow + wide) / 2
        narrow, wide = (width, wide) if gini(fitted(width)) < wanted else (narrow, width)
    real = np.interp(np.arange(n) / max(n - 1, 1), np.linspace(0, 1, points), fitted(wide))
    if abs(gini(real) - wanted) > _GINI_TOLERANCE:
        raise SettingsError(
            f"{total:,} interactions of {n:,} {what}s, each from {least:,} to {most:,}, cannot "
            f"have a Gini coefficient of {wanted:g}; give another --{what}s or --interactions."
        )
    # Rounding, and the interpolation of the largest, leave a difference.
    count = np.clip(np.rint(real), least, most).astype(np.int64)
    while (missing := total - int(count.sum())) != 0:
        room = (most - count) if missing > 0 else (count - least)
        share = np.ceil(abs(missing) * count / count.sum()).astype(np.int64)
        change = np.minimum(share, room)
        # From the largest on, as far as there is a difference left.
        before = np.cumsum(change[::-1])[::-1] - change
        change = np.clip(abs(missing) - before, 0, change)
        count += change if missing > 0 else -change
    return count


def _certain(offsets: Integer, n_items: int, seed: int) -> tuple[Integer, NDArray[np.int32]]:
    """(offsets by user, items): a user for each item, so that none is without interaction.

    A user is drawn by the number of interactions: each item takes one of all, in equal distances.
    """
    total = int(offsets[-1])
    luck = permutation(n_items, seed, 8) + uniforms(n_items, seed, 9)
    taken = np.minimum((luck * (total / n_items)).astype(np.int64), total - 1)
    user = np.searchsorted(offsets, taken, side="right") - 1
    counted = np.bincount(user, minlength=offsets.size - 1)
    order = np.argsort(user, kind="stable")
    return np.concatenate([[0], np.cumsum(counted)]), order.astype(np.int32)


_ROUNDS, _STEPS = 60, 6


def _weights(per_user: Integer, per_item: NDArray[Any]) -> Real:
    """(items,) weights by which users draw items, so that the items get about these counts.

    A user who draws n items has item i with the chance 1 - exp(-w_i t), where t is such that n are
    expected. Popular items therefore need more than their share. Users and items of about the same
    count are taken together.
    """
    item_g, wanted_g, n_g = _groups(np.maximum(per_item, 1e-3), 0.02)
    _, draws_v, n_v = _groups(np.maximum(per_user, 1e-3), 0.05)
    draws_v = np.minimum(draws_v, 0.999 * per_item.size)
    weight_g = wanted_g / (n_g @ wanted_g)
    time_v = draws_v.copy()
    for _ in range(_ROUNDS):
        for _ in range(_STEPS):  # Newton's method for t
            left_vg = np.exp(-np.outer(time_v, weight_g))
            rate_v = left_vg @ (n_g * weight_g)
            step_v = (draws_v - (1.0 - left_vg) @ n_g) / np.maximum(rate_v, 1e-300)
            time_v = np.clip(time_v + step_v, time_v / 4, time_v * 4)
        weight_g *= wanted_g / (n_v @ (1.0 - np.exp(-np.outer(time_v, weight_g))))
        weight_g /= n_g @ weight_g
    # Inside a group weights go with the counts.
    weight: Real = weight_g[item_g] * np.maximum(per_item, 1e-3) / wanted_g[item_g]
    return weight


def _groups(counts: NDArray[Any], width: float) -> tuple[Integer, Real, Real]:
    """(group of each, mean count of each group, size of each group), by the logarithm."""
    _, group = np.unique(np.floor(np.log(counts) / width), return_inverse=True)
    size = np.bincount(group).astype(np.float64)
    return group, np.bincount(group, weights=counts) / size, size


def _alias(weight: Real) -> tuple[Real, NDArray[np.int32]]:
    """Walker's table: place i keeps i with the chance accept[i], else it stands for other[i]."""
    accept = weight * (weight.size / weight.sum())
    other = np.arange(weight.size, dtype=np.int32)
    small, large = list(np.flatnonzero(accept < 1)), list(np.flatnonzero(accept >= 1))
    while small and large:
        little, much = small.pop(), large[-1]
        other[little] = much
        accept[much] -= 1.0 - accept[little]
        if accept[much] < 1.0:
            small.append(large.pop())
    accept[small + large] = 1.0
    return accept, other


@dataclass(frozen=True)
class Synthetic:
    """What was written."""

    users: int
    items: int
    interactions: int
    gini_users: float
    gini_items: float
    stars: tuple[int, ...]  # how many ratings of 1, 2, 3, 4, 5
    # RMSE of the best possible prediction, on the test set of `cfuica train FILE`, and on all rows.
    floor: float
    floor_of_all: float
    seed: int


def write_synthetic(
    path: Path,
    shape: Shape,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Synthetic:
    """Write the table of a seed as Parquet: user, item, rating, timestamp; rows in user order."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    in_test = in_first_fold(shape.interactions)
    per_item, stars = np.zeros(shape.items + 1, np.int64), np.zeros(6, np.int64)
    per_user = np.zeros(shape.users + 1, np.int64)
    done, squares, tested, tested_squares = 0, 0.0, 0, 0.0
    names = ("user", "item", "rating", "timestamp")
    types = (pa.int32(), pa.int32(), pa.int8(), pa.int64())
    schema = pa.schema(list(zip(names, types, strict=True)))
    with atomic_file(path) as file:
        writer = pq.ParquetWriter(
            file, schema, compression="zstd", use_dictionary=["user", "item", "rating"],
            column_encoding={"timestamp": "DELTA_BINARY_PACKED"},
        )  # fmt: skip
        with writer:
            for block in synthetic_blocks(shape, seed):
                writer.write_table(pa.table([getattr(block, name) for name in names], schema))
                per_user += np.bincount(block.user, minlength=per_user.size)
                per_item += np.bincount(block.item, minlength=per_item.size)
                stars += np.bincount(block.rating, minlength=stars.size)
                error = (block.rating - block.expected.astype(np.float64)) ** 2
                squares += float(error.sum())
                error = error[in_test(done, done + error.size)]
                tested, tested_squares = tested + error.size, tested_squares + float(error.sum())
                done += block.user.size
                progress(done, shape.interactions)
            result = Synthetic(
                users=int(np.count_nonzero(per_user)),
                items=int(np.count_nonzero(per_item)),
                interactions=done,
                gini_users=gini(per_user[1:]),
                gini_items=gini(per_item[1:]),
                stars=tuple(stars[1:].tolist()),
                floor=math.sqrt(tested_squares / tested),
                floor_of_all=math.sqrt(squares / done),
                seed=seed,
            )
            writer.add_key_value_metadata({"cfuica.synthetic": json.dumps(asdict(result))})
    return result
