"""Training: it learns, repeats itself exactly, goes back to its best and says when it diverges."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch

from cfuica.baselines.contract import TrainingData
from cfuica.baselines.means import UserItemBias
from cfuica.data.matrix import InteractionMatrix, RatedPairs
from cfuica.data.splits import Split
from cfuica.data.synthetic import make_world
from cfuica.errors import CfuicaError, SettingsError
from cfuica.metrics.rating_metrics import RatingScores, rmse
from cfuica.model.network import Network
from cfuica.ops.reference import mixed_loss
from cfuica.settings import RatingSettings
from cfuica.training import rating_task, trainer
from cfuica.training.batches import make_estimator
from cfuica.training.optimizer import Adam, MovingAverage
from cfuica.training.rating_task import RatingTask, train, trained_networks
from cfuica.training.trainer import Callback
from tests.model.reference import matrix_of, predicted, random_cells
from tests.training.blocks import same
from tests.training.test_checkpoint import equal

STARS = np.arange(1, 6, dtype=np.float32)


@dataclass
class Data:
    train: InteractionMatrix
    valid: RatedPairs
    values: np.ndarray
    best_rmse: float

    def networks(self, trained):
        return trained_networks(trained, self.train)[0]

    def new_network(self, settings):
        return RatingTask.of(self.train, settings).new_network(0)

    def rmse_of(self, network):
        valid = self.valid
        p_pk = predicted(network, self.train, valid.users_p, valid.items_p).astype(np.float64)
        return rmse(p_pk @ self.values, valid.ratings_p)


def rated(matrix: InteractionMatrix, values: np.ndarray) -> RatedPairs:
    users, items, labels = matrix.triplets()
    return RatedPairs(users, items, labels, values[labels].astype(np.float64))


@pytest.fixture(scope="module")
def world() -> Data:
    """300 users, 120 items; a fifth of 10,000 ratings validates."""
    made = make_world(users=300, items=120, ratings=10_000, seed=0)
    table, split = made.table, Split.random(10_000, folds=5, fold=0, valid=0.0, seed=0)
    maps = {"users": table.users, "items": table.item_ids, "scale": table.scale}
    return Data(
        table.take(split.train).matrix(**maps),
        table.take(split.test).rated_pairs(**maps),
        table.scale.values_array(),
        made.best_rmse(split.test),
    )


@pytest.fixture(scope="module")
def noise() -> Data:
    """Ratings without any pattern: training soon gets worse on the validation set."""
    cells = random_cells(30, 25, 5, 420, seed=0)
    pairs = list(cells)
    parts = ({pair: cells[pair] for pair in some} for some in (pairs[:300], pairs[300:]))
    train, valid = (matrix_of(part, 30, 25, 5) for part in parts)
    return Data(train, rated(valid, STARS), STARS, 0.0)


SMALL = RatingSettings(
    hidden_users=6, hidden_items=5, batch_users=12, batch_items=10, learning_rate=0.05,
    schedule="planned", max_steps=20, validate_every=6,
)  # fmt: skip
IMPATIENT = SMALL.replaced(
    schedule="patience", max_steps=400, validate_every=2, patience=3, stop_rate=1e-3
)


def copied(tensors):
    return {name: tensor.clone() for name, tensor in tensors.items()}


class Witness(Callback):
    """Sees the network and the optimiser at every step and validation."""

    def __init__(self, monkeypatch):
        self.steps, self.states = [], []

        def adam(network, settings):
            self.network, self.settings = network, settings
            self.optimizer = Adam(network, settings)
            return self.optimizer

        monkeypatch.setattr(trainer, "Adam", adam)

    def stepped(self, member, step, loss):
        self.steps.append((member, step, loss))
        self.moments = self.copied_moments()

    def validated(self, progress):
        self.states.append((progress, copied(self.network.state_dict())))
        # Without gradients the norm is the penalty's part: that of the parameters.
        anew = Adam(self.network, self.settings).gradient_norm()
        assert self.optimizer.gradient_norm() == pytest.approx(anew, rel=1e-4)
        assert equal(self.moments, self.copied_moments()), "moments must stay"

    def copied_moments(self):
        state = self.optimizer.state_dict()
        return [copied(state["mean"]), copied(state["square"])]


def test_training_beats_user_and_item_biases_and_either_side_alone(world):
    """On ratings it has not seen; the second half is the paper's ablation."""
    users, items, labels = world.train.triplets()
    bias, sizes = UserItemBias(), (world.train.n_users, world.train.n_items)
    bias._fit(TrainingData(users, items, world.values[labels], *sizes))
    users, items, truth = world.valid.users_p, world.valid.items_p, world.valid.ratings_p
    settings = RatingSettings(
        hidden_users=32, hidden_items=32, batch_users=100, batch_items=60, l2=3e-4,
        learning_rate=1e-2, schedule="planned", max_steps=300, hold=0.3, validate_every=100,
    )  # fmt: skip
    found = {}
    for sides in ("both", "users", "items"):
        fitted = train(world.train, settings.replaced(sides=sides), world.values, valid=world.valid)
        found[sides] = world.rmse_of(world.networks(fitted)["warm"])
        assert found[sides] == pytest.approx(fitted.history[-1].valid.rmse, rel=1e-6)
    assert world.best_rmse < found["both"] < rmse(bias._predict(users, items), truth) - 0.02
    for side in ("users", "items"):
        assert found["both"] + 0.02 < found[side] < truth.std() - 0.05


def test_the_papers_text_alone_learns_too(world):
    """Plain NLL, no sharing, the strict estimator, no limits."""
    settings = RatingSettings(
        share_labels=False, ordinal_weight=0.0, estimator="strict", epsilon=1e-8, max_norm=None,
        max_entry=None, hidden_users=16, hidden_items=16, batch_users=100, batch_items=60,
        l2=1e-4, learning_rate=1e-2, schedule="planned", max_steps=150, validate_every=150,
    )  # fmt: skip
    untrained = world.rmse_of(world.new_network(settings))
    fitted = train(world.train, settings, world.values, valid=world.valid)
    assert fitted.history[-1].valid.rmse < untrained - 0.1


def test_two_runs_of_one_seed_are_identical_and_of_two_seeds_are_not(noise):
    runs = [
        train(noise.train, IMPATIENT.replaced(seed=seed), STARS, valid=noise.valid)
        for seed in (3, 3, 4)
    ]
    assert equal(runs[0].weights, runs[1].weights)
    assert not equal(runs[0].weights, runs[2].weights)
    curves = [[(p.step, p.loss, p.gradient_norm, p.valid) for p in run.history] for run in runs]
    assert curves[0] == curves[1]
    assert curves[0] != curves[2]


def test_a_run_does_not_depend_on_the_number_of_threads(monkeypatch, world):
    runs = []
    for threads in (1, 3):
        monkeypatch.setenv("CFUICA_THREADS", str(threads))
        settings = SMALL.replaced(
            batch_users=100, batch_items=60, cold_start_units=7, length_normalisation=0.5
        )
        runs.append(train(world.train, settings, world.values, valid=world.valid))
    assert len(runs[0].weights) == 2
    assert equal(runs[0].weights, runs[1].weights)


def test_a_cut_and_the_end_go_back_to_the_best_parameters(monkeypatch, noise):
    """Adam's moments stay, and the optimiser measures the parameters that were restored."""
    witness = Witness(monkeypatch)
    fitted = train(noise.train, IMPATIENT, STARS, valid=noise.valid, callback=witness)
    verdicts = [progress.verdict for progress, _ in witness.states]
    assert verdicts.count("cut") >= 2
    assert verdicts[-1] == "stop"
    best = None
    for progress, tensors in witness.states:
        if progress.verdict == "improved":
            best = tensors
        elif progress.verdict in ("cut", "stop"):
            assert progress.valid.rmse > progress.best
            assert equal(tensors, best)
        else:
            assert not equal(tensors, best)
    assert equal(fitted.weights, [best])
    assert fitted.history[-1].best == min(p.valid.rmse for p in fitted.history)
    assert fitted.history[-1].best == noise.rmse_of(noise.networks(fitted)["warm"])


def test_patience_that_runs_out_of_steps_goes_back_to_the_best_too(monkeypatch, noise):
    witness = Witness(monkeypatch)
    settings = IMPATIENT.replaced(patience=1000, max_steps=81)
    fitted = train(noise.train, settings, STARS, valid=noise.valid, callback=witness)
    assert fitted.steps == 81
    assert fitted.history[-1].valid.rmse > fitted.history[-1].best
    assert noise.rmse_of(noise.networks(fitted)["warm"]) == fitted.history[-1].best


def test_a_plan_may_end_with_its_best_parameters(monkeypatch, noise):
    settings = IMPATIENT.replaced(schedule="planned", max_steps=81, keep_best=True)
    witness = Witness(monkeypatch)
    fitted = train(noise.train, settings, STARS, valid=noise.valid, callback=witness)
    last = fitted.history[-1]
    assert (fitted.steps, last.steps_planned) == (81, 81)
    assert last.valid.rmse > last.best  # or there was nothing to go back to
    assert noise.rmse_of(noise.networks(fitted)["warm"]) == last.best
    best = [tensors for progress, tensors in witness.states if progress.verdict == "improved"][-1]
    assert equal(fitted.weights, [best])
    unvalidated = train(noise.train, settings, STARS, valid=None)
    alike = train(noise.train, settings.replaced(keep_best=False), STARS, valid=None)
    assert equal(unvalidated.weights, alike.weights)


def test_a_plan_ends_with_its_last_parameters(monkeypatch, noise):
    witness = Witness(monkeypatch)
    fitted = train(noise.train, SMALL, STARS, valid=noise.valid, callback=witness)
    assert fitted.steps == 20
    assert [progress.step for progress in fitted.history] == [6, 12, 18, 20]
    assert [(member, step) for member, step, _ in witness.steps] == [(0, s + 1) for s in range(20)]
    assert equal(fitted.weights, [witness.states[-1][1]])
    assert noise.rmse_of(noise.networks(fitted)["warm"]) == fitted.history[-1].valid.rmse


def test_rates_follow_the_schedule(noise):
    fitted = train(noise.train, IMPATIENT, STARS, valid=noise.valid)
    rate = IMPATIENT.learning_rate
    for progress in fitted.history:
        assert progress.rate == pytest.approx(rate)
        if progress.verdict == "cut":
            rate /= IMPATIENT.rate_divisor


def test_without_validation_the_plan_is_followed(noise):
    nothing = rated(matrix_of({}, 30, 25, 5), STARS)
    for valid in (None, nothing):
        fitted = train(noise.train, IMPATIENT.replaced(max_steps=9), STARS, valid=valid)
        assert fitted.steps == 9
        assert fitted.history[-1].valid is None
        assert fitted.history[-1].best is None


@pytest.mark.parametrize("estimator", ["published", "strict"])
@pytest.mark.parametrize("ordinal_weight", [1.0, 0.25])
def test_the_loss_of_the_first_step_is_that_of_the_first_block(noise, estimator, ordinal_weight):
    """Published: the mean of the block. Strict: the objective's estimate per interaction."""
    settings = SMALL.replaced(
        estimator=estimator, ordinal_weight=ordinal_weight, max_steps=1, seed=11
    )
    block = make_estimator(noise.train, settings).draw(0)
    assert same(block, make_estimator(noise.train, settings).draw(0))
    network = noise.new_network(settings)
    logits_pk = network(block.pairs, network.encode(block.contexts)).detach()
    labels_p = torch.from_numpy(block.labels).long()
    total = float(mixed_loss(logits_pk, labels_p, ordinal_weight).sum())
    assert block.pairs.size > 3
    factor = {
        "published": 1 / block.pairs.size,
        "strict": block.scale / noise.train.n_interactions,
    }[estimator]
    fitted = train(noise.train, settings, STARS, valid=noise.valid)
    assert fitted.history[0].loss == pytest.approx(factor * total, rel=1e-5)


def test_ensemble_members_are_trained_apart_and_merged(noise):
    settings = SMALL.replaced(ensemble_size=3)
    fitted = train(noise.train, settings, STARS, valid=noise.valid)
    assert fitted.steps == 60
    assert [progress.member for progress in fitted.history] == [0] * 4 + [1] * 4 + [2] * 4
    merged = noise.networks(fitted)["warm"]
    assert merged.users.W.values.shape == (31, 5, 18)
    alone = train(noise.train, SMALL, STARS, valid=noise.valid)
    assert equal(fitted.weights[0], alone.weights[0])
    assert torch.equal(merged.users.W.values[:-1, :, :6], alone.weights[0]["users.W.values"][:-1])
    last = [progress.valid.rmse for progress in fitted.history if progress.step == 20]
    assert len(set(last)) == 3


@pytest.mark.parametrize(
    ("learning_rate", "validate_every"), [(1e20, 1), (1e20, 50), (1e38, 1), (1e38, 50)]
)
def test_a_divergence_is_an_error_that_names_the_step(noise, learning_rate, validate_every):
    settings = SMALL.replaced(
        learning_rate=learning_rate, validate_every=validate_every, max_steps=60
    )
    with pytest.raises(CfuicaError, match=r"step \d+.*learning_rate"):
        train(noise.train, settings, STARS, valid=noise.valid)


def test_no_interactions_and_an_unknown_device_are_refused_with_a_sentence(noise):
    with pytest.raises(SettingsError, match="no interaction"):
        train(matrix_of({}, 30, 25, 5), SMALL, STARS)
    with pytest.raises(SettingsError, match="device"):
        train(noise.train, SMALL.replaced(device="abacus"), STARS)


# The moving average.


@pytest.mark.parametrize("every", [1, 4])
def test_training_validates_and_ends_with_the_average(monkeypatch, noise, every):
    """Of the parameters that training has without it: it changes none of its steps."""
    monkeypatch.setattr(trainer, "STRIDE", 100)  # at validations alone, where they are witnessed
    witness = Witness(monkeypatch)
    settings = SMALL.replaced(validate_every=every)
    raw = train(noise.train, settings, STARS, valid=noise.valid, callback=witness)
    averaged = train(noise.train, settings.replaced(weight_average=0.2), STARS, valid=noise.valid)
    assert [p.loss for p in averaged.history] == [p.loss for p in raw.history]
    expected, network = MovingAverage(witness.network, 0.2), noise.new_network(settings)
    for progress, tensors in witness.states:
        network.load_state_dict(tensors)
        expected.update(network, progress.step)
    assert equal(averaged.weights, [dict(expected.network.state_dict())])
    assert noise.rmse_of(noise.networks(averaged)["warm"]) == averaged.history[-1].valid.rmse


def test_the_average_goes_on_between_validations(noise):
    """Otherwise it would be what the only one of them saw: the last parameters."""
    settings = SMALL.replaced(validate_every=20)
    averaged, last = (
        train(noise.train, settings.replaced(weight_average=span), STARS, valid=noise.valid)
        for span in (1.0, 0.0)
    )
    assert not equal(averaged.weights, last.weights)


def test_a_cut_and_the_end_go_back_to_the_best_average(monkeypatch, noise):
    """And training goes on from it."""
    averages = []

    class Seen(MovingAverage):
        def __init__(self, network, span):
            super().__init__(network, span)
            averages.append(self.network)

    class Both(Witness):
        averages: ClassVar[list] = []

        def validated(self, progress):
            super().validated(progress)
            self.averages.append(copied(averages[0].state_dict()))

    monkeypatch.setattr(trainer, "MovingAverage", Seen)
    witness = Both(monkeypatch)
    settings = IMPATIENT.replaced(weight_average=0.3, learning_rate=0.005, stop_rate=1e-4)
    fitted = train(noise.train, settings, STARS, valid=noise.valid, callback=witness)
    best = None
    for (progress, tensors), averaged in zip(witness.states, witness.averages, strict=True):
        if progress.verdict == "improved":
            best, beside = averaged, tensors
        elif progress.verdict in ("cut", "stop"):
            assert equal(averaged, best)
            assert equal(tensors, best)
            assert not equal(best, beside)
    assert [progress.verdict for progress in fitted.history].count("cut") >= 1
    assert equal(fitted.weights, [best])
    assert noise.rmse_of(noise.networks(fitted)["warm"]) == fitted.history[-1].best


# Cold-start users and items.

WITH_COLD_START = SMALL.replaced(ensemble_size=2, cold_start_units=4)


def test_the_cold_start_network_comes_last_and_has_its_own_name(noise):
    class Records(Callback):
        stepped_members: ClassVar[list] = []

        def stepped(self, member, step, loss):
            self.stepped_members.append(member)

    fitted = train(noise.train, WITH_COLD_START, STARS, valid=noise.valid, callback=Records())
    assert Records.stepped_members == [0] * 20 + [1] * 20 + [2] * 20
    assert fitted.steps == 60
    history = fitted.history
    assert [progress.member for progress in history] == [0] * 4 + [1] * 4 + [2] * 4
    assert {progress.networks for progress in history} == {3}
    assert [progress.cold_start for progress in history] == [False] * 8 + [True] * 4
    assert [each.network for each in history[::4]] == [
        "model 1/3", "model 2/3", "model 3/3 (cold start)",
    ]  # fmt: skip
    assert fitted.last is history[7]


@pytest.mark.parametrize("sides", ["both", "users", "items"])
def test_the_cold_start_network_has_its_own_number_of_units(noise, sides):
    settings = WITH_COLD_START.replaced(ensemble_size=1, sides=sides, max_steps=2)
    fitted = train(noise.train, settings, STARS, valid=noise.valid)
    rows = {"users": 31, "items": 26}
    names = ("users", "items") if sides == "both" else (sides,)
    networks = noise.networks(fitted)
    assert tuple(networks["cold_start"].sides) == tuple(networks["warm"].sides) == names
    for name in names:
        assert networks["cold_start"].sides[name].W.values.shape == (rows[name], 5, 4)
        assert networks["cold_start"].sides[name].c.shape == (4,)
    alone = train(noise.train, SMALL.replaced(max_steps=1), STARS)
    assert list(noise.networks(alone)) == ["warm"]


def test_a_cold_start_network_changes_no_bit_of_the_others(noise):
    """Nor of their history."""
    for settings in (SMALL, SMALL.replaced(ensemble_size=2, estimator="strict"), IMPATIENT):
        settings = settings.replaced(max_steps=min(settings.max_steps, 40))
        alone = train(noise.train, settings, STARS, valid=noise.valid)
        beside = train(noise.train, settings.replaced(cold_start_units=3), STARS, valid=noise.valid)
        assert equal(alone.weights, beside.weights[:-1])
        warm = [progress for progress in beside.history if not progress.cold_start]
        curves = [[(p.step, p.loss, p.valid, p.verdict) for p in h] for h in (alone.history, warm)]
        assert curves[0] == curves[1]


def with_shared_rows(network: Network) -> Network:
    """The network with the shared row of V and b in the place of each user's own."""
    shared = deepcopy(network)
    for table in (shared.users.V, shared.users.b):
        table.values[:] = table.values[-1].clone()
    return shared


@pytest.mark.parametrize("settings", [WITH_COLD_START, IMPATIENT.replaced(cold_start_units=4)])
def test_the_cold_start_network_is_validated_with_all_users_as_cold_start(noise, settings):
    settings = settings.replaced(length_normalisation=0.5)
    fitted = train(noise.train, settings, STARS, valid=noise.valid)
    last, network = fitted.history[-1], noise.networks(fitted)["cold_start"]
    expected = last.valid.rmse if settings.schedule == "planned" else last.best
    assert noise.rmse_of(with_shared_rows(network)) == pytest.approx(expected, rel=1e-6)
    assert noise.rmse_of(network) != pytest.approx(expected, rel=1e-4)


COLD = {"users": [3, 29], "items": [0]}


@pytest.fixture(scope="module")
def with_cold_ones():
    """Trained without an interaction of the cold users and items; no penalty moves their rows."""
    cells = random_cells(30, 25, 5, 300, seed=1)
    warm = {
        (user, item): label
        for (user, item), label in cells.items()
        if user not in COLD["users"] and item not in COLD["items"]
    }
    settings = WITH_COLD_START.replaced(l2=0.0)
    matrix = matrix_of(warm, 30, 25, 5)
    return trained_networks(train(matrix, settings, STARS), matrix)


def rows_of(network, side):
    """{table: (its shared row, the mean row of those who have interactions)}"""
    tables = {name: table.array for name, table in network.sides[side].tables.items()}
    return {
        name: (array[-1], np.delete(array, [*COLD[side], -1], 0).mean(0))
        for name, array in tables.items()
    }


@pytest.mark.parametrize("side", ["users", "items"])
def test_those_without_interactions_have_the_shared_row(with_cold_ones, side):
    rows = with_cold_ones[1][side]
    expected = np.arange(len(rows), dtype=np.int32)
    expected[COLD[side]] = len(rows)
    assert np.array_equal(rows, expected)
    assert rows.dtype == np.int32


@pytest.mark.parametrize("side", ["users", "items"])
def test_the_shared_row_is_the_mean_of_those_who_have_interactions(with_cold_ones, side):
    for shared, mean in rows_of(with_cold_ones[0]["warm"], side).values():
        np.testing.assert_allclose(shared, mean, rtol=1e-4, atol=1e-7)
        assert shared.any()


@pytest.mark.parametrize("side", ["users", "items"])
def test_the_cold_start_network_has_learned_v_and_b_of_the_shared_row(with_cold_ones, side):
    rows = rows_of(with_cold_ones[0]["cold_start"], side)
    np.testing.assert_allclose(*rows["W"], rtol=1e-4, atol=1e-7)
    for name in ("V", "b"):
        shared, mean = rows[name]
        assert shared.any()
        assert not np.allclose(shared, mean, atol=1e-3)


def test_cold_start_users_are_served_better_by_their_own_network_than_by_mean_rows(world):
    settings = RatingSettings(
        hidden_users=16, hidden_items=16, batch_users=100, batch_items=60, l2=3e-4,
        cold_start_units=16, length_normalisation=1, learning_rate=1e-2, schedule="planned",
        max_steps=150, hold=0.3, validate_every=150,
    )  # fmt: skip
    fitted = train(world.train, settings, world.values, valid=world.valid)
    networks = world.networks(fitted)
    own, mean = (world.rmse_of(with_shared_rows(networks[name])) for name in ("cold_start", "warm"))
    assert fitted.last.valid.rmse < own < mean - 0.01


def test_a_divergence_of_the_cold_start_network_says_whose_it_is(monkeypatch, noise):
    judged = []

    def scores(*arguments):
        judged.append(1)
        worst = math.nan if len(judged) > 4 else 1.0
        return RatingScores(rmse=worst, mae=worst, nll=worst, n=1)

    monkeypatch.setattr(rating_task, "rating_scores", scores)
    with pytest.raises(CfuicaError, match=r"step 6 of model 2/2 \(cold start\): the validation"):
        train(noise.train, SMALL.replaced(cold_start_units=3), STARS, valid=noise.valid)
