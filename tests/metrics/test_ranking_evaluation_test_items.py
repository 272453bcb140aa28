from __future__ import annotations

import numpy as np
import pytest

from cfuica.data.matrix import Csr
from cfuica.errors import DataError
from cfuica.metrics.ranking_evaluation import RankingTest

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


def test_a_ranking_test_has_a_hash_of_all_of_it():
    asked = RankingTest.among("p", USERS, RELEVANT, OTHERS)
    again = RankingTest.among("p", USERS.copy(), RELEVANT, OTHERS.copy())
    assert asked.sha256() == again.sha256()
    others = [
        RankingTest.among("q", USERS, RELEVANT, OTHERS),
        RankingTest.among("p", USERS + 1, RELEVANT, OTHERS),
        RankingTest.among("p", USERS, RELEVANT, OTHERS[:, :, ::-1]),
        RankingTest.among("p", USERS, RELEVANT, OTHERS[:1]),
        asked.first(1),
    ]
    seen = Csr.of_pairs([0], [1], 2)
    others += [
        RankingTest.among_unseen("p", USERS, RELEVANT, seen=done, catalogue_m=catalogue)
        for catalogue in (np.ones(8, np.bool_), np.arange(8) < 7)
        for done in (seen, Csr.of_pairs([1], [1], 2))
    ]
    assert len({asked.sha256(), *(each.sha256() for each in others)}) == len(others) + 1


def test_the_first_users_alone():
    asked = RankingTest.among("p", USERS, RELEVANT, OTHERS).first(1)
    assert asked.n_users == 1
    assert asked.relevant.indices.tolist() == [2]
    assert asked.candidates_duc is not None
    assert asked.candidates_duc.shape == (2, 1, 4)
    assert asked.first(9).n_users == 1


def test_an_impossible_ranking_test_is_refused():
    unknown_index = Csr.of_pairs([], [], 0)
    with pytest.raises(DataError, match="There is no test user"):
        RankingTest.among("p", USERS[:0], unknown_index, OTHERS[:, :0])
    with pytest.raises(DataError, match="at least one item"):
        RankingTest.among("p", USERS, Csr.of_pairs([0], [1], 2), OTHERS)
    with pytest.raises(DataError, match="candidates for 1 users, but 2"):
        RankingTest.among("p", USERS, RELEVANT, OTHERS[:, :1])
