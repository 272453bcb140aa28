"""Training of rankings that starts from factors of the interactions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cfuica.data.matrix import Timeline
from cfuica.errors import SettingsError
from cfuica.settings import RankingSettings, ranking_preset
from cfuica.sizing import DataSize
from cfuica.training.ranking_task import RankingTask
from cfuica.training.starting_factors import item_factors

N, M = 90, 40
SETTINGS = RankingSettings(
    hidden_users=4, hidden_items=12, start_from_factors=3, start_from_biases=True, ties="apart"
)


def two_tastes(seed: int = 0) -> Timeline:
    """Users of two tastes: each chooses mostly among the even items, or among the odd ones."""
    rng = np.random.default_rng(seed)
    popularity_m = 1.0 / (1.0 + np.arange(M))
    users, items = [], []
    for user in range(N):
        weight_m = popularity_m * np.where(np.arange(M) % 2 == user % 2, 1.0, 0.1)
        chosen = rng.choice(M, 6, replace=False, p=weight_m / weight_m.sum())
        users += [user] * len(chosen)
        items += chosen.tolist()
    return Timeline.of(
        np.array(users, np.int32), np.array(items, np.int32), None, n_users=N, n_items=M
    )


def test_they_are_the_singular_vectors_after_the_first_of_the_damped_matrix() -> None:
    timeline = two_tastes()
    dense_nm = np.zeros((N, M))
    np.add.at(dense_nm, (timeline.users, timeline.items), 1.0)
    counts_n, counts_m = dense_nm.sum(1) + 30.0, dense_nm.sum(0) + 30.0
    _, value_f, vector_fm = np.linalg.svd(dense_nm / np.sqrt(np.outer(counts_n, counts_m)))
    found_mf, share_f = item_factors(timeline, timeline.by_item(), 2, seed=0)
    expected_mf = vector_fm[1:3].T / np.sqrt(counts_m)[:, None] * np.sqrt(dense_nm.sum())
    signs = np.sign((found_mf * expected_mf).sum(0))
    assert found_mf[:, 0] * signs[0] == pytest.approx(expected_mf[:, 0], abs=0.02)
    # 1 + 2 + 8 columns: the last is taken as noise, about the eleventh of all singular values.
    assert share_f[0] == pytest.approx(1 - (value_f[10] / value_f[1]) ** 2, abs=0.05)
    assert 1 > share_f[0] > share_f[1] > 0


def test_a_network_that_starts_from_them_tells_the_tastes_apart_before_any_training() -> None:
    timeline = two_tastes()
    network = RankingTask.of(timeline, SETTINGS).new_network(0)
    items = network.items
    assert items is not None
    sums_nh = np.zeros((N, items.n_hidden), np.float32)
    np.add.at(sums_nh, timeline.users, items.W.rows[timeline.items])
    taste_nm = np.tanh(sums_nh) @ items.V.rows[:-1].T
    assert not items.W.rows[-1].any(), "the cold-start row starts from 0"
    of_parity = [taste_nm[0::2, p::2].mean() - taste_nm[1::2, p::2].mean() for p in (0, 1)]
    assert of_parity[0] > 0.05 > -0.05 > of_parity[1]
    plain = RankingTask.of(timeline, SETTINGS.replaced(start_from_factors=0)).new_network(0)
    assert plain.items is not None
    assert torch.equal(plain.items.W.values[:, :, 3:], items.W.values[:, :, 3:])


@pytest.mark.parametrize(("users", "items"), [(1, 1), (1, 5), (5, 1), (3, 3)])
def test_tiny_data_has_fewer_factors_and_finite_ones(users: int, items: int) -> None:
    pairs = np.array([(u, i) for u in range(users) for i in range(items)], np.int32)
    timeline = Timeline.of(pairs[:, 0], pairs[:, 1], None, n_users=users, n_items=items)
    network = RankingTask.of(timeline, SETTINGS).new_network(0)
    assert network.items is not None
    assert np.isfinite(network.items.W.array).all()
    assert np.isfinite(network.items.V.array).all()
    assert np.abs(network.items.V.array[:-1]).max(0).min() > 0, "a unit of zeros never learns"


UNSUITED = [
    ({"sides": "users"}, "sides=both"),
    ({"activation": "relu"}, "activation=tanh"),
    ({"learned_decay": True}, "learned_decay=false"),
    ({"hidden_items": 2}, "hidden_items=3"),
]


@pytest.mark.parametrize(("change", "needed"), UNSUITED)
def test_settings_that_cannot_start_from_them_are_refused(change: dict, needed: str) -> None:
    with pytest.raises(SettingsError, match=f"start_from_factors=3 needs {needed}; add that, or"):
        SETTINGS.replaced(**change)


def test_large_sparse_data_starts_from_them_unless_another_setting_that_is_given_forbids_it() -> (
    None
):
    shop, preset = DataSize(300_000, 300_000, 3_000_000), ranking_preset("default")
    assert preset.settled(shop).start_from_factors == 16
    assert preset.settled(DataSize(6040, 3706, 988_000)).start_from_factors == 0
    assert preset.replaced(sides="both").settled(shop).start_from_factors == 16
    for change, _ in UNSUITED:
        more = {"residual_units": 0} if change.get("sides") == "users" else {}
        settled = preset.replaced(**change, **more).settled(shop)
        assert settled.start_from_factors == 0
        assert settled.replaced(**change) == settled
