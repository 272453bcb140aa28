"""Users and items that share rows of W and V, and the clusters that decide who does."""

from __future__ import annotations

import builtins

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.data.matrix import InteractionMatrix
from cfuica.errors import SettingsError
from cfuica.model.network import Network
from cfuica.model.shared_rows import Centroids, SharedRows
from cfuica.models.co_autoregressive import RatingModel
from cfuica.settings import RatingSettings
from cfuica.training.alternating_least_squares import factorise
from cfuica.training.batches import ColdStartMasking, cut_block
from cfuica.training.checkpoint import Checkpointer, TrainingInterrupted
from cfuica.training.clusters import rows_with, shared_rows
from cfuica.training.trainer import Callback
from tests.model.reference import matrix_of, random_cells
from tests.training.cases import Fixed, gradients_of, rating_loss_of

N_USERS, N_ITEMS, N_LABELS = 7, 6, 3
STARS = np.array([1.0, 2.0, 3.0])
SIZES = {"users": N_USERS, "items": N_ITEMS}


@st.composite
def sharing(draw, n: int) -> SharedRows | None:
    """Nobody shares, some share one row, or some share those of clusters."""
    members = np.array(sorted(draw(st.sets(st.integers(0, n - 1)))), np.int64)
    if not len(members):
        return None
    if draw(st.booleans()):
        return rows_with(n, members, None)
    given = draw(st.lists(st.integers(0, 2), min_size=len(members), max_size=len(members)))
    return rows_with(n, members, np.unique(given, return_inverse=True)[1])


def both_networks(shared: dict[str, SharedRows], share_labels: bool) -> tuple[Network, Network]:
    """A network with shared rows, and one of the same parameters where everybody has a copy."""
    options = RatingSettings(hidden_users=4, hidden_items=3, share_labels=share_labels)
    rows = {
        name: shared[name].n_rows if name in shared else size + 1 for name, size in SIZES.items()
    }
    network = Network.of(options, rows, N_LABELS, shared=shared).initialise(3)
    copies = Network.of(options, rows, N_LABELS)
    for name, side in network.sides.items():
        side.b.values.normal_()
        copies.sides[name].c.data.copy_(side.c.data)
        for letter, table in side.tables.items():
            every = np.arange(side.n_rows)
            own = every if letter == "b" else side.table_rows(every)
            copies.sides[name].tables[letter].values.copy_(table.values[own])
    return network, copies


@settings(max_examples=40, deadline=None)
@given(
    shared=st.fixed_dictionaries({name: sharing(size) for name, size in SIZES.items()}),
    share_labels=st.booleans(),
    cold=st.booleans(),
    seed=st.integers(0, 99),
)
def test_shared_rows_are_those_of_copies_whose_gradients_add_up(shared, share_labels, cold, seed):
    shared = {name: each for name, each in shared.items() if each is not None}
    cells = random_cells(N_USERS, N_ITEMS, N_LABELS, 30, seed)
    matrix = matrix_of(cells, N_USERS, N_ITEMS, N_LABELS)
    rng = np.random.default_rng(seed)
    users, items = (rng.permutation(size).astype(np.int32) for size in SIZES.values())
    is_open = [np.isin(np.arange(len(each)), each[4:]) for each in (users, items)]

    def block(sharing):
        drawn = cut_block(
            matrix, users[:4], items[:4], sides=("users", "items"), open_users=is_open[0],
            open_items=is_open[1], keep_users=1.0, keep_items=1.0, key=seed, scale=1.0,
            shared=sharing,
        )  # fmt: skip
        if not cold:
            return drawn
        last = {n: shared[n].n_rows - 1 if n in shared else size for n, size in SIZES.items()}
        return ColdStartMasking(Fixed(drawn), last, seed).draw(0)

    network, copies = both_networks(shared, share_labels)
    losses = []
    for each, drawn in ((network, block(shared)), (copies, block_of_copies(block, shared))):
        loss = rating_loss_of(each, drawn)
        loss.backward()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    grads, of_copies = gradients_of(network), gradients_of(copies)
    for name, side in network.sides.items():
        for letter, table in side.tables.items():
            key = f"{name}.{letter}.values"
            every = np.arange(side.n_rows)
            expected = np.zeros_like(grads[key])
            np.add.at(expected, every if letter == "b" else side.table_rows(every), of_copies[key])
            np.testing.assert_allclose(grads[key], expected, rtol=1e-4, atol=1e-5)
            if table.gradient is not None:
                squares = np.square(expected).sum()
                assert table.gradient.squares == pytest.approx(squares, rel=1e-3, abs=1e-6)


def block_of_copies(block, shared):
    """The same block where everybody has a row: entries of all rows of b."""
    rows = {name: np.arange(each.n_rows, dtype=np.int32) for name, each in shared.items()}
    return block({name: SharedRows(every) for name, every in rows.items()})


def test_users_with_few_interactions_share_one_row_or_that_of_their_cluster():
    one = rows_with(5, np.array([1, 3]), None)
    assert one.row_of.tolist() == [0, 3, 1, 3, 2, 3]
    clusters = rows_with(5, np.array([1, 3, 4]), np.array([1, 0, 1]))
    assert clusters.row_of.tolist() == [0, 3, 1, 2, 3, 2, 3, 4]
    assert (clusters.n_clusters, clusters.n_table_rows, clusters.n_rows) == (2, 5, 8)


class Noted(Callback):
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.shares: list[tuple[str, float]] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def preparing(self, what: str, share: float) -> None:
        self.shares.append((what, share))


@pytest.fixture
def two_tastes(monkeypatch, tmp_path) -> InteractionMatrix:
    """Even users like even items, and odd users odd ones."""
    monkeypatch.setenv("CFUICA_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    users, items = (each.ravel() for each in np.mgrid[:40, :30])
    seen = rng.random(len(users)) < 0.7
    labels = np.where((users + items) % 2 == 0, 2, 0)
    return InteractionMatrix.from_triplets(
        users[seen], items[seen], labels[seen], n_users=40, n_items=30, n_labels=N_LABELS
    )


CLUSTERED = RatingSettings(user_clusters=2, cluster_factors=2)


def test_users_of_one_taste_are_a_cluster_and_are_remembered(two_tastes):
    callback = Noted()
    rows = shared_rows(two_tastes, STARS, CLUSTERED, callback)
    assert rows.keys() == {"users"}
    row_of = rows["users"].row_of[:40]
    assert len(set(row_of[::2])) == len(set(row_of[1::2])) == 1
    assert row_of[0] != row_of[1]
    assert "rank 2" in callback.notes[0]
    assert "RMSE" in callback.notes[0]
    assert callback.notes[1].startswith("0 of 40 users have their own row; the others share those")
    assert callback.shares[-1] == ("clustering users", 1.0)
    again = Noted()
    assert (shared_rows(two_tastes, STARS, CLUSTERED, again)["users"].row_of[:40] == row_of).all()
    assert "earlier training" in again.notes[0]
    assert again.shares == []


def test_other_settings_or_data_have_other_clusters(two_tastes):
    shared_rows(two_tastes, STARS, CLUSTERED, Callback())
    fewer = InteractionMatrix.from_triplets(
        *(each[:-1] for each in two_tastes.triplets()), n_users=40, n_items=30, n_labels=N_LABELS
    )
    for matrix, options in (
        (two_tastes, CLUSTERED.replaced(cluster_factors=3)),
        (two_tastes, CLUSTERED.replaced(seed=1)),
        (fewer, CLUSTERED),
    ):
        callback = Noted()
        shared_rows(matrix, STARS, options, callback)
        assert callback.shares


def test_a_damaged_cache_is_made_anew(two_tastes, tmp_path):
    rows = shared_rows(two_tastes, STARS, CLUSTERED, Callback())
    (path,) = (tmp_path / "cache" / "clusters").iterdir()
    for damage in (b"", b"\0" * 12, b"\xff" * 160):
        path.write_bytes(damage)
        again = shared_rows(two_tastes, STARS, CLUSTERED, Callback())
        assert (again["users"].row_of == rows["users"].row_of).all()


def test_it_stops_between_two_sweeps(two_tastes):
    class Stopping(Checkpointer):
        def is_stopping(self) -> bool:
            return True

    with pytest.raises(TrainingInterrupted, match="before its first step"):
        shared_rows(two_tastes, STARS, CLUSTERED, Callback(), Stopping())


def test_without_faiss_it_says_what_to_install(two_tastes, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "faiss":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SettingsError, match=r"cfuica\[clusters\]"):
        shared_rows(two_tastes, STARS, CLUSTERED, Callback())


def test_a_floor_is_said(two_tastes):
    floor = int(np.median(two_tastes.by_user.sizes))
    callback = Noted()
    rows = shared_rows(two_tastes, STARS, RatingSettings(min_row_interactions=floor), callback)
    own = int((two_tastes.by_user.sizes >= floor).sum())
    assert rows["users"].n_table_rows == own + 1
    assert f"{own} of 40 users have their own row" in callback.notes[0]


def test_the_factorisation_of_short_rows_is_that_of_long_ones_in_double():
    cells = random_cells(N_USERS, N_ITEMS, N_LABELS, 25)
    matrix = matrix_of(cells, N_USERS, N_ITEMS, N_LABELS)
    found = [
        factorise(
            matrix.by_user, matrix.by_item, (STARS, STARS), factors=3, l2=1.0, bias_l2=0.5,
            sweeps=4, steps=steps, dtype=dtype,
        )
        for steps, dtype in ((8, np.float64), (8, np.float32))
    ]  # fmt: skip
    np.testing.assert_allclose(found[0].users_nf, found[1].users_nf, atol=1e-3)
    users, items, labels = matrix.triplets()
    errors = found[0].predict(users, items) - STARS[labels]
    assert found[0].rmse == pytest.approx(np.sqrt(np.square(errors).mean()))


def test_the_nearest_centroid_is_the_nearest_of_all():
    rng = np.random.default_rng(0)
    means_ch = rng.normal(size=(9, 5))
    means_ch[4] = np.nan
    found = Centroids.of(means_ch)
    for cluster in (0, 3, 8):
        assert found.nearest(means_ch[cluster] + 0.01 * rng.normal(size=5)) == cluster


def test_a_new_user_joins_the_cluster_of_the_same_taste(two_tastes):
    users, items, labels = two_tastes.triplets()
    frame = pl.DataFrame({"user": users, "item": items, "rating": STARS[labels]})
    options = CLUSTERED.replaced(
        hidden_users=4, hidden_items=4, schedule="planned", max_steps=60, learning_rate=0.02
    )
    model = RatingModel(options).fit(frame)
    model.observe([(99, item, 3.0) for item in (0, 2, 4)] + [(99, 1, 1.0)])
    state = model.live_model.state
    even = state.network.users.table_row(int(state.rows("users")[0]))
    index = model.live_model.ids["users"].find(99)
    assert state.network.users.table_row(int(state.rows("users")[index])) == even
    assert not state.is_cold("users", index)
    new = model.predict({"user": [99, 99], "item": [6, 7]})["prediction"]
    assert new[0] > new[1] + 0.5
