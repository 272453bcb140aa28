"""Any recommender is tested by the ranking metrics, on any table of interactions."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from cfuica.data.splits import Split
from cfuica.errors import DataError, SettingsError
from cfuica.models.co_autoregressive import RankingModel, RatingModel
from cfuica.models.recommender import Recommender
from tests.runs.small import TINY, small_table
from tests.test_testing import MODELS


def halves() -> tuple[pl.DataFrame, pl.DataFrame]:
    """What is trained on, and a tenth of all interactions, several of a user, to test on."""
    table = small_table()
    split = Split.random(table.n, folds=10, valid=0.0)
    return table.frame[split.train], table.frame[split.test]


@pytest.fixture(scope="module", params=MODELS)
def fitted(request: pytest.FixtureRequest) -> Recommender:
    """Look, do not touch."""
    return MODELS[request.param]().fit(halves()[0])


def by_hand(model: Recommender, test: pl.DataFrame, k: int, **options: Any) -> dict[str, float]:
    """Recall, HR and MRR of what `recommend` recommends."""
    users = test["user"].unique().to_list()
    top = model.recommend(users, k, min_support=0, **options)
    found = top.join(test, on=["user", "item"])
    relevant = (
        test.group_by("user")
        .len()
        .join(
            found.group_by("user").agg(hits=pl.len(), first=pl.col("rank").min()),
            on="user",
            how="left",
        )
    )
    return {
        f"recall@{k}": (relevant["hits"].fill_null(0) / relevant["len"]).mean(),
        f"hr@{k}": relevant["hits"].is_not_null().mean(),
        f"mrr@{k}": (1 / relevant["first"]).fill_null(0.0).mean(),
    }


def test_the_metrics_are_those_of_what_is_recommended(fitted: Recommender) -> None:
    test = halves()[1]
    if type(fitted).__name__ == "GlobalMean":  # all scores are equal, and ties count against it
        assert fitted.evaluate_ranking(test)["auc"].value == 0.0
        return
    found = fitted.evaluate_ranking(test, at=(10,))
    assert found.ranking_test.n_users == test["user"].n_unique()
    for name, value in by_hand(fitted, test, 10).items():
        # Ties count against a model, and `recommend` breaks them by id.
        assert found[name].value == pytest.approx(value, abs=0.03), name
    assert found["hr@10"].low <= found["hr@10"].value <= found["hr@10"].high


def test_a_rating_model_is_ranked_by_what_is_asked(fitted: Recommender) -> None:
    test = halves()[1]
    if not fitted.ranks_by:
        with pytest.raises(SettingsError, match="has one score; leave by out"):
            fitted.evaluate_ranking(test, by="expected")
        return
    found = {by: fitted.evaluate_ranking(test, by=by, at=(10,)) for by in ("expected", "blend")}
    assert found["expected"]["auc"] != found["blend"]["auc"]
    assert found["blend"]["auc"] == fitted.evaluate_ranking(test, at=(10,))["auc"]
    for by, each in found.items():
        assert each["mrr@10"].value == pytest.approx(by_hand(fitted, test, 10, by=by)["mrr@10"])


def test_evaluate_of_a_ranking_model_is_the_same() -> None:
    train, test = halves()
    model = MODELS["RankingModel"]().fit(train)
    found = model.evaluate(test.select("user", "item"), at=(3, 7))
    assert found.intervals == model.evaluate_ranking(test, at=(3, 7)).intervals
    assert found.cutoffs == (3, 7)
    assert {"hr@3", "ndcg@7", "coverage@3", "auc"} <= found.intervals.keys()
    assert found.as_json()["protocol"] == "given"
    baseline = MODELS["ItemPopularity"]().fit(train)
    assert baseline.evaluate(test).intervals == baseline.evaluate_ranking(test).intervals
    assert MODELS["ItemMean"]().fit(train).evaluate(test).named.keys() == {"RMSE", "MAE"}


def test_each_user_has_a_row(fitted: Recommender) -> None:
    test = halves()[1]
    found = fitted.evaluate_ranking(test, at=(5,))
    rows = found.per_user
    assert rows.columns[:3] == ["user", "n", "hr@5"]
    assert rows["user"].to_list() == sorted(test["user"].unique())
    counts = test.group_by("user").len().sort("user")["len"]
    assert rows["n"].to_list() == counts.to_list()
    for name in ("hr@5", "ndcg@5", "auc", "novelty@5"):
        assert rows[name].mean() == pytest.approx(found[name].value)


def test_cut_offs_are_lowered_to_the_catalogue(fitted: Recommender) -> None:
    found = fitted.evaluate_ranking(halves()[1], at=(5, 100, 10**12))
    assert found.cutoffs == (5, 60)
    assert found["recall@60"].value == 1.0
    assert found.notes == (
        "The catalogue has 60 items, so the cut-off 100, 1000000000000 is lowered to it.",
    )
    with pytest.raises(SettingsError, match="at least 1"):
        fitted.evaluate_ranking(halves()[1], at=(0,))


def test_unknown_users_are_served_and_unknown_items_rank_last(fitted: Recommender) -> None:
    test = pl.DataFrame({"user": [8001, 8002, 8002, 1], "item": [1, 9001, 9002, 9001]})
    found = fitted.evaluate_ranking(test, at=(20,))
    assert found.per_user["user"].to_list() == [1, 8001, 8002]
    ranks, candidates = found.result.ranks[0].ranks_t, found.result.ranks[0].candidates_u
    assert ranks[0] == candidates[0]
    assert ranks[2:].tolist() == [candidates[2] - 1, candidates[2]]
    assert found.per_user["hr@20"].to_list()[::2] == [0.0, 0.0]
    assert "2 of 3 test users and 2 test items are unknown to the model" in found.notes[0]
    with pytest.raises(DataError, match="unknown to this model"):
        fitted.evaluate_ranking(test, unknown="error")
    with pytest.raises(DataError, match="The item 9001 "):
        fitted.evaluate_ranking(test.filter(pl.col("user") == 1), unknown="error")


def test_what_is_known_already_tests_nothing(fitted: Recommender) -> None:
    with pytest.raises(DataError, match=r"has observed 2 of the 2 interactions of the test set"):
        fitted.evaluate_ranking(halves()[0].head(2))


@pytest.mark.parametrize("name", ["RatingModel", "RankingModel"])
def test_users_that_were_observed_are_tested_by_their_history(name: str) -> None:
    model: Any = MODELS[name]().fit(halves()[0])
    before = model.evaluate_ranking(pl.DataFrame({"user": [777], "item": [3]}), at=(1,))
    model.observe([(777, 1, 5.0), (777, 2, 1.0)])
    after = model.evaluate_ranking(pl.DataFrame({"user": [777], "item": [3]}), at=(1,))
    assert before.notes
    assert after.notes == ()
    assert (before.result.ranks[0].candidates_u, after.result.ranks[0].candidates_u) == (60, 58)


def test_warm_and_cold_users_and_items_have_metrics_of_their_own() -> None:
    train, test = halves()
    few = test["user"].unique().sort()[:3].to_list()
    train = train.filter(~pl.col("user").is_in(few))
    train = pl.concat([train, halves()[0].filter(pl.col("user") == few[2]).head(2)])
    cold_item = int(test["item"][0])
    train = train.filter(pl.col("item") != cold_item)
    model: Any = MODELS["RankingModel"]().fit(train, vocabulary=small_table())
    found = model.evaluate(test, at=(5,), cold=3)
    of_users, of_items = found.warm_and_cold["users"], found.warm_and_cold["items"]
    assert of_users["cold"]["n"] == 3
    rows = found.per_user.with_columns(cold=pl.col("user").is_in(few))
    for name, is_cold in (("warm", False), ("cold", True)):
        own = rows.filter(pl.col("cold") == is_cold)
        assert of_users[name]["ndcg@5"] == pytest.approx(own["ndcg@5"].mean())
    tested_cold = test.filter(pl.col("item") == cold_item)
    assert of_items["cold"]["n"] == tested_cold.height
    assert of_items["warm"]["n"] == test.height - tested_cold.height
    # Its one item ranks among what is left without the user's other test items.
    others = test.join(tested_cold, on="user", how="semi").filter(pl.col("item") != cold_item)
    scores = {user: dict(model.score(user, model.items.ids)["item", "score"].iter_rows())
              for user in tested_cold["user"]}  # fmt: skip
    hits = []
    for user, own in scores.items():
        known = halves()[0].filter(pl.col("user") == user)["item"].to_list()
        known += others.filter(pl.col("user") == user)["item"].to_list()
        above = [item for item in own if item not in known and own[item] >= own[cold_item]]
        hits.append(len(above) <= 5)
    assert of_items["cold"]["hr@5"] == pytest.approx(np.mean(hits))
    assert found.as_json()["warm_and_cold"]["items"] == of_items
    assert model.evaluate(test, cold=1).warm_and_cold["users"]["cold"]["n"] == 2
    assert "warm_and_cold" not in model.evaluate(test).as_json()
    with pytest.raises(SettingsError, match="cold is 0"):
        model.evaluate(test, cold=0)


def test_a_group_of_nobody_has_no_metrics() -> None:
    train, test = halves()
    found = MODELS["ItemMean"]().fit(train).evaluate_ranking(test, cold=1)
    assert found.warm_and_cold is not None
    assert found.warm_and_cold["users"]["cold"] == {"n": 0}
    assert found.warm_and_cold["items"]["cold"] == {"n": 0}


def test_extra_interactions_are_read_and_the_model_stays() -> None:
    train, _ = halves()
    model = RatingModel(TINY.replaced(max_steps=2)).fit(train, vocabulary=small_table())
    users = np.arange(5, dtype=np.int32)
    before = model.scorer().scores(users)
    extra = small_table().take(np.arange(40))
    told = model.scorer(extra).scores(users)
    assert np.array_equal(model.scorer().scores(users), before)
    model.observe(extra)
    assert np.array_equal(model.scorer().scores(users), told)
    assert not np.array_equal(told, before)
    # A baseline that reads no history scores as before.
    baseline = MODELS["ItemMean"]().fit(train, vocabulary=small_table())
    assert np.array_equal(baseline.scorer(extra).scores(users), baseline.scorer().scores(users))


def test_what_is_kept_of_a_ranking_model_is_its_own_scorer() -> None:
    model = MODELS["RankingModel"]().fit(halves()[0])
    assert isinstance(model, RankingModel)
    users = np.arange(5, dtype=np.int32)
    mine, all_of_it = model.scorer().scores(users), model._list_scorer(None).scores(users)
    assert np.array_equal(mine, all_of_it[:, : mine.shape[1]])
