"""From scores to metrics: ties, blocks, draws, lists."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.data.matrix import Csr
from cfuica.errors import CfuicaError, SettingsError
from cfuica.metrics.ranking_metrics import Popularity, RankingResult, RankingTest, answer
from tests.evaluation.given_scores import GivenScores

N_USERS, N_ITEMS = 6, 12


def asked_of_all(seed: int, *, users: np.ndarray | None = None) -> RankingTest:
    random = np.random.default_rng(seed)
    dealt = np.stack([random.permutation(N_ITEMS) for _ in range(N_USERS)])
    users = np.arange(N_USERS, dtype=np.int32) if users is None else users
    rows = np.repeat(np.arange(users.size), 2)
    relevant = Csr.of_pairs(rows, dealt[users, :2].ravel(), users.size)
    seen = Csr.of_pairs(rows, dealt[users, 2:4].ravel(), users.size)
    return RankingTest.among_unseen(
        "full", users, relevant, seen=seen, catalogue_m=np.arange(N_ITEMS) != 5
    )


def asked_of_some(seed: int, draws: int = 3) -> RankingTest:
    random = np.random.default_rng(seed)
    dealt = np.stack([random.permutation(N_ITEMS) for _ in range(N_USERS)]).astype(np.int32)
    relevant = Csr.of_pairs(np.arange(N_USERS), dealt[:, 0], N_USERS)
    others = np.stack([random.permuted(dealt[:, 1:], axis=1)[:, :5] for _ in range(draws)])
    return RankingTest.among("some", np.arange(N_USERS, dtype=np.int32), relevant, others)


def tied_scores(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, (N_USERS, N_ITEMS)).astype(np.float32)


def same(one: RankingResult, other: RankingResult) -> bool:
    return one.of_all == other.of_all and all(
        np.array_equal(values, other.per_user[name]) for name, values in one.per_user.items()
    )


ASKED: list[Callable[[int], RankingTest]] = [asked_of_all, asked_of_some]


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 99), st.sampled_from(ASKED), st.integers(1, 7))
def test_the_size_of_a_block_changes_nothing(seed, ask, block):
    scorer = GivenScores(tied_scores(seed))
    whole = answer(ask(seed), scorer, (1, 5))
    scorer.blocks.clear()
    assert same(answer(ask(seed), scorer, (1, 5), block=block), whole)
    assert max(scorer.blocks) <= block


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 99), st.sampled_from(ASKED))
def test_only_the_order_of_the_scores_counts(seed, ask):
    scores = tied_scores(seed)
    plain = answer(ask(seed), GivenScores(scores), (1, 5))
    for other in (scores * 3 - 7, np.exp(scores), np.arctan(scores)):
        assert same(answer(ask(seed), GivenScores(other), (1, 5)), plain)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 99), st.permutations(range(N_USERS)))
def test_the_order_of_the_users_is_that_of_their_values(seed, order):
    scorer = GivenScores(tied_scores(seed))
    straight = answer(asked_of_all(seed), scorer, (3,))
    users = np.array(order, np.int32)
    mixed = answer(asked_of_all(seed, users=users), scorer, (3,))
    for name, values in straight.per_user.items():
        assert np.array_equal(values[users], mixed.per_user[name])
    assert straight.of_all == mixed.of_all


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 99), st.sampled_from(ASKED))
def test_ties_are_never_better_than_any_order_of_them(seed, ask):
    scores = tied_scores(seed)
    tied = answer(ask(seed), GivenScores(scores), (1, 3))
    noise = np.random.default_rng(seed + 1).random(scores.shape) / 4
    broken = answer(ask(seed), GivenScores(scores + noise), (1, 3))
    for name, values in tied.per_user.items():
        assert (values <= broken.per_user[name] + 1e-12).all(), name


def test_who_scores_everything_alike_hits_nothing():
    result = answer(asked_of_some(0), GivenScores(np.zeros((N_USERS, N_ITEMS))), (1, 5))
    assert result.value("hr@5") == 0.0
    assert result.value("auc") == 0.0


def test_tied_relevant_items_are_not_counted_against_each_other():
    relevant = Csr.of_pairs([0, 0], [0, 1], 1)
    asked = RankingTest.among("p", np.zeros(1, np.int32), relevant, np.array([[[2, 3]]], np.int32))
    both_first = answer(asked, GivenScores(np.array([[5.0, 5.0, 1.0, 0.0]])), (1, 2))
    assert both_first.value("recall@2") == both_first.value("ndcg@2") == 1.0
    assert both_first.value("hr@1") == 1.0
    one_irrelevant_between = answer(asked, GivenScores(np.array([[5.0, 5.0, 5.0, 0.0]])), (1, 2))
    assert one_irrelevant_between.value("hr@1") == 0.0
    assert one_irrelevant_between.value("recall@2") == 0.5


def test_a_negative_that_is_the_test_item_itself_counts_against_it():
    relevant = Csr.of_pairs([0], [0], 1)
    asked = RankingTest.among(
        "ncf", np.zeros(1, np.int32), relevant, np.array([[[0, 1]]], np.int32)
    )
    result = answer(asked, GivenScores(np.array([[9.0, 1.0]])), (1, 2))
    assert (result.value("hr@1"), result.value("hr@2")) == (0.0, 1.0)


def test_with_several_draws_a_user_has_the_mean():
    scorer, asked = GivenScores(tied_scores(3)), asked_of_some(3)
    assert asked.candidates_duc is not None
    draws = [
        answer(
            RankingTest("some", asked.users_u, asked.relevant, asked.candidates_duc[d : d + 1]),
            scorer,
            (2,),
        )
        for d in range(3)
    ]
    result = answer(asked, scorer, (2,))
    for name, values in result.per_user.items():
        assert values == pytest.approx(np.mean([each.per_user[name] for each in draws], axis=0))
    assert not result.of_all


def test_lists_are_the_best_unseen_items_of_the_catalogue():
    scores = np.tile(np.arange(N_ITEMS, 0, -1.0), (N_USERS, 1))  # item 0 is everybody's best
    asked = asked_of_all(1)
    done = Csr.of_pairs([0, 1, 1], [0, 0, 1], N_USERS)
    result = answer(asked, GivenScores(scores), (1, 2), popularity=Popularity.of(done, N_ITEMS))
    assert asked.seen is not None
    seen = np.split(asked.seen.indices, asked.seen.offsets[1:-1])
    lists = [[m for m in range(N_ITEMS) if m != 5 and m not in each][:2] for each in seen]
    assert result.of_all["coverage@2"] == len({m for each in lists for m in each}) / 11
    popularity = np.array([2, 1] + [0] * 10) / ((2 + 1.5) / 2)
    assert result.per_user["popularity_bias@2"] == pytest.approx(
        [popularity[each].mean() for each in lists]
    )
    assert set(result.per_user) >= {"novelty@1", "novelty@2", "popularity_bias@1"}


def test_an_item_without_a_score_is_in_no_list():
    scores = np.full((N_USERS, N_ITEMS), -np.inf)
    scores[:, 0] = 1.0
    result = answer(asked_of_all(1), GivenScores(scores), (4,))
    assert result.of_all["coverage@4"] == 1 / 11


@pytest.mark.parametrize("ask", ASKED)
def test_scores_that_are_not_numbers_are_refused(ask):
    scores = tied_scores(0)
    scores[:, :] = np.nan
    with pytest.raises(CfuicaError, match="are not numbers and cannot be ranked"):
        answer(ask(0), GivenScores(scores), (1,))


def test_cutoffs_must_be_positive():
    with pytest.raises(SettingsError, match="at least 1"):
        answer(asked_of_all(0), GivenScores(tied_scores(0)), (0,))


def test_cutoffs_beyond_the_catalogue_are_no_harm():
    result = answer(asked_of_all(0), GivenScores(tied_scores(0)), (100,))
    assert result.value("recall@100") == 1.0
    assert result.of_all["coverage@100"] <= 1.0


def test_cutoffs_are_at_least_1_and_count_once():
    scores = GivenScores(np.ones((N_USERS, N_ITEMS)))
    result = answer(asked_of_all(1), scores, [10, 1, 10])
    assert [name for name in result.per_user if name.startswith("hr")] == ["hr@1", "hr@10"]
    for wrong in ([], [0], [5, -1]):
        with pytest.raises(SettingsError, match="at least 1"):
            answer(asked_of_all(1), scores, wrong)
