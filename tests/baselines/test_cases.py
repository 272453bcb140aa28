"""What users and items as cases have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cfuica.baselines import ItemAutoRec, ItemRbm, UserAutoRec, UserRbm
from cfuica.baselines.cases import minibatches
from cfuica.baselines.contract import TrainingData
from cfuica.data.table import Interactions
from cfuica.metrics.rating_metrics import rmse
from tests.contract import N_ITEMS, N_USERS, UNSEEN_ITEM, VOCABULARY, frame, predicted, small_world

AUTOREC: dict[str, Any] = {"hidden_units": 3, "epochs": 2, "iterations": 5, "optimizer": "lbfgs"}
RBM: dict[str, Any] = {"hidden_units": 3, "epochs": 2, "batch_size": 7, "l2": 0.1}


@pytest.mark.parametrize(
    ("of_users", "of_items", "settings"),
    [(UserAutoRec, ItemAutoRec, AUTOREC), (UserRbm, ItemRbm, RBM)],
)
def test_the_one_of_items_is_the_one_of_users_with_the_sides_exchanged(
    of_users: Any, of_items: Any, settings: dict[str, Any]
) -> None:
    users_p, items_p, ratings_p = small_world()
    one = of_users(**settings).fit(frame(users_p, items_p, ratings_p))
    other = of_items(**settings).fit(frame(items_p, users_p, ratings_p))
    np.testing.assert_array_equal(
        predicted(one, users_p, items_p), predicted(other, items_p, users_p)
    )


@pytest.mark.parametrize("make", [lambda: ItemAutoRec(**AUTOREC), lambda: ItemRbm(**RBM)])
def test_another_rating_of_an_item_changes_its_predictions_and_no_others(make: Any) -> None:
    """Without learning again: histories are read when they are asked for."""
    model = make().fit(frame(*small_world()), vocabulary=VOCABULARY)
    before = model.scorer().scores(np.arange(N_USERS, dtype=np.int32))
    item = 4
    user = np.setdiff1d(np.arange(N_USERS), model.seen.row_of_entry()[model.seen.indices == item])
    extra = Interactions.from_frame(frame(user[:1], [item], [5.0]))
    after = model.scorer(extra).scores(np.arange(N_USERS, dtype=np.int32))
    changed = set(np.flatnonzero((after != before).any(0)))
    assert changed - {UNSEEN_ITEM} == {item}, "an item without ratings has the mean of all"


@pytest.mark.parametrize("make", [lambda: ItemAutoRec(**AUTOREC), lambda: ItemRbm(**RBM)])
def test_every_validation_reads_the_hidden_units_of_its_epoch(make: Any) -> None:
    users_p, items_p, ratings_p = small_world()
    train, valid = (
        frame(users_p[part], items_p[part], ratings_p[part])
        for part in (slice(300), slice(300, None))
    )
    validated = make().fit(train, valid=valid, vocabulary=VOCABULARY).trained.history
    after = predicted(make().fit(train, vocabulary=VOCABULARY), users_p[300:], items_p[300:])
    assert validated[-1].valid.value == pytest.approx(rmse(after, ratings_p[300:]))


def test_minibatches_have_every_rating_once_with_its_case() -> None:
    users_p, items_p, ratings_p = small_world()
    data = TrainingData.of(frame(users_p, items_p, ratings_p), N_USERS + 1, N_ITEMS + 1)
    seen, sizes = [], []
    for cases_b, numbers_p, rows_p in minibatches(data, 7, np.random.default_rng(0)):
        np.testing.assert_array_equal(cases_b[rows_p], data.users_p[numbers_p])
        seen.extend(numbers_p)
        sizes.append(len(cases_b))
    assert sorted(seen) == [*range(len(users_p))]
    assert max(sizes) <= 7
    assert sum(sizes) == len(np.unique(users_p))
