"""The lines of the Netflix Prize files, as a compiled loop over bytes.

A line `N:` begins movie N; every other line is `user,rating,YYYY-MM-DD`, in a file of pairs `user`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

# Places of the state that is carried from block to block.
MOVIE, LINE, AT, FILLED = range(4)
# What a call ends with.
MORE, FULL, NO_MOVIE, BAD_LINE, BAD_RATING, BAD_DATE = range(6)
_COLON, _COMMA, _NEWLINE, _RETURN, _DASH, _ZERO = 58, 44, 10, 13, 45, 48
_LARGEST = 2**31 - 1
_DAYS_BEFORE = np.array([0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365])


@njit(nogil=True, cache=True)
def _number(data, at, end, digits):
    """(the number at this place, the place behind it); -1 where there is none."""
    value, begin = 0, at
    while at < end and _ZERO <= data[at] <= _ZERO + 9 and at - begin < digits:
        value = 10 * value + data[at] - _ZERO
        at += 1
    return (value if at > begin and value <= _LARGEST else -1), at


@njit(nogil=True, cache=True)
def _day(data, at, end):
    """Days since 1970 of YYYY-MM-DD, which must fill the line; -1 where it is none."""
    if end - at != 10 or data[at + 4] != _DASH or data[at + 7] != _DASH:
        return -1
    year, after = _number(data, at, end, 4)
    month, after_month = _number(data, at + 5, end, 2)
    day, after_day = _number(data, at + 8, end, 2)
    if after != at + 4 or after_month != at + 7 or after_day != end or year < 1970:
        return -1
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= month <= 12:
        return -1
    length = _DAYS_BEFORE[month] - _DAYS_BEFORE[month - 1] + (leap and month == 2)
    if not 1 <= day <= length:
        return -1
    leaps = (year - 1) // 4 - (year - 1) // 100 + (year - 1) // 400 - 477  # since 1970
    days = 365 * (year - 1970) + leaps + _DAYS_BEFORE[month - 1] + day - 1
    return days + (leap and month > 2)


@njit(nogil=True, cache=True)
def read_lines(data, state, pairs, users, movies, ratings, days, is_movie):
    """Read whole lines from state[AT] on into the arrays, from state[FILLED] on.

    Ends at the last line feed (MORE), where the arrays are full (FULL), or behind a bad line.
    `is_movie` (a mask) learns the movies that were begun.
    """
    size = data.size
    while state[AT] < size:
        begin = state[AT]
        end = begin
        while end < size and data[end] != _NEWLINE:
            end += 1
        if end == size:
            return MORE
        if state[FILLED] == users.size:
            return FULL
        state[AT] = end + 1
        state[LINE] += 1
        if end > begin and data[end - 1] == _RETURN:
            end -= 1
        if end == begin:
            continue
        number, at = _number(data, begin, end, 10)
        if number >= 1 and at == end - 1 and data[at] == _COLON:
            if number >= is_movie.size:
                return BAD_LINE
            state[MOVIE] = number
            is_movie[number] = True
            continue
        if number < 0:
            return BAD_LINE
        if not pairs and (at >= end or data[at] != _COMMA):
            return BAD_LINE
        rating, day = 0, 0
        if not pairs:
            rating, at = _number(data, at + 1, end, 10)
            if at >= end or data[at] != _COMMA:
                return BAD_LINE
            if not 1 <= rating <= 5:
                return BAD_RATING
            day = _day(data, at + 1, end)
            if day < 0:
                return BAD_DATE
        elif at != end:
            return BAD_LINE
        if state[MOVIE] == 0:
            return NO_MOVIE
        row = state[FILLED]
        users[row], movies[row] = number, state[MOVIE]
        ratings[row], days[row] = rating, day
        state[FILLED] += 1
    return MORE
