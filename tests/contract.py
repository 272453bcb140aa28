"""What every system of a kind must hold to, whatever it learns.

A test class inherits a contract, names what it makes, and gets all of its tests:

    class TestItemMean(RatingBaselineContract):
        def make(self) -> RatingBaseline:
            return ItemMean()

What every recommender must hold to is `cfuica.testing`, and `tests/test_testing.py` runs it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl
import pytest
from numpy.typing import ArrayLike
from safetensors.numpy import load_file, save_file

import cfuica
from cfuica.baselines import Baseline, RatingBaseline
from cfuica.baselines.iterative import Iterative
from cfuica.errors import CfuicaError, DataError, ModelFileError
from cfuica.io import MANIFEST, sha256_of_file

N_USERS, N_ITEMS = 40, 30
UNSEEN_USER, UNSEEN_ITEM = N_USERS - 1, N_ITEMS - 1
B = TypeVar("B", bound=Baseline)


def small_world(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Users, items and ratings 1 to 5 of distinct pairs; the last user and item have none."""
    rng = np.random.default_rng(seed)
    pairs = rng.choice((N_USERS - 1) * (N_ITEMS - 1), size=400, replace=False)
    users_p, items_p = np.divmod(pairs, N_ITEMS - 1)
    taste_u, quality_i = rng.normal(0, 0.6, N_USERS), rng.normal(0, 0.8, N_ITEMS)
    noise_p = rng.normal(0, 0.5, len(pairs))
    ratings_p = np.clip(np.round(3.4 + taste_u[users_p] + quality_i[items_p] + noise_p), 1, 5)
    return users_p, items_p, ratings_p


def frame(users: ArrayLike, items: ArrayLike, ratings: ArrayLike | None = None) -> pl.DataFrame:
    """A frame to fit to, or of pairs."""
    columns = {"user": np.asarray(users, np.int64), "item": np.asarray(items, np.int64)}
    if ratings is not None:
        columns["rating"] = np.asarray(ratings, np.float64)
    return pl.DataFrame(columns)


# Every id, so that it is an index too.
ALL_USERS, ALL_ITEMS = (grid.ravel() for grid in np.indices((N_USERS, N_ITEMS)))
VOCABULARY = frame(ALL_USERS, ALL_ITEMS)


def fitted(baseline: B, seed: int = 0) -> B:
    """Fitted to the small world, all of whose ids it knows."""
    return baseline.fit(frame(*small_world(seed)), vocabulary=VOCABULARY)


def predicted(baseline: RatingBaseline, users: ArrayLike, items: ArrayLike) -> np.ndarray:
    return baseline.predict(frame(users, items))["prediction"].to_numpy()


class BaselineContract:
    """Tests for anything that is a :class:`cfuica.baselines.Baseline`."""

    def make(self) -> Any:
        raise NotImplementedError

    def fitted(self) -> Any:
        return fitted(self.make())

    def test_has_a_name_for_tables(self) -> None:
        assert self.make().name

    def test_using_it_before_fitting_is_explained(self) -> None:
        with pytest.raises(CfuicaError, match=r"not fitted yet: call fit\(table\)"):
            self.make().recommend([0])

    def test_what_only_training_needs_is_not_kept(self, tmp_path: Path) -> None:
        model = self.fitted()
        loaded = cfuica.load(model.save(tmp_path / "model"))
        # How it went, and what is read from the interactions when first asked for.
        known = {"trained", "rate", "sweeps_", "scale", "_ratings", "_encoded"}
        assert set(vars(model)) - set(vars(loaded)) <= known

    def test_ids_outside_of_the_vocabulary_are_refused(self) -> None:
        with pytest.raises(DataError, match="have an unknown user, the first one 77"):
            self.make().fit(frame([77], [0], [3.0]), vocabulary=VOCABULARY)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda arrays: arrays.popitem(), "expected"),
            (lambda arrays: arrays.update(more=np.zeros(3)), "expected"),
            (lambda arrays: _spoil(arrays, np.nan), "finite"),
            (lambda arrays: _spoil(arrays, None), "finite"),
        ],
    )
    def test_damaged_arrays_are_refused(self, tmp_path: Path, change: Any, message: str) -> None:
        folder = self.fitted().save(tmp_path / "model")
        arrays = load_file(folder / "model.safetensors")
        change(arrays)
        save_file(arrays, folder / "model.safetensors")
        _reseal(folder)
        with pytest.raises(ModelFileError, match=message):
            cfuica.load(folder)

    def test_damaged_settings_ratings_and_cards_are_refused(self, tmp_path: Path) -> None:
        whole = self.fitted().save(tmp_path / "model")
        card = json.loads((whole / "model.json").read_text())
        ratings = pl.read_parquet(whole / "interactions.parquet")
        for name, content in {
            "model.json": {**card, "settings": {"colour": "red"}},
            "interactions.parquet": ratings.with_columns(
                pl.lit(float("inf")).alias(ratings.columns[-1])
            ),
            "users.parquet": ratings.select("user").unique().sort("user").head(3),
        }.items():
            folder = self.fitted().save(tmp_path / "changed")
            if isinstance(content, dict):
                (folder / name).write_text(json.dumps(content))
            else:
                content.write_parquet(folder / name)
            with pytest.raises(ModelFileError, match="has changed"):
                cfuica.load(folder)
            _reseal(folder)
            with pytest.raises(ModelFileError, match="damaged"):
                cfuica.load(folder)


class RatingBaselineContract(BaselineContract):
    """Tests for anything that is a :class:`cfuica.baselines.RatingBaseline`."""

    def test_predicts_a_finite_float64_for_every_pair_inside_the_scale(self) -> None:
        predictions_p = predicted(self.fitted(), ALL_USERS, ALL_ITEMS)
        assert predictions_p.dtype == np.float64
        assert predictions_p.shape == ALL_USERS.shape
        assert np.isfinite(predictions_p).all()
        assert predictions_p.min() >= 1.0
        assert predictions_p.max() <= 5.0

    def test_a_pair_of_cold_start_gets_about_the_mean(self) -> None:
        _, _, ratings_p = small_world()
        prediction = predicted(self.fitted(), [UNSEEN_USER, 900], [UNSEEN_ITEM, 901])
        assert prediction[0] == pytest.approx(ratings_p.mean(), abs=0.3)
        assert prediction[0] == prediction[1], "without ratings and unknown are the same"

    def test_is_deterministic(self) -> None:
        users_p, items_p, _ = small_world(seed=1)
        first, second = (predicted(self.fitted(), users_p, items_p) for _ in range(2))
        np.testing.assert_array_equal(first, second)

    def test_the_order_of_the_ratings_does_not_matter(self) -> None:
        users_p, items_p, ratings_p = small_world()
        order = np.random.default_rng(2).permutation(len(users_p))
        shuffled = self.make().fit(
            frame(users_p[order], items_p[order], ratings_p[order]), vocabulary=VOCABULARY
        )
        np.testing.assert_array_equal(
            predicted(shuffled, users_p, items_p), predicted(self.fitted(), users_p, items_p)
        )

    def test_fitting_again_forgets_what_was_learned_before(self) -> None:
        users_p, items_p, ratings_p = small_world()
        again = self.make().fit(frame(users_p, items_p, 6 - ratings_p))
        fitted(again)
        np.testing.assert_array_equal(
            predicted(again, users_p, items_p), predicted(self.fitted(), users_p, items_p)
        )

    def test_it_reads_what_others_are_validated_on(self) -> None:
        """In closed form it learns from both; in epochs it has both as histories."""
        users_p, items_p, ratings_p = small_world()
        first, second = (
            frame(users_p[rows], items_p[rows], ratings_p[rows])
            for rows in (slice(0, 300), slice(300, None))
        )
        both = self.make().fit(first, valid=second, vocabulary=VOCABULARY)
        assert both.trained.last.valid.measure == "RMSE"
        np.testing.assert_array_equal(both.seen.indices, self.fitted().seen.indices)
        if not isinstance(both, Iterative):
            np.testing.assert_array_equal(
                predicted(both, users_p, items_p), predicted(self.fitted(), users_p, items_p)
            )

    def test_one_rating_is_enough(self) -> None:
        baseline = self.make().fit(frame([0], [0], [4.0]))
        np.testing.assert_allclose(predicted(baseline, [0, 1], [0, 1]), 4.0)

    def test_is_ranked_by_what_is_predicted(self) -> None:
        baseline = self.fitted()
        top = baseline.recommend([3], N_ITEMS, exclude_seen=False)
        assert top.height == N_ITEMS - 1, "one item has no ratings"
        expected = baseline.predict(top.select("user", "item"))["prediction"].cast(pl.Float32)
        assert top["score"].cast(pl.Float32).equals(expected, check_names=False)


class RankingBaselineContract(BaselineContract):
    """Tests for anything that is a :class:`cfuica.baselines.RankingBaseline`."""

    def test_scores_are_finite_and_do_not_depend_on_the_other_users(self) -> None:
        scorer = self.fitted().scorer()
        users_u = np.arange(N_USERS, dtype=np.int32)
        scores_um = scorer.scores(users_u)
        assert scores_um.shape == (N_USERS, N_ITEMS)
        assert scores_um.dtype == np.float32
        assert np.isfinite(scores_um).all()
        for user in (0, 7, UNSEEN_USER):
            np.testing.assert_array_equal(scorer.scores(users_u[[user]])[0], scores_um[user])

    def test_an_unknown_item_does_not_outrank_a_known_one(self) -> None:
        baseline = self.fitted()
        for user in (*range(N_USERS), 900):
            *known, unknown = baseline.score(user, [*range(N_ITEMS), 901])["score"]
            assert unknown == min(known)

    def test_neither_ratings_nor_the_order_of_the_rows_matter(self) -> None:
        users_p, items_p, _ = small_world()
        pairs = frame(users_p[::-1], items_p[::-1])
        users_u = np.arange(N_USERS, dtype=np.int32)
        unrated = self.make().fit(pairs, vocabulary=VOCABULARY)
        np.testing.assert_array_equal(
            unrated.scorer().scores(users_u), self.fitted().scorer().scores(users_u)
        )

    def test_what_it_is_validated_on_is_seen(self) -> None:
        users_p, items_p, _ = small_world()
        train, valid = frame(users_p[:300], items_p[:300]), frame(users_p[300:], items_p[300:])
        baseline = self.make().fit(train, valid=valid, vocabulary=VOCABULARY)
        assert baseline.trained.last.valid.measure == "NDCG@10"
        np.testing.assert_array_equal(baseline.seen.offsets, self.fitted().seen.offsets)
        np.testing.assert_array_equal(baseline.seen.indices, self.fitted().seen.indices)


def _spoil(arrays: dict[str, np.ndarray], value: float | None) -> None:
    """One number replaced, or all of them whole numbers."""
    for name, array in arrays.items():
        if value is None:
            arrays[name] = array.astype(np.int64)
        else:
            array[...] = value


def _reseal(folder: Path) -> None:
    files = (path for path in folder.iterdir() if path.name != MANIFEST)
    hashes = {path.name: sha256_of_file(path) for path in files}
    (folder / MANIFEST).write_text(json.dumps(hashes))
