"""Titles of the synthetic world."""

from __future__ import annotations

from cfuica.data.synthetic import GENRES, make_titles


def test_titles_stay_distinct_when_the_words_run_out():
    titles = make_titles([GENRES[k % 3] for k in range(5000)], 0)
    assert len(set(titles)) == 5000


def test_titles_of_another_key_differ():
    wanted = [GENRES[0]] * 10
    assert make_titles(wanted, 0) == make_titles(wanted, 0) != make_titles(wanted, 1)
