"""Two runs on one test."""

from __future__ import annotations

import json
import shutil
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import cfuica.models.recommender
from cfuica.data.matrix import Csr
from cfuica.data.split_tables import DataSplit
from cfuica.errors import DataError, SettingsError
from cfuica.evaluation.evaluate import compare, evaluate_model, same_test
from cfuica.metrics.ranking_metrics import RankingTest
from cfuica.models.co_autoregressive import RatingModel
from cfuica.models.ranking_evaluation import of_first_user
from cfuica.run_folder import RunFolder
from tests.runs.ranking_run import finished_run, ranker_of, tied_table
from tests.runs.small import TINY, small_table


@pytest.fixture
def rankings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[RunFolder]:
    """Two runs on the same split, whose models score differently."""
    data_split = DataSplit.leave_one_out(tied_table(), protocols=True)
    models = {name: ranker_of(data_split, seed) for seed, name in enumerate(("one", "other"))}
    monkeypatch.setattr(cfuica.models.recommender, "load", lambda path: models[Path(path).name])
    return [finished_run(tmp_path / name, data_split) for name in models]


@pytest.mark.parametrize("protocol", ["full", "paper"])
def test_rankings_are_compared_by_every_metric(rankings: list[RunFolder], protocol: str) -> None:
    comparison = compare(*rankings, protocol=protocol, cutoffs=(3,))
    alone = [
        evaluate_model(
            folder, cfuica.models.recommender.load(folder.path), protocol=protocol, cutoffs=(3,)
        )
        for folder in rankings
    ]
    assert set(comparison.metrics) == set(alone[0].intervals)
    for name, each in comparison.metrics.items():
        assert (each.first, each.second) == tuple(one.intervals[name].value for one in alone)
        assert each.difference.value == pytest.approx(each.first - each.second)
        if name.startswith("coverage"):
            assert each.difference.low is None
        else:
            assert each.difference.low <= each.difference.value + 1e-12
            assert each.difference.value <= each.difference.high + 1e-12
    told = json.loads(json.dumps(comparison.as_json()))
    assert told["protocol"] == protocol
    assert list(told["hr@3"]) == ["first", "second", "difference", "low", "high", "other_side"]


def test_a_run_does_not_differ_from_itself(rankings: list[RunFolder]) -> None:
    for each in compare(rankings[0], rankings[0]).metrics.values():
        assert each.difference.value == 0.0
        assert each.difference.low in (0.0, None)


def test_runs_with_other_questions_are_refused(
    rankings: list[RunFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_split = DataSplit.leave_one_out(tied_table(seed=1), protocols=True)
    third = finished_run(tmp_path / "third", data_split)
    load = cfuica.models.recommender.load
    monkeypatch.setattr(
        cfuica.models.recommender,
        "load",
        lambda path: ranker_of(data_split) if Path(path).name == "third" else load(path),
    )
    with pytest.raises(DataError, match="are not tested on the same"):
        compare(rankings[0], third)
    random = DataSplit.random(tied_table(), folds=5, fold=0, valid=0.0, seed=0)
    with pytest.raises(DataError, match="are not tested on the same"):
        compare(rankings[0], finished_run(tmp_path / "random", random))


@pytest.fixture(scope="module")
def ratings(tmp_path_factory: pytest.TempPathFactory) -> list[RunFolder]:
    """Two runs for ratings on the same split, one of which learned less."""
    home = tmp_path_factory.mktemp("ratings")
    data_split = DataSplit.random(small_table(), folds=10, fold=0, valid=0.05, seed=0)
    folders = []
    for name, steps in (("more", 20), ("less", 1)):
        folder = RunFolder.create(home / name)
        assert data_split.test is not None
        folder.write_test(data_split.test)
        folder.write_record({"status": "finished", "split": data_split.description})
        model = RatingModel(TINY.replaced(max_steps=steps)).fit(
            data_split.train, vocabulary=data_split.whole
        )
        model.save(folder.model)
        folders.append(folder)
    return folders


def test_ratings_are_compared_by_rmse_and_mae(ratings: list[RunFolder]) -> None:
    comparison = compare(*ratings)
    assert comparison.protocol is None
    assert list(comparison.metrics) == ["rmse", "mae"]
    scores = [cfuica.load(folder.path).evaluate(folder.read_test()) for folder in ratings]
    for name, each in comparison.metrics.items():
        assert each.first == pytest.approx(getattr(scores[0], name), rel=1e-5)
        assert each.second == pytest.approx(getattr(scores[1], name), rel=1e-5)
        assert each.difference.low < each.difference.value < each.difference.high
    errors = comparison.metrics["rmse"]
    assert errors.difference.high < 0
    assert errors.difference.other_side == 0.0
    assert comparison.users == ratings[0].read_test().users.size


def test_runs_that_predict_ratings_are_compared_by_their_rankings(
    ratings: list[RunFolder],
) -> None:
    comparison = compare(*ratings, protocol="full", cutoffs=(5,))
    assert (comparison.protocol, comparison.users) == ("random", ratings[0].read_test().users.size)
    for folder, value in zip(ratings, ("first", "second"), strict=True):
        alone = evaluate_model(folder, cfuica.load(folder.path), protocol="random", cutoffs=(5,))
        assert getattr(comparison.metrics["ndcg@5"], value) == alone["ndcg@5"].value


def test_ratings_need_the_same_test(
    ratings: list[RunFolder], rankings: list[RunFolder], tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match=r"is for the task rating and .* for ranking"):
        compare(ratings[0], rankings[0])
    other = RunFolder(Path(shutil.copytree(ratings[0].path, tmp_path / "copy")))
    other.write_test(other.read_test().take(np.arange(5)))
    with pytest.raises(DataError, match="are not tested on the same"):
        compare(ratings[0], other)


USERS = np.array([4, 7], np.int32)
RELEVANT = Csr.of_pairs([0, 1, 1], [2, 0, 3], 2)
OTHERS = np.array([[[5, 6], [5, -1]], [[1, 0], [6, 4]]], np.int32)


def test_ranking_tests_are_equal_where_all_of_them_is():
    asked = RankingTest.among("p", USERS, RELEVANT, OTHERS)
    again = RankingTest.among("p", USERS.copy(), RELEVANT, OTHERS.copy())
    assert same_test(asked, again)
    others = [
        RankingTest.among("q", USERS, RELEVANT, OTHERS),
        RankingTest.among("p", USERS + 1, RELEVANT, OTHERS),
        RankingTest.among("p", USERS, RELEVANT, OTHERS[:, :, ::-1]),
        RankingTest.among("p", USERS, RELEVANT, OTHERS[:1]),
        of_first_user(asked),
    ]
    seen = Csr.of_pairs([0], [1], 2)
    others += [
        RankingTest.among_unseen("p", USERS, RELEVANT, seen=done, catalogue_m=catalogue)
        for catalogue in (np.ones(8, np.bool_), np.arange(8) < 7)
        for done in (seen, Csr.of_pairs([1], [1], 2))
    ]
    assert not any(same_test(one, other) for one, other in combinations([asked, *others], 2))


def test_the_first_user_alone():
    asked = of_first_user(RankingTest.among("p", USERS, RELEVANT, OTHERS))
    assert asked.n_users == 1
    assert asked.relevant.indices.tolist() == [2]
    assert asked.candidates_duc is not None
    assert asked.candidates_duc.shape == (2, 1, 4)
