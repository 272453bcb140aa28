from __future__ import annotations

import numpy as np
import pytest

from cfuica.data.matrix import Csr
from cfuica.errors import DataError
from cfuica.metrics.ranking_metrics import RankingTest

USERS = np.array([4, 7], np.int32)
RELEVANT = Csr.of_pairs([0, 1, 1], [2, 0, 3], 2)
OTHERS = np.array([[[5, 6], [5, -1]], [[1, 0], [6, 4]]], np.int32)


def test_candidates_begin_with_the_relevant_items():
    asked = RankingTest.among("p", USERS, RELEVANT, OTHERS)
    assert asked.candidates_duc is not None
    assert asked.candidates_duc.tolist() == [
        [[2, 5, 6, -1], [0, 3, 5, -1]],
        [[2, 1, 0, -1], [0, 3, 6, 4]],
    ]


def test_a_relevant_item_is_never_counted_as_seen():
    seen = Csr.of_pairs([0, 0, 1], [2, 1, 3], 2)
    asked = RankingTest.among_unseen(
        "p", USERS, RELEVANT, seen=seen, catalogue_m=np.ones(8, np.bool_)
    )
    assert asked.seen is not None
    assert asked.seen.indices.tolist() == [1]


def test_an_impossible_ranking_test_is_refused():
    unknown_index = Csr.of_pairs([], [], 0)
    with pytest.raises(DataError, match="There is no test user"):
        RankingTest.among("p", USERS[:0], unknown_index, OTHERS[:, :0])
    with pytest.raises(DataError, match="at least one item"):
        RankingTest.among("p", USERS, Csr.of_pairs([0], [1], 2), OTHERS)
    with pytest.raises(DataError, match="candidates for 1 users, but 2"):
        RankingTest.among("p", USERS, RELEVANT, OTHERS[:, :1])
