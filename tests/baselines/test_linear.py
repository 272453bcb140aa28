from __future__ import annotations

import numpy as np
import pytest

from cfuica.baselines import Ease
from cfuica.errors import SettingsError
from tests.contract import N_ITEMS, N_USERS, VOCABULARY, frame, small_world

L2 = 3.0


def test_each_item_is_the_ridge_regression_on_all_others() -> None:
    users_p, items_p, _ = small_world()
    baseline = Ease(l2=L2).fit(frame(users_p, items_p), vocabulary=VOCABULARY)
    had_ui = np.zeros((N_USERS, N_ITEMS))
    had_ui[users_p, items_p] = 1
    for item in range(N_ITEMS):
        others_ui = np.delete(had_ui, item, axis=1)
        ridge = others_ui.T @ others_ui + L2 * np.eye(N_ITEMS - 1)
        expected = np.linalg.solve(ridge, others_ui.T @ had_ui[:, item])
        weight_i = baseline.weight_ij_[:N_ITEMS, item]
        np.testing.assert_allclose(np.delete(weight_i, item), expected, atol=1e-5)
        assert weight_i[item] == 0
    scores = baseline.score(3, range(N_ITEMS))["score"].to_numpy()
    np.testing.assert_allclose(scores, had_ui[3] @ baseline.weight_ij_[:N_ITEMS, :N_ITEMS], 1e-4)


def test_without_a_penalty_there_is_no_answer() -> None:
    with pytest.raises(SettingsError, match="Setting l2 = 0 is not usable"):
        Ease(l2=0)
