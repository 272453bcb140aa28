"""Mean-keeping tilts against `definition.calibrate`, and where numbers end."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.ops import reference
from cfuica.ops.runtime import run_rows
from cfuica.ops.tilt import calibrate


def run(logits_pk, inverse_temperature, bias_k, place_k):
    logits_pk = np.asarray(logits_pk, np.float32)
    out_pk = np.full(logits_pk.shape, np.nan, np.float32)
    run_rows(
        calibrate,
        len(logits_pk),
        logits_pk,
        float(inverse_temperature),
        np.asarray(bias_k, np.float64),
        np.asarray(place_k, np.float64),
        out_pk,
    )
    return out_pk


def means(logits_pk, place_k):
    p_pk = torch.softmax(torch.from_numpy(logits_pk).double(), dim=1)
    return p_pk.numpy() @ place_k


def places(rng: np.random.Generator, labels: int, evenly: bool) -> np.ndarray:
    if evenly:
        return np.linspace(-1.0, 1.0, labels)
    inner = np.sort(rng.uniform(-1, 1, labels - 2) ** 3)
    return np.concatenate(([-1.0], inner, [1.0]))


def assert_proper_with_means(out_pk, mean_p, place_k):
    assert (out_pk >= 0).all()
    np.testing.assert_allclose(out_pk.sum(1, dtype=np.float64), 1.0, atol=1e-6)
    # Places run from -1 to 1, so 2e-6 is a millionth of the scale.
    np.testing.assert_allclose(out_pk.astype(np.float64) @ place_k, mean_p, atol=2e-6)


LABELS = st.one_of(st.integers(2, 10), st.sampled_from([20, 255]))


@settings(max_examples=60, deadline=None)
@given(
    labels=LABELS,
    pairs=st.integers(0, 12),
    spread=st.sampled_from([0.1, 1.0, 5.0]),
    inverse_temperature=st.floats(0.2, 3.0),
    widening=st.floats(-5.0, 5.0),
    evenly=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_equals_the_definition(labels, pairs, spread, inverse_temperature, widening, evenly, seed):
    rng = np.random.default_rng(seed)
    logits_pk = rng.normal(0, spread, (pairs, labels)).astype(np.float32)
    place_k = places(rng, labels, evenly)
    bias_k = widening * place_k**2
    expected_pk = reference.calibrate(
        torch.from_numpy(logits_pk),
        inverse_temperature,
        torch.from_numpy(bias_k),
        torch.from_numpy(place_k),
    )
    out_pk = run(logits_pk, inverse_temperature, bias_k, place_k)
    np.testing.assert_allclose(out_pk, expected_pk.numpy(), atol=1e-5)


@settings(max_examples=150, deadline=None)
@given(
    labels=LABELS,
    spread=st.sampled_from([30.0, 300.0, 1e4, 1e8, 1e30]),
    inverse_temperature=st.sampled_from([0.05, 0.5, 1.0, 3.0, 20.0]),
    widening=st.sampled_from([-20.0, 0.0, 1.5, 20.0]),
    evenly=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_extreme_logits_keep_mean_and_stay_distributions(
    labels, spread, inverse_temperature, widening, evenly, seed
):
    rng = np.random.default_rng(seed)
    logits_pk = rng.normal(0, spread, (8, labels)).astype(np.float32)
    place_k = places(rng, labels, evenly)
    out_pk = run(logits_pk, inverse_temperature, widening * place_k**2, place_k)
    assert_proper_with_means(out_pk, means(logits_pk, place_k), place_k)


def test_a_mean_at_an_end_of_the_scale_stays_there():
    logits_pk = np.float32([[5000, 0, 0], [0, 0, 5000], [80, 0, 0], [0, 0, 80]])
    place_k = np.array([-1.0, 0.0, 1.0])
    out_pk = run(logits_pk, 0.1, 2.0 * place_k**2, place_k)
    assert_proper_with_means(out_pk, means(logits_pk, place_k), place_k)
    np.testing.assert_array_equal(out_pk.argmax(1), [0, 2, 0, 2])


def test_impossible_labels_stay_impossible():
    logits_pk = np.float32([[-np.inf, 0.3, 1.0, -np.inf, 2.0]])
    place_k = np.linspace(-1, 1, 5)
    out_pk = run(logits_pk, 0.5, place_k**2, place_k)
    assert_proper_with_means(out_pk, means(logits_pk, place_k), place_k)
    np.testing.assert_array_equal(out_pk[0, [0, 3]], 0.0)


def test_two_labels_have_no_other_distribution_of_the_same_mean():
    logits_pk = np.random.default_rng(0).normal(0, 3, (50, 2)).astype(np.float32)
    out_pk = run(logits_pk, 0.3, [1.0, 1.0], [-1.0, 1.0])
    np.testing.assert_allclose(out_pk, torch.softmax(torch.tensor(logits_pk), 1), atol=1e-6)


def test_equal_values_leave_nothing_to_calibrate():
    logits_pk = np.float32([[0.0, 1.0, 2.0]])
    out_pk = run(logits_pk, 0.5, np.zeros(3), np.zeros(3))
    np.testing.assert_allclose(out_pk, torch.softmax(torch.tensor(logits_pk) * 0.5, 1), atol=1e-6)


@pytest.mark.parametrize("column", [0, 2, 4])
def test_not_a_number_stays_visible(column):
    logits_pk = np.zeros((2, 5), np.float32)
    logits_pk[1, column] = np.nan
    place_k = np.linspace(-1, 1, 5)
    out_pk = run(logits_pk, 0.5, place_k**2, place_k)
    assert np.isfinite(out_pk[0]).all()
    assert np.isnan(out_pk[1]).all()


def test_does_not_depend_on_the_number_of_threads(monkeypatch):
    logits_pk = np.random.default_rng(0).normal(0, 2, (1000, 5)).astype(np.float32)
    place_k = np.linspace(-1, 1, 5)
    results = []
    for threads in ("1", "3"):
        monkeypatch.setenv("CFUICA_THREADS", threads)
        results.append(run(logits_pk, 0.7, place_k**2, place_k))
    np.testing.assert_array_equal(*results)
