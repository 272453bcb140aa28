"""The vectors that similar users and items are compared by."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cfuica.errors import CfuicaError, DataError
from cfuica.models.recommender import Recommender
from cfuica.models.vector_export import check_vectors, export_vectors
from cfuica.settings import ranking_preset
from tests.runs.small import TINY, small_table
from tests.test_testing import MODELS

COMPARE: dict[str, Callable[[], Recommender]] = {
    **{name: MODELS[name] for name in ("RatingModel", "RankingModel", "BiasedFactorisation")},
    "one side": lambda: type(MODELS["RatingModel"]())(TINY.replaced(sides="users")),
    "ranking of one side": lambda: type(MODELS["RankingModel"]())(
        ranking_preset("default").replaced(
            ensemble_size=1, hidden_items=8, residual_units=0, epochs=1, sides="items"
        )
    ),
}


@pytest.fixture(scope="module", params=COMPARE)
def fitted(request: pytest.FixtureRequest) -> Recommender:
    """Knows a user and an item without interactions; look, do not touch."""
    frame = small_table().frame
    more = pl.concat(
        [frame, frame.head(1).with_columns(user=pl.lit(900, pl.Int64), item=pl.lit(800, pl.Int64))]
    )
    return COMPARE[request.param]().fit(frame, vocabulary=more)


@pytest.mark.parametrize("axis", ["item", "user"])
def test_their_cosine_less_their_mean_is_the_score(fitted: Recommender, axis: str) -> None:
    vectors = getattr(fitted, f"{axis}_vectors")()
    assert vectors.columns == [axis, "vector"]
    assert vectors.schema["vector"].inner == pl.Float32
    ids = (fitted.items if axis == "item" else fitted.users).ids
    assert vectors[axis].to_list() == ids.to_list()
    there = vectors.drop_nulls()
    centred = there["vector"].to_numpy().astype(np.float64)
    centred -= centred.mean(0)
    centred /= np.linalg.norm(centred, axis=1, keepdims=True)
    place = {one: at for at, one in enumerate(there[axis])}
    queries = there[axis][[0, 7, 20]]
    top = getattr(fitted, f"similar_{axis}s")(queries, 5, min_support=1)
    assert top.height == 15
    for one, other, score in top.select(axis, "similar", "score").iter_rows():
        assert centred[place[one]] @ centred[place[other]] == pytest.approx(score, abs=1e-5)


def test_some_can_be_had_by_name(fitted: Recommender) -> None:
    everything = dict(fitted.item_vectors().iter_rows())
    some = fitted.item_vectors([9, 2])
    assert some["item"].to_list() == [9, 2]
    assert some["vector"].to_list() == [everything[9], everything[2]]
    with pytest.raises(DataError, match=r"The item 'x' .* unknown to this model"):
        fitted.item_vectors(["x"])
    assert fitted.item_vectors([12345], unknown="serve")["vector"].to_list() == [None]


def test_nothing_is_known_of_an_item_without_interactions() -> None:
    frame = small_table().frame
    more = pl.concat(
        [frame, frame.head(1).with_columns(user=pl.lit(900, pl.Int64), item=pl.lit(800, pl.Int64))]
    )
    model = COMPARE["RatingModel"]().fit(frame, vocabulary=more)
    assert model.item_vectors([800])["vector"].to_list() == [None]
    model.observe([(1, 800, 4.0), (901, 801, 2.0)])
    known = model.item_vectors()
    assert known["item"].to_list()[-2:] == [800, 801]
    assert known["vector"].null_count() == 0


def test_what_compares_by_no_vectors_says_so() -> None:
    neighbours = MODELS["ItemNeighbours"]().fit(small_table())
    with pytest.raises(CfuicaError, match="ItemNeighbours cannot give vectors of items: it comp"):
        neighbours.item_vectors()
    with pytest.raises(CfuicaError, match="ItemNeighbours cannot compare users"):
        neighbours.user_vectors()
    with pytest.raises(CfuicaError, match="ItemMean cannot compare items"):
        MODELS["ItemMean"]().fit(small_table()).item_vectors()


def test_the_inner_product_of_score_vectors_is_the_score(tmp_path: Path) -> None:
    model = MODELS["RankingModel"]().fit(small_table())
    model.observe([(901, 801), (1, 801)])
    model.retire([2])
    users, items = model.score_vectors()
    assert users["user"].to_list() == [*model.users.ids, 901]
    assert items["item"].to_list() == [one for one in (*model.items.ids, 801) if one != 2]
    scores = users["vector"].to_numpy() @ items["vector"].to_numpy().T
    place = {item: at for at, item in enumerate(items["item"])}
    for row in (0, 20, users.height - 1):
        top = model.recommend(users["user"][row], 10)
        found = scores[row, [place[item] for item in top["item"]]]
        np.testing.assert_allclose(found, top["score"], atol=1e-5)
    assert export_vectors(model, tmp_path / "vectors") == users.height
    assert pl.read_parquet(tmp_path / "vectors" / "users.parquet").equals(users)


def test_vectors_that_rank_otherwise_are_noticed() -> None:
    model = MODELS["RankingModel"]().fit(small_table())
    users, items = model.score_vectors()
    with pytest.raises(CfuicaError, match="The vectors rank other items for user"):
        check_vectors(model, users, items.with_columns(pl.col("vector").shuffle(0)))


@pytest.mark.parametrize("name", ["RatingModel", "ItemMean"])
def test_an_expected_rating_is_no_inner_product(name: str) -> None:
    with pytest.raises(CfuicaError, match=f"{name} cannot give vectors .* no inner product"):
        MODELS[name]().fit(small_table()).score_vectors()
