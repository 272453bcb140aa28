from __future__ import annotations

import numpy as np
import pytest

from cfuica.data.matrix import Csr
from cfuica.metrics.ranking_metrics import Popularity, coverage, novelty, popularity_bias

# Users 0 to 3 did: {0, 1}, {0}, {0, 2}, nothing; nobody did item 3.
OBSERVED = Csr.of_pairs([0, 0, 1, 2, 2], [0, 1, 0, 0, 2], 4)
POPULARITY = Popularity.of(OBSERVED, 4)
LISTS = np.array([[0, 3], [0, 1], [0, -1], [-1, -1]], np.int32)


def test_popularity_is_how_many_users_did_an_item():
    assert POPULARITY.counts_m.tolist() == [3, 1, 1, 0]
    assert POPULARITY.n_users == 4
    # The means of the three who did anything: (3 + 1) / 2, 3, (3 + 1) / 2.
    assert POPULARITY.of_histories == pytest.approx(7 / 3)


def test_coverage_is_of_the_catalogue_by_anybodys_list():
    assert coverage(LISTS, 1, 4) == 1 / 4
    assert coverage(LISTS, 2, 4) == 3 / 4
    assert coverage(np.full((2, 3), -1, np.int32), 3, 4) == 0


def test_novelty_is_in_bits_and_an_item_without_users_counts_as_if_it_had_one():
    bits = -np.log2(np.array([3, 1, 1, 1]) / 4)
    expected = [(bits[0] + bits[3]) / 2, (bits[0] + bits[1]) / 2, bits[0], 0.0]
    assert novelty(LISTS, 2, POPULARITY) == pytest.approx(expected)
    assert novelty(LISTS, 1, POPULARITY) == pytest.approx([bits[0]] * 3 + [0.0])


def test_popularity_bias_is_relative_to_what_people_did():
    expected = np.array([(3 + 0) / 2, (3 + 1) / 2, 3.0, 0.0]) / (7 / 3)
    assert popularity_bias(LISTS, 2, POPULARITY) == pytest.approx(expected)


def test_without_any_training_there_is_no_division_by_zero():
    nothing = Popularity.of(Csr.of_pairs([], [], 2), 4)
    assert popularity_bias(LISTS, 2, nothing).tolist() == [0.0] * 4
    assert np.isfinite(novelty(LISTS, 2, nothing)).all()
