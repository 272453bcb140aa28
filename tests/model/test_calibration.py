"""Correcting the width of distributions: what it keeps, and what a fit recovers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.metrics.rating_metrics import rating_scores, top_label_error
from cfuica.model.calibration import FEWEST_PAIRS, Calibration
from cfuica.model.network import softmax

STARS_K = np.float32([1, 2, 3, 4, 5])

CALIBRATIONS = st.builds(Calibration, st.floats(0.2, 5.0), st.floats(-4.0, 4.0))


@st.composite
def scales(draw: st.DrawFn) -> np.ndarray:
    """Ascending values of any magnitude, evenly spaced or not."""
    gaps = draw(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=30))
    size = draw(st.sampled_from([1e-30, 1e-3, 1.0, 1e6, 1e30]))
    first = draw(st.floats(-50, 50))
    return size * (first + np.concatenate(([0.0], np.cumsum(gaps))))


@settings(max_examples=150, deadline=None)
@given(
    calibration=CALIBRATIONS,
    values_k=scales(),
    spread=st.sampled_from([0.0, 0.5, 3.0, 50.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_mean_is_kept_on_any_scale(calibration, values_k, spread, seed):
    rng = np.random.default_rng(seed)
    logits_pk = rng.normal(0, spread, (20, len(values_k))).astype(np.float32)
    p_pk = calibration.distributions(logits_pk, values_k)
    assert p_pk.dtype == np.float32
    assert (p_pk >= 0).all()
    np.testing.assert_allclose(p_pk.sum(1), 1.0, atol=1e-5)
    place_k = (values_k - values_k[0]) / (values_k[-1] - values_k[0])
    mean_p = softmax(logits_pk.astype(np.float64)) @ place_k
    np.testing.assert_allclose(p_pk.astype(np.float64) @ place_k, mean_p, atol=1e-5)


def test_the_identity_is_the_softmax_to_the_last_bit():
    logits_pk = np.random.default_rng(0).normal(size=(50, 5)).astype(np.float32)
    assert Calibration().is_identity
    np.testing.assert_array_equal(
        Calibration().distributions(logits_pk, STARS_K), softmax(logits_pk)
    )


def test_neutral_numbers_that_are_not_quite_so_change_next_to_nothing():
    """The identity is a way around the kernel, not another result."""
    logits_pk = np.random.default_rng(0).normal(0, 3, (50, 5)).astype(np.float32)
    p_pk = Calibration(1.0 + 1e-12).distributions(logits_pk, STARS_K)
    np.testing.assert_allclose(p_pk, softmax(logits_pk), atol=1e-6)


@pytest.mark.parametrize("wider", [Calibration(2.0), Calibration(1.0, 1.5)])
def test_both_numbers_widen(wider):
    logits_pk = np.random.default_rng(0).normal(0, 2, (200, 5)).astype(np.float32)

    def variance(p_pk):
        return p_pk @ STARS_K**2 - (p_pk @ STARS_K) ** 2

    before_p = variance(softmax(logits_pk))
    after_p = variance(wider.distributions(logits_pk, STARS_K))
    assert after_p.mean() > before_p.mean()


def test_adding_a_constant_to_the_logits_of_a_pair_changes_nothing():
    rng = np.random.default_rng(0)
    logits_pk = rng.integers(-4, 5, (30, 5)).astype(np.float32)
    moved_pk = logits_pk + rng.integers(-99, 99, (30, 1)).astype(np.float32)
    one = Calibration(1.7, 0.5)
    np.testing.assert_array_equal(
        one.distributions(logits_pk, STARS_K), one.distributions(moved_pk, STARS_K)
    )


def test_no_pairs_make_no_distributions():
    assert Calibration(2.0).distributions(np.empty((0, 5), np.float32), STARS_K).shape == (0, 5)


def world(true: Calibration, pairs: int, values_k: np.ndarray = STARS_K, seed: int = 0):
    """Logits of pairs, and labels drawn from what `true` makes of them."""
    rng = np.random.default_rng(seed)
    places_k = np.linspace(-1, 1, len(values_k))
    middle_p, sharpness_p = rng.uniform(-1, 1, pairs), rng.uniform(1, 6, pairs)
    logits_pk = -sharpness_p[:, None] * (places_k - middle_p[:, None]) ** 2
    logits_pk += rng.normal(0, 0.4, logits_pk.shape)
    logits_pk = logits_pk.astype(np.float32)
    p_pk = true.distributions(logits_pk, values_k).astype(np.float64)
    draws_p = rng.uniform(size=pairs)
    labels_p = (p_pk.cumsum(1) < draws_p[:, None]).sum(1).clip(0, len(values_k) - 1)
    return logits_pk, labels_p.astype(np.uint8)


@pytest.mark.parametrize(
    "true", [Calibration(2.0), Calibration(0.6), Calibration(1.0, 1.5), Calibration(1.4, -1.0)]
)
def test_a_fit_recovers_what_made_the_labels(true):
    logits_pk, labels_p = world(true, 40_000)
    found = Calibration.fit(logits_pk, labels_p, STARS_K)
    assert found.temperature == pytest.approx(true.temperature, rel=0.08)
    assert found.widening == pytest.approx(true.widening, abs=0.15)
    p_pk = found.distributions(logits_pk, STARS_K)
    assert top_label_error(p_pk, labels_p) < 0.015


def test_a_fit_corrects_other_pairs_than_it_saw():
    true = Calibration(1.5, 1.0)
    found = Calibration.fit(*world(true, 20_000), STARS_K)
    logits_pk, labels_p = world(true, 20_000, seed=1)
    ratings_p = STARS_K[labels_p]
    before = rating_scores(softmax(logits_pk), labels_p, STARS_K, ratings_p)
    after_pk = found.distributions(logits_pk, STARS_K)
    after = rating_scores(after_pk, labels_p, STARS_K, ratings_p)
    assert after.nll < before.nll - 0.01
    assert after.rmse == pytest.approx(before.rmse, abs=1e-6)


def test_nothing_around_the_fit_is_likelier_even_where_the_means_are_off():
    logits_pk, labels_p = world(Calibration(1.5, 1.0), 5_000)
    off_pk = logits_pk + 1.5 * np.linspace(-1, 1, 5, dtype=np.float32)
    found = Calibration.fit(off_pk, labels_p, STARS_K)

    def nll(temperature, widening):
        p_pk = Calibration(temperature, widening).distributions(off_pk, STARS_K)
        return rating_scores(p_pk, labels_p, STARS_K, STARS_K[labels_p]).nll

    lowest = nll(found.temperature, found.widening)
    for factor, more in ((1.03, 0), (1 / 1.03, 0), (1, 0.05), (1, -0.05)):
        assert nll(found.temperature * factor, found.widening + more) > lowest


@settings(max_examples=15, deadline=None)
@given(
    labels=st.integers(3, 12),
    seed=st.integers(0, 2**32 - 1),
    spread=st.sampled_from([0.0, 0.01, 1.0, 40.0, 2000.0]),
)
def test_a_fit_never_makes_the_pairs_it_saw_less_likely(labels, seed, spread):
    rng = np.random.default_rng(seed)
    values_k = np.sort(rng.normal(size=labels))
    logits_pk = rng.normal(0, spread, (FEWEST_PAIRS, labels)).astype(np.float32)
    labels_p = rng.integers(0, labels, FEWEST_PAIRS)
    found = Calibration.fit(logits_pk, labels_p, values_k)
    assert 1 / 20 - 1e-9 <= found.temperature <= 20 + 1e-9

    def nll(one):
        p_pk = one.distributions(logits_pk, values_k)
        return rating_scores(p_pk, labels_p, values_k, values_k[labels_p]).nll

    assert nll(found) <= nll(Calibration()) + 1e-6


def test_the_same_pairs_give_the_same_fit_whatever_the_number_of_threads(monkeypatch):
    logits_pk, labels_p = world(Calibration(1.5), 2_000)
    found = []
    for threads in ("1", "3"):
        monkeypatch.setenv("CFUICA_THREADS", threads)
        found.append(Calibration.fit(logits_pk, labels_p, STARS_K))
    assert found[0] == found[1]


def test_log_probabilities_are_as_good_as_logits():
    logits_pk, labels_p = world(Calibration(1.5), 5_000)
    one = Calibration.fit(logits_pk, labels_p, STARS_K)
    other = Calibration.fit(np.log(softmax(logits_pk)), labels_p, STARS_K)
    assert other.temperature == pytest.approx(one.temperature, rel=1e-3)
    assert other.widening == pytest.approx(one.widening, abs=1e-3)


def test_the_scale_may_be_stretched_and_moved():
    logits_pk, labels_p = world(Calibration(1.5, 0.5), 5_000)
    one = Calibration.fit(logits_pk, labels_p, STARS_K)
    other = Calibration.fit(logits_pk, labels_p, 1000 * STARS_K - 7)
    assert other.temperature == pytest.approx(one.temperature, rel=1e-4)
    assert other.widening == pytest.approx(one.widening, abs=1e-4)


def test_few_pairs_say_nothing():
    logits_pk, labels_p = world(Calibration(3.0), FEWEST_PAIRS - 1)
    assert Calibration.fit(logits_pk, labels_p, STARS_K).is_identity


def test_two_labels_leave_nothing_to_correct():
    logits_pk, labels_p = world(Calibration(), 3_000, np.float32([0, 1]))
    found = Calibration.fit(logits_pk, labels_p, np.float32([0, 1]))
    assert found.temperature == pytest.approx(1.0, abs=1e-3)
    assert found.widening == pytest.approx(0.0, abs=1e-3)


def test_many_pairs_are_thinned_out(monkeypatch):
    logits_pk, labels_p = world(Calibration(1.5), 6_000)
    monkeypatch.setattr("cfuica.model.calibration.MOST_CELLS", 10_000)
    assert Calibration.fit(logits_pk, labels_p, STARS_K) == Calibration.fit(
        logits_pk[::3], labels_p[::3], STARS_K
    )
