"""Synthetic data for the demo and the tests, whose best achievable RMSE is known.

Every pair of a user and an item has a mean rating: a user bias, an item bias, the user's taste for
the item's genres, and a few latent factors. A rating is that mean plus Gaussian noise of a known
width, rounded to 1 to 5 stars. So the distribution of every rating is known exactly, and with it
the best possible prediction.

Which items a user rates depends on popularity and taste, never on the noise; otherwise the observed
ratings would have another distribution. Items have made-up titles and genres, and some are series.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, product

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cfuica.data.splits import normals, permutation, uniforms
from cfuica.data.table import Interactions
from cfuica.errors import SettingsError

_ADJECTIVES = (
    "Glass", "Silent", "Crimson", "Hollow", "Last", "Golden", "Broken", "Northern", "Paper",
    "Velvet", "Winter", "Hidden", "Copper", "Distant", "Burning", "Forgotten", "Blue", "Iron",
    "Restless", "Second", "Salt", "Wandering", "Pale", "Honest", "Midnight", "Borrowed", "Quiet",
    "Scarlet", "Patient", "Drifting",
)  # fmt: skip

# The noun of a title hints at its genre, so that recommendations look plausible.
_NOUNS = {
    "Adventure": ("Harbour", "Compass", "Expedition", "Island", "Caravan", "Lagoon", "Summit"),
    "Animation": ("Fox", "Lantern", "Puppet", "Balloon", "Teapot", "Dragonfly", "Snowman"),
    "Comedy": ("Wedding", "Landlord", "Nephew", "Holiday", "Butler", "Pancake", "Reunion"),
    "Crime": ("Alibi", "Detective", "Ransom", "Verdict", "Heist", "Informer", "Witness"),
    "Documentary": ("Orchard", "Glacier", "Archive", "Railway", "Reef", "Vineyard", "Meadow"),
    "Drama": ("Letter", "Daughter", "Promise", "Piano", "Farewell", "Inheritance", "Staircase"),
    "Fantasy": ("Crown", "Sorcerer", "Tower", "Griffin", "Prophecy", "Mirror", "Realm"),
    "Horror": ("Cellar", "Whisper", "Asylum", "Coffin", "Scarecrow", "Shadow", "Ritual"),
    "Romance": ("Kiss", "Serenade", "Rose", "Valentine", "Waltz", "Heart", "Summer"),
    "Science Fiction": ("Orbit", "Signal", "Android", "Nebula", "Colony", "Paradox", "Satellite"),
}
_PATTERNS = ("The {adjective} {noun}", "Beyond the {adjective} {noun}")

GENRES = tuple(_NOUNS)
NUMERALS = ("", " II", " III", " IV", " V")  # What the parts of a series have behind their title.


def make_titles(genres: list[str], *key: int) -> list[str]:
    """One distinct title for each of the given main genres."""
    decks = {genre: _titles(genre, *key, number) for number, genre in enumerate(GENRES)}
    return [next(decks[genre]) for genre in genres]


def _titles(genre: str, *key: int) -> Iterator[str]:
    """Distinct titles of a genre without end: when all are used, remakes get a year."""
    words = list(product(_PATTERNS, _ADJECTIVES, _NOUNS[genre]))
    for year in count(2000):
        for at in permutation(len(words), *key):
            pattern, adjective, noun = words[at]
            title = pattern.format(adjective=adjective, noun=noun)
            yield title if year == 2000 else f"{title} ({year})"


Real = NDArray[np.float64]
Integer = NDArray[np.int64]

STARS = (1, 2, 3, 4, 5)
NOISE = 0.7  # Standard deviation of a rating around its mean, before it is rounded.
LEAST_RATINGS = 15  # No user has fewer.

_MEAN = 3.5
_USER_BIAS, _ITEM_BIAS = 0.35, 0.4
_GENRE_TASTE, _FREE_TASTE, _FREE_DIMENSIONS = 0.55, 0.4, 3
_TEMPERAMENTS, _BY_TEMPERAMENT = 4, 0.7
_IN_SERIES, _LONGEST_SERIES = 0.4, len(NUMERALS)
# How strongly taste draws a user to an item, beside popularity; and a series to its next part.
_DRAWN_BY_TASTE, _DRAWN_BY_SERIES = 0.8, 1.0
_FIRST_DAY, _DAYS = 1_262_304_000, 1500  # 2010-01-01


@dataclass(frozen=True, eq=False)
class World:
    """The table, and the true distribution behind each of its n ratings."""

    table: Interactions
    expected: Real  # (n,) the mean of the rating's distribution: the best possible prediction.
    variance: Real  # (n,) the variance of the rating's distribution: the irreducible error.

    def best_rmse(self, indices: NDArray[np.int64] | None = None) -> float:
        """The RMSE of predicting `expected` on these rows (all, if None): the best possible."""
        rows = slice(None) if indices is None else indices
        rating = self.table.frame["rating"].to_numpy()[rows]
        return float(np.sqrt(np.mean((rating - self.expected[rows]) ** 2)))


def make_world(
    *, users: int = 1000, items: int = 500, ratings: int = 60_000, seed: int = 0
) -> World:
    """The world of a seed, the same on any machine."""
    most = int(0.8 * items)
    if items < 2 * LEAST_RATINGS or users < 1:
        raise SettingsError(
            f"A world of {users} users and {items} items is too small: expected at least 1 user "
            f"and {2 * LEAST_RATINGS} items."
        )
    if not LEAST_RATINGS * users <= ratings <= most * users // 2:
        raise SettingsError(
            f"{users} users cannot give {ratings} ratings to {items} items: expected from "
            f"{LEAST_RATINGS * users} to {most * users // 2}."
        )
    catalogue = _make_catalogue(items, seed)
    taste_ui = _tastes(users, catalogue, seed)
    user, item = _choose(taste_ui, catalogue, _activity(users, ratings, most, seed), seed)
    timestamp = _times(user, item, catalogue, seed)

    bias_u = _USER_BIAS * normals(users, seed, 10)
    mean = _MEAN + bias_u[user] + catalogue.bias[item] + taste_ui[user, item]
    noisy = mean + NOISE * normals(mean.size, seed, 11)
    stars = np.rint(np.clip(noisy, STARS[0], STARS[-1]))
    expected, variance = rating_moments(mean)

    # In temporal order, as in a log.
    order = np.lexsort((user, timestamp))
    frame = pl.DataFrame(
        {
            "user": user[order] + 1,
            "item": item[order] + 1,
            "rating": stars[order],
            "timestamp": timestamp[order],
        }
    )
    table = Interactions(
        frame,
        items=catalogue.frame(),
        item_space=pl.int_range(1, items + 1, dtype=pl.Int64, eager=True).alias("item"),
        source=f"the synthetic world of seed {seed}",
    )
    return World(table, expected[order], variance[order])


def rating_moments(mean: Real) -> tuple[Real, Real]:
    """(mean, variance), each (n,), of round(clip(mean + NOISE * normal)), exactly."""
    edges = np.asarray(STARS[:-1]) + 0.5
    scaled = (edges[None, :] - mean[:, None]) / (NOISE * math.sqrt(2.0))
    # numpy has no erf, and scipy is not a dependency.
    erf_nk = np.fromiter(map(math.erf, scaled.ravel()), np.float64, scaled.size)
    at_most_nk = 0.5 * (1.0 + erf_nk.reshape(scaled.shape))
    ends = np.ones((mean.size, 1))
    probability_nk = np.diff(np.hstack([0.0 * ends, at_most_nk, ends]), axis=1)
    stars = np.asarray(STARS, dtype=np.float64)
    first = probability_nk @ stars
    return first, probability_nk @ stars**2 - first**2


@dataclass(frozen=True, eq=False)
class _Catalogue:
    """Item i belongs to story[i] (a story of several parts is a series) as its part[i]."""

    titles: list[str]
    genres: list[list[str]]
    story: Integer
    part: Integer
    # (items, genres) how much of each genre an item has; the squares of a row sum to 1.
    weight_ig: Real
    hidden_if: Real  # (items, free dimensions) latent factors.
    bias: Real
    popularity: Real  # (items,) logarithm of the popularity, up to a constant.

    def frame(self) -> pl.DataFrame:
        ids = np.arange(1, len(self.titles) + 1)
        return pl.DataFrame({"item": ids, "title": self.titles, "genres": self.genres})


def _make_catalogue(items: int, seed: int) -> _Catalogue:
    lengths = _story_lengths(items, seed)
    stories = lengths.size
    story = np.repeat(np.arange(stories), lengths)
    part = np.arange(items) - np.repeat(np.cumsum(lengths) - lengths, lengths) + 1

    # A story has one to three genres; some genres are more common than others.
    frequency = 1.0 / np.sqrt(1.0 + permutation(len(GENRES), seed, 20))
    luck = uniforms(stories * len(GENRES), seed, 21).reshape(stories, -1)
    ranked = np.argsort(np.log(luck) / frequency, axis=1)[:, ::-1]
    count = 1 + np.searchsorted([0.4, 0.85], uniforms(stories, seed, 22))
    genres = [[GENRES[g] for g in row[:n]] for row, n in zip(ranked, count, strict=True)]
    weight_sg = np.zeros((stories, len(GENRES)))
    for number, (row, n) in enumerate(zip(ranked, count, strict=True)):
        weight_sg[number, row[:n]] = 1.0 / math.sqrt(n)

    titles = make_titles([names[0] for names in genres], seed, 23)
    # The parts of a series are alike; later ones are less popular and rated slightly lower.
    hidden = _alike(stories, story, _FREE_DIMENSIONS, 0.9, seed, 24)
    bias = _alike(stories, story, 1, 0.7, seed, 26)[:, 0]
    rank = permutation(stories, seed, 28)[story] + 1.0
    popularity = -0.8 * np.log(rank) + 0.2 * bias - 0.15 * (part - 1)

    # Ids are shuffled, so that they reveal neither popularity nor series.
    shuffle = permutation(items, seed, 29)
    return _Catalogue(
        titles=[titles[story[i]] + NUMERALS[part[i] - 1] for i in shuffle],
        genres=[sorted(genres[story[i]]) for i in shuffle],
        story=story[shuffle],
        part=part[shuffle],
        weight_ig=weight_sg[story][shuffle],
        hidden_if=hidden[shuffle],
        bias=(_ITEM_BIAS * bias - 0.05 * (part - 1))[shuffle],
        popularity=popularity[shuffle],
    )


def _story_lengths(items: int, seed: int) -> Integer:
    """Number of parts of each story: series of 2 to 5 until the share in series is reached."""
    draws = uniforms(items, seed, 30)
    lengths: list[int] = []
    left = int(_IN_SERIES * items)
    while left >= 2:
        length = min(2 + int(draws[len(lengths)] * (_LONGEST_SERIES - 1)), left)
        lengths.append(length)
        left -= length
    return np.asarray(lengths + [1] * (items - sum(lengths)), dtype=np.int64)


def _alike(stories: int, story: Integer, width: int, share: float, seed: int, word: int) -> Real:
    """(items, width) standard normal numbers, correlated by `share` within a story."""
    common = normals(stories * width, seed, word).reshape(stories, width)[story]
    own = normals(story.size * width, seed, word + 1).reshape(story.size, width)
    return math.sqrt(share) * common + math.sqrt(1.0 - share) * own


def _tastes(users: int, catalogue: _Catalogue, seed: int) -> Real:
    """(users, items) the rating in excess of the biases."""
    # Tastes for genres are correlated: they load on a few temperaments.
    loading_tg = normals(_TEMPERAMENTS * len(GENRES), seed, 42).reshape(_TEMPERAMENTS, -1)
    loading_tg /= np.linalg.norm(loading_tg, axis=0)
    common_ug = normals(users * _TEMPERAMENTS, seed, 43).reshape(users, -1) @ loading_tg
    own_ug = normals(users * len(GENRES), seed, 40).reshape(users, -1)
    genre_ug = math.sqrt(_BY_TEMPERAMENT) * common_ug + math.sqrt(1.0 - _BY_TEMPERAMENT) * own_ug
    free_uf = normals(users * _FREE_DIMENSIONS, seed, 41).reshape(users, -1)
    by_genre = genre_ug @ catalogue.weight_ig.T
    by_free = free_uf @ catalogue.hidden_if.T / math.sqrt(_FREE_DIMENSIONS)
    return _GENRE_TASTE * by_genre + _FREE_TASTE * by_free


def _activity(users: int, ratings: int, most: int, seed: int) -> Integer:
    """(users,) number of ratings of each user: a long tail that sums to `ratings`."""
    share = np.exp(0.9 * normals(users, seed, 50))
    spare = ratings - LEAST_RATINGS * users
    room = float(most - LEAST_RATINGS)
    # Users stop at the limit `most`; the factor is found by bisection so that the sum is met.
    low, high = 0.0, room / share.min()
    for _ in range(60):
        factor = (low + high) / 2
        if np.minimum(factor * share, room).sum() < spare:
            low = factor
        else:
            high = factor
    count: Integer = LEAST_RATINGS + np.minimum(high * share, room).astype(np.int64)
    # Rounding leaves a difference, which is spread one by one.
    turn = permutation(users, seed, 51)
    while (missing := ratings - int(count.sum())) != 0:
        step = 1 if missing > 0 else -1
        able = turn[(count[turn] < most) if step > 0 else (count[turn] > LEAST_RATINGS)]
        count[able[: abs(missing)]] += step
    return count


def _choose(
    taste_ui: Real, catalogue: _Catalogue, count_u: Integer, seed: int
) -> tuple[Integer, Integer]:
    """(user, item) of each interaction: user u draws count_u[u] distinct items."""
    users, items = taste_ui.shape
    stories = int(catalogue.story.max()) + 1
    fan_us = normals(users * stories, seed, 60).reshape(users, stories)
    in_series = np.bincount(catalogue.story)[catalogue.story] > 1
    # The largest of weight + Gumbel noise are a sample without replacement in proportion to
    # exp(weight), for all users at once.
    gumbel = -np.log(-np.log(uniforms(users * items, seed, 61))).reshape(users, items)
    weight = catalogue.popularity + _DRAWN_BY_TASTE * taste_ui
    weight += _DRAWN_BY_SERIES * in_series * fan_us[:, catalogue.story]
    ranked = np.argsort(-(weight + gumbel), axis=1, kind="stable")
    user = np.repeat(np.arange(users), count_u)
    place = np.arange(user.size) - np.repeat(np.cumsum(count_u) - count_u, count_u)
    return user, ranked[user, place]


def _times(user: Integer, item: Integer, catalogue: _Catalogue, seed: int) -> Integer:
    """(n,) seconds since 1970, strictly increasing along a user's history.

    A user comes to a story at a random time, and to its parts in order, soon after one another.
    """
    stories = int(catalogue.story.max()) + 1
    visit = user * stories + catalogue.story[item]
    # One start per visited story. Pauses are shorter than the distance of two parts, so that the
    # order of the parts cannot change.
    _, first, index = np.unique(visit, return_index=True, return_inverse=True)
    begin = uniforms(first.size, seed, 70)[index]
    pause = 0.02 * (catalogue.part[item] - 1 + 0.5 * uniforms(user.size, seed, 71))
    order = np.lexsort((begin + pause, user))

    # Sessions of a few ratings, minutes apart, with days in between.
    gap = 60.0 - 300.0 * np.log(uniforms(user.size, seed, 72))
    rest = uniforms(user.size, seed, 73) < 0.2
    gap[rest] += -4 * 86_400.0 * np.log(uniforms(user.size, seed, 74)[rest])
    elapsed = np.cumsum(np.floor(gap).astype(np.int64))
    begins = np.flatnonzero(np.diff(user[order], prepend=-1))
    elapsed -= np.repeat(elapsed[begins], np.diff(np.append(begins, user.size)))
    start_u = np.floor(_DAYS * 86_400 * uniforms(int(user.max()) + 1, seed, 75)).astype(np.int64)
    times = np.empty(user.size, dtype=np.int64)
    times[order] = _FIRST_DAY + start_u[user[order]] + elapsed
    return times
