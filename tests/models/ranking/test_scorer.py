"""What an evaluation is given: all scores given what is known, and more beside it."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch

from cfuica.data.table import Interactions
from cfuica.errors import DataError
from cfuica.evaluation.protocols import RunVocabulary
from cfuica.model.network import Ranker
from cfuica.models.co_autoregressive import RankingModel
from cfuica.ops.tables import Bags
from cfuica.training.orderings import whole_histories
from tests.models.ranking.cyclic import fitted, rows


@pytest.mark.parametrize("changes", [{}, {"sides": "items"}])
def test_it_scores_as_training_validates(changes: dict[str, object]) -> None:
    model = fitted(**changes)
    warm, users = model.artifact, np.arange(60, dtype=np.int32)
    network, timeline = warm.networks["warm"], warm.interactions
    histories = whole_histories(timeline, users)
    by_item = timeline.by_item()
    with torch.no_grad():
        positions = histories.last_positions
        hidden = network.encode(
            {"items": histories, "users": Bags(by_item.offsets, by_item.indices)}
        )
    validated = Ranker(
        network.user_vectors(users, hidden["items"][positions]),
        network.item_vectors(np.arange(20), hidden.get("users")),
        network.item_bias(np.arange(20)),
    )
    scores = model.scorer().scores(users)
    np.testing.assert_allclose(scores, validated.scores(users), rtol=1e-4, atol=1e-4)
    candidates = np.random.default_rng(0).integers(0, 20, (60, 7)).astype(np.int32)
    np.testing.assert_allclose(
        model.scorer().candidate_scores(users, candidates),
        np.take_along_axis(scores, candidates, 1),
        rtol=1e-5,
        atol=1e-5,
    )


@pytest.mark.parametrize("timed", [True, False])
def test_extra_is_what_observing_it_would_do_but_changes_nothing(
    live: RankingModel, timed: bool
) -> None:
    before = live.scorer().scores(np.arange(60))
    done = rows()
    extra = done.group_by("user", maintain_order=True).tail(1)
    extra = extra.with_columns((pl.col("item") + 1) % 20, pl.col("timestamp") - 25)
    if not timed:
        extra = extra.drop("timestamp")
    table = Interactions(extra)
    told = live.scorer(table).scores(np.arange(60))
    np.testing.assert_array_equal(live.scorer().scores(np.arange(60)), before)
    live.observe(table)
    np.testing.assert_array_equal(live.scorer().scores(np.arange(60)), told)
    assert not np.array_equal(told, before)


def test_extra_of_somebody_unknown_is_refused(model: RankingModel) -> None:
    with pytest.raises(DataError, match="unknown user, the first one 99"):
        model.scorer(Interactions.from_frame({"user": [99], "item": [1]}))


def test_an_evaluation_finds_what_it_looks_for(model: RankingModel) -> None:
    warm = RunVocabulary.of_model(model)
    assert warm.users.ids.to_list() == list(range(60))
    assert warm.items.size == 20
    row = warm.seen.take(np.array([3])).indices
    assert sorted(row.tolist()) == sorted(rows().filter(user=3)["item"].to_list())
