"""The contract of recommenders: all models hold to it, a broken one fails the check made for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import polars as pl
import pytest

from cfuica import testing
from cfuica.baselines import (
    BiasedFactorisation,
    BprFactorisation,
    Cdae,
    Ease,
    ElementwiseFactorisation,
    GlobalMean,
    ImplicitFactorisation,
    ItemAutoRec,
    ItemCfNade,
    ItemCosine,
    ItemMean,
    ItemNeighbours,
    ItemPopularity,
    ItemRbm,
    LlormaGlobal,
    LlormaLocal,
    NeuMf,
    NeuralFactorisation,
    ProbabilisticFactorisation,
    UserAutoRec,
    UserCfNade,
    UserItemBias,
    UserRbm,
)
from cfuica.models.co_autoregressive import RankingModel, RatingModel
from cfuica.models.recommender import Recommender
from cfuica.settings import ranking_preset
from tests.runs.small import TINY, small_table

MODELS: dict[str, Callable[[], Recommender]] = {
    "RatingModel": lambda: RatingModel(TINY.replaced(cold_start_units=4)),
    "RankingModel": lambda: RankingModel(
        ranking_preset("default").replaced(
            ensemble_size=1, hidden_users=4, hidden_items=8, residual_units=0, epochs=1
        )
    ),
    "GlobalMean": GlobalMean,
    "ItemMean": ItemMean,
    "UserItemBias": UserItemBias,
    "BiasedFactorisation": lambda: BiasedFactorisation(factors=3, epochs=2),
    "ProbabilisticFactorisation": lambda: ProbabilisticFactorisation(factors=3, epochs=2),
    "ItemNeighbours": ItemNeighbours,
    "UserCfNade": lambda: UserCfNade(hidden=4, epochs=2),
    "ItemCfNade": lambda: ItemCfNade(hidden=4, epochs=2),
    "LlormaLocal": lambda: LlormaLocal(anchors=3, factors=3, base_epochs=3, epochs=2),
    "LlormaGlobal": lambda: LlormaGlobal(anchors=3, factors=3, base_epochs=3, epochs=2),
    "ItemPopularity": ItemPopularity,
    "ItemCosine": ItemCosine,
    "Ease": lambda: Ease(l2=10),
    "BprFactorisation": lambda: BprFactorisation(factors=4, epochs=2),
    "ElementwiseFactorisation": lambda: ElementwiseFactorisation(factors=4, epochs=2),
    "ImplicitFactorisation": lambda: ImplicitFactorisation(factors=4, epochs=2),
    "UserRbm": lambda: UserRbm(hidden_units=3, epochs=2),
    "ItemRbm": lambda: ItemRbm(hidden_units=3, epochs=2),
    "UserAutoRec": lambda: UserAutoRec(hidden_units=3, l2=0.1, epochs=1),
    "ItemAutoRec": lambda: ItemAutoRec(hidden_units=3, l2=0.1, epochs=1),
    "Cdae": lambda: Cdae(hidden_units=3, epochs=2),
    "NeuralFactorisation": lambda: NeuralFactorisation(hidden=4, epochs=2),
    "NeuMf": lambda: NeuMf(factors=4, mlp_factors=4, epochs=2),
}


@pytest.fixture(scope="module")
def texts() -> pl.DataFrame:
    """Text ids, whose order is not that of numbers."""
    frame = small_table().frame.filter(pl.col("user") <= 40)
    return frame.with_columns(pl.format("u{}", "user").alias("user"))


@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", MODELS)
def test_every_model_holds_to_the_contract(name: str, check: Any, texts: pl.DataFrame) -> None:
    check(MODELS[name], texts)


class SeenAgain(ItemMean):
    def recommend(self, *arguments: Any, **options: Any) -> Any:
        return super().recommend(*arguments, **{**options, "exclude_seen": False})


class WorstFirst(ItemMean):
    def recommend(self, *arguments: Any, **options: Any) -> Any:
        top = super().recommend(*arguments, **options)
        return top.sort("user", "rank", descending=[False, True], maintain_order=True).with_columns(
            rank=top.sort("user", maintain_order=True)["rank"]
        )


class AlwaysTen(ItemMean):
    def recommend(self, users: Any = None, n: int = 10, **options: Any) -> Any:
        return super().recommend(users, 10, **options)


class OtherIds(ItemMean):
    loaded = False

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        model = super().load(folder)
        model.loaded = True
        return model

    def recommend(self, *arguments: Any, **options: Any) -> Any:
        top = super().recommend(*arguments, **options)
        return top.with_columns(pl.col("item").cast(pl.String)) if self.loaded else top


class Moody(ItemMean):
    calls = 0

    def recommend(self, *arguments: Any, **options: Any) -> Any:
        self.calls += 1
        if self.calls % 2 == 0 and "exclude" not in options:
            options["exclude"] = [super().recommend([arguments[0][0]], 1)["item"][0]]
        return super().recommend(*arguments, **options)


class NoSelf(ItemMean):
    def fit(self, *arguments: Any, **options: Any) -> Any:
        super().fit(*arguments, **options)


@pytest.mark.parametrize(
    ("broken", "made_for_it", "message"),
    [
        (SeenAgain, testing.seen_items_are_left_out, "which the user has seen"),
        (WorstFirst, testing.the_best_comes_first, "ascend"),
        (AlwaysTen, testing.n_is_honoured, "got 10 items, n was 1"),
        (OtherIds, testing.a_saved_model_is_the_same, "Saving changed the columns"),
        (Moody, testing.equal_calls_give_equal_answers, "different answers"),
        (NoSelf, testing.fit_returns_self, "fit returned None; it has to return self"),
    ],
)
def test_a_broken_model_fails_the_check_made_for_it_and_no_other(
    broken: type[Recommender], made_for_it: Any, message: str, texts: pl.DataFrame
) -> None:
    for check in testing.CHECKS:
        if check is made_for_it:
            with pytest.raises(AssertionError, match=message):
                check(broken, texts)
        else:
            check(broken, texts)
    with pytest.raises(AssertionError, match=message):
        testing.check_recommender(broken, texts)


def test_a_flag_that_is_not_true_is_noticed(texts: pl.DataFrame) -> None:
    class Boasting(ItemMean):
        explains = True

    class Modest(ItemNeighbours):
        finds_similar = ()

        def similar_items(self, *arguments: Any, **options: Any) -> Any:
            return None

    with pytest.raises(AssertionError, match="explains is announced, but was refused: Boasting"):
        testing.flags_tell_the_truth(Boasting, texts)
    with pytest.raises(AssertionError, match="similar items is not announced, but"):
        testing.flags_tell_the_truth(Modest, texts)
