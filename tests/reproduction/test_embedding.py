"""V^I and the genres: which items, which vectors, and agreement against chance."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from cfuica.data.table import Interactions
from cfuica.errors import DataError, SettingsError
from cfuica.models.co_autoregressive import RatingModel
from cfuica.reproduction import embedding
from cfuica.reproduction.embedding import agreement, embed, item_vectors, one_genre_each
from tests.runs.small import TINY, small_table

GENRES = ("Drama", "Comedy")


@pytest.fixture(scope="module")
def model() -> RatingModel:
    """Items of none, one or both genres; the last has no rating in training."""
    table = Interactions(small_table().frame, source="test")
    items = table.item_ids.ids
    genres = [
        [["Drama"], ["Comedy"], ["Comedy", "Drama"], [], None][n % 5] for n in range(len(items))
    ]
    whole = table.with_items(pl.DataFrame({"item": items, "genres": genres}), source="test")
    frame = table.frame.filter(pl.col("item") != items[-5])
    settings = TINY.replaced(max_steps=4)
    return RatingModel(settings).fit(Interactions(frame, source="test"), vocabulary=whole)


def test_items_of_exactly_one_genre_with_training_ratings(model: RatingModel) -> None:
    index_n, is_second_n = one_genre_each(model.artifact, GENRES)
    n = model.artifact.items.size
    expected = [item for item in range(n) if item % 5 < 2 and item != n - 5]
    assert index_n.tolist() == expected
    assert is_second_n.tolist() == [item % 5 == 1 for item in expected]


def test_a_vector_has_the_columns_of_every_label(model: RatingModel) -> None:
    side = model.artifact.networks["warm"].sides["items"]
    vectors_nd = item_vectors(model.artifact)
    labels, units = side.V.array.shape[1:]
    assert vectors_nd.shape == (model.artifact.items.size, labels * units)
    assert np.array_equal(
        vectors_nd[3], np.concatenate([side.V.array[3, k] for k in range(labels)])
    )


def test_genres_that_are_not_there_are_refused(model: RatingModel) -> None:
    with pytest.raises(
        DataError, match="hardly any items of the genres Drama and War; give two of C"
    ):
        one_genre_each(model.artifact, ("Drama", "War"))
    plain = RatingModel(TINY.replaced(max_steps=4)).fit(small_table().frame)
    with pytest.raises(DataError, match="knows no genres of its items"):
        one_genre_each(plain.artifact, GENRES)


def test_agreement_is_one_of_two_clusters_and_chance_of_noise() -> None:
    rng = np.random.default_rng(0)
    is_second_n = np.arange(60) < 20
    noise_nd = rng.normal(size=(60, 8))
    found = agreement(noise_nd + 9 * is_second_n[:, None], is_second_n)
    assert found["agreement"] == found["low"] == 1
    # Of 20 and 40 of 60, a random other item has the same genre so often.
    chance = (20 * 19 + 40 * 39) / (60 * 59)
    assert found["chance"] == pytest.approx(chance, abs=0.01)
    assert found["chance_low"] < chance < found["chance_high"] < 1
    assert found["p"] < 0.01
    of_noise = agreement(noise_nd, is_second_n)
    assert of_noise["low"] < chance < of_noise["high"]
    assert of_noise["p"] > 0.05


def test_agreement_equals_a_plain_loop() -> None:
    rng = np.random.default_rng(1)
    vectors_nd, is_second_n = rng.normal(size=(25, 3)), rng.random(25) < 0.5
    shares = []
    for n, own in enumerate(vectors_nd):
        distance = np.linalg.norm(vectors_nd - own, axis=1)
        nearest = [other for other in np.argsort(distance) if other != n][:10]
        shares.append(np.mean(is_second_n[nearest] == is_second_n[n]))
    assert agreement(vectors_nd, is_second_n)["agreement"] == pytest.approx(np.mean(shares))


def test_the_module_answers_in_json(model: RatingModel, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    model.save(tmp_path / "model")
    words = [sys.executable, "-m", "cfuica.reproduction.embedding", str(tmp_path / "model")]
    done = subprocess.run([*words, "--genres", "Drama,Comedy"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    _, is_second_n = one_genre_each(model.artifact, GENRES)
    assert [len(found["points"][genre]) for genre in GENRES] == [
        (~is_second_n).sum(),
        is_second_n.sum(),
    ]
    assert np.isfinite([point for own in found["points"].values() for point in own]).all()


def test_without_scikit_learn_one_sentence_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    with pytest.raises(SettingsError, match=r"needs the extra reproduce .*'cfuica\[reproduce\]'"):
        embed(Path("run"))


def test_an_error_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fails(*_: Any) -> None:
        raise DataError("There is nothing.")

    monkeypatch.setattr(embedding, "embed", fails)
    monkeypatch.setattr(sys, "argv", ["embedding", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        embedding.main()
    assert ended.value.code == "cfuica: There is nothing."
