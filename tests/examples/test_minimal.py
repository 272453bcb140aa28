"""The example is the package's rating model: same logits, loss, blocks and optimiser steps."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch

from cfuica.data.matrix import InteractionMatrix
from cfuica.model.network import Network
from cfuica.ops import reference
from cfuica.settings import rating_preset
from cfuica.training.batches import PublishedEstimator, make_estimator
from cfuica.training.optimizer import Adam
from cfuica.training.rating_task import RatingTask
from tests.model.reference import parameters_of, predicted
from tests.training.blocks import cells_of, context_of

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "minimal.py"
N_USERS, N_ITEMS, N_LABELS = 60, 40, 5
LETTERS = "WcVb"
RATE = 0.03


@pytest.fixture(scope="module")
def minimal():
    spec = importlib.util.spec_from_file_location("minimal", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def dense_nm():
    """The paper's R: labels from 1, 0 unobserved."""
    rng = np.random.default_rng(3)
    labels_nm = rng.integers(1, N_LABELS + 1, (N_USERS, N_ITEMS))
    return labels_nm * (rng.random(labels_nm.shape) < 0.3)


@pytest.fixture(scope="module")
def matrix(dense_nm):
    users, items = np.nonzero(dense_nm)
    return InteractionMatrix.from_triplets(
        users,
        items,
        dense_nm[users, items] - 1,
        n_users=N_USERS,
        n_items=N_ITEMS,
        n_labels=N_LABELS,
    )


@pytest.fixture
def settings():
    """The published experiments, small."""
    return rating_preset("paper").replaced(
        batch_users=25, batch_items=20, hidden_users=9, hidden_items=7
    )


def new_network(hidden_users, hidden_items, seed=0):
    settings = rating_preset("paper").replaced(hidden_users=hidden_users, hidden_items=hidden_items)
    rows = {"users": N_USERS + 1, "items": N_ITEMS + 1}
    return Network.of(settings, rows, N_LABELS).initialise(seed)


@pytest.fixture
def model():
    """Untrained, but for biases that are not zero, so that none can be forgotten."""
    network = new_network(9, 7, seed=5)
    generator = torch.Generator().manual_seed(6)
    for side in network.sides.values():
        side.c.data.uniform_(-0.5, 0.5, generator=generator)
        side.b.values[:-1].uniform_(-0.5, 0.5, generator=generator)
    return network


def sides_of(minimal, model):
    """The example's parameters: stored columns, without the row of cold-start users and items."""

    def stored(letter, tensor):
        own = tensor if letter == "c" else reference.differences(tensor[:-1])
        return own.clone().requires_grad_()

    parameters = [parameters_of(model.sides[name]) for name in ("users", "items")]
    return [minimal.Side(**{key: stored(key, own[key]) for key in LETTERS}) for own in parameters]


def batch_of(minimal, block):
    """The example's form of a block."""
    users, items = block.pairs.users.rows, block.pairs.items.rows
    labels_nm = np.zeros((N_USERS, N_ITEMS), np.int64)
    for cell, label in cells_of(block).items():
        labels_nm[cell] = label + 1

    def context(side, queries, size):
        context_qn = np.zeros((len(queries), size), np.int64)
        of_query = context_of(block, side, N_LABELS)
        for row, query in enumerate(queries.tolist()):
            for index, label in of_query[query].items():
                context_qn[row, index] = label + 1
        return torch.tensor(context_qn)

    return minimal.Batch(
        torch.tensor(users, dtype=torch.long),
        torch.tensor(items, dtype=torch.long),
        torch.tensor(labels_nm[np.ix_(users, items)]),
        context("users", items, N_USERS),
        context("items", users, N_ITEMS),
    )


def loss_of(model, block, matrix, settings):
    total, count = RatingTask.of(matrix, settings).loss(model, block)
    return total / count


def test_the_constants_are_those_of_the_published_experiments(minimal):
    published = rating_preset("paper")
    assert published.share_labels
    assert published.ordinal_weight == 1
    assert published.estimator == "published"
    assert published.activation == "tanh"
    for constant, setting in {
        "BETA1": published.beta1,
        "BETA2": published.beta2,
        "EPSILON": published.epsilon,
        "L2": published.l2,
        "MAX_NORM": published.max_norm,
        "MAX_ENTRY": published.max_entry,
        "FLOOR": reference.ORDINAL_FLOOR,
    }.items():
        assert getattr(minimal, constant) == setting, constant


@pytest.mark.parametrize("step", range(3))
def test_logits_and_loss_are_the_packages(minimal, model, matrix, settings, step):
    block = make_estimator(matrix, settings).draw(step)
    logits_pk = model(block.pairs, model.encode(block.contexts)).detach()
    expected_loss = loss_of(model, block, matrix, settings).item()

    sides, batch = sides_of(minimal, model), batch_of(minimal, block)
    i, j = block.pairs.items.query_of_pair, block.pairs.users.query_of_pair  # places in the block
    found_pk = minimal.logits(*sides, batch).detach()[i, j]
    assert logits_pk.std() > 0.3
    torch.testing.assert_close(found_pk, logits_pk, atol=1e-5, rtol=0)
    assert minimal.loss(*sides, batch).item() == pytest.approx(expected_loss, abs=1e-5)


@pytest.mark.parametrize(
    ("max_norm", "max_entry", "l2"),
    [(5.0, 1.0, 1e-4), (0.05, 1.0, 1e-4), (5.0, 0.003, 1e-4), (0.1, 0.01, 0.1)],
    ids=["published", "norm limited", "entries limited", "both limited, penalised"],
)
def test_three_steps_of_adam_are_the_packages(
    minimal, model, matrix, settings, monkeypatch, max_norm, max_entry, l2
):
    for constant, value in {"MAX_NORM": max_norm, "MAX_ENTRY": max_entry, "L2": l2}.items():
        monkeypatch.setattr(minimal, constant, value)
    settings = settings.replaced(max_norm=max_norm, max_entry=max_entry, l2=l2)
    estimator, optimizer = make_estimator(matrix, settings), Adam(model, settings)
    before = deepcopy(model)
    sides = sides_of(minimal, model)
    moments = [torch.zeros(2, *tensor.shape) for side in sides for tensor in side]
    for step in range(3):
        block = estimator.draw(step)
        loss_of(model, block, matrix, settings).backward()
        optimizer.step(RATE)
        batch_loss = minimal.loss(*sides, batch_of(minimal, block))
        minimal.adam_step(sides, moments, step + 1, batch_loss, RATE)

    for name, first, found, expected in zip(
        ("UUC", "IIC"),
        sides_of(minimal, before),
        sides,
        sides_of(minimal, model),
        strict=True,
    ):
        for letter in LETTERS:
            old, new, wanted = (getattr(side, letter) for side in (first, found, expected))
            assert (wanted - old).abs().max() > 1e-2, f"{letter} of {name} did not move"
            torch.testing.assert_close(new, wanted, atol=1e-5, rtol=0)


def test_it_draws_the_blocks_of_the_published_estimator(minimal, matrix, dense_nm, monkeypatch):
    """The same users, items and labels from the same key; context from outside the block, of which
    the coins, drawn in another way, keep the same share."""
    monkeypatch.setattr(minimal, "BATCH_USERS", 25)
    monkeypatch.setattr(minimal, "BATCH_ITEMS", 20)
    estimator = PublishedEstimator(matrix, batch_users=25, batch_items=20, seed=8)
    observed = torch.tensor(dense_nm)
    sizes, sizes_of_package = np.zeros((2, 2))
    for step in range(40):
        rng = np.random.Generator(np.random.PCG64([8, step]))
        found = minimal.draw_batch(observed, rng)
        expected = batch_of(minimal, estimator.draw(step))
        for mine, theirs in zip(found[:3], expected[:3], strict=True):
            assert torch.equal(mine, theirs)
        for context_qn, seen_qn, closed in (
            (found.uuc_jn, observed.T[found.items], found.users),
            (found.iic_in, observed[found.users], found.items),
        ):
            assert not context_qn[:, closed].any()
            assert torch.equal(context_qn, seen_qn * (context_qn > 0))
        sizes += [int((found.uuc_jn > 0).sum()), int((found.iic_in > 0).sum())]
        sizes_of_package += [int((expected.uuc_jn > 0).sum()), int((expected.iic_in > 0).sum())]
    np.testing.assert_allclose(sizes, sizes_of_package, rtol=0.05)


def test_it_predicts_what_the_package_predicts(minimal, model, matrix, dense_nm):
    users, items = (each.astype(np.int32) for each in np.nonzero(dense_nm == 0))
    expected_p = predicted(model, matrix, users, items) @ np.arange(1, N_LABELS + 1)
    found_nm = minimal.predict(*sides_of(minimal, model), torch.tensor(dense_nm))
    np.testing.assert_allclose(found_nm[users, items], expected_p, atol=1e-5)


def test_it_begins_as_the_package_does(minimal):
    network = new_network(minimal.HIDDEN, minimal.HIDDEN)
    rng = np.random.default_rng(0)
    for n, expected in zip((N_USERS, N_ITEMS), sides_of(minimal, network), strict=True):
        found = minimal.initial_side(n, N_LABELS, rng)
        for letter in LETTERS:
            mine, theirs = getattr(found, letter), getattr(expected, letter)
            assert mine.shape == theirs.shape
            assert mine.abs().max().item() == pytest.approx(theirs.abs().max().item(), rel=0.01)
            assert mine.detach().std().item() == pytest.approx(
                theirs.detach().std().item(), rel=0.05
            )


def test_it_is_short_and_imports_only_torch_numpy_and_our_data():
    text = EXAMPLE.read_text()
    assert len(text.splitlines()) <= 150
    modules = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            modules.append(node.module)
    for module in modules:
        top = module.partition(".")[0]
        allowed = top in {"torch", "numpy"} or top in sys.stdlib_module_names
        assert allowed or f"{module}.".startswith("cfuica.data."), module


def test_it_runs_and_beats_the_global_mean():
    done = subprocess.run(
        [sys.executable, EXAMPLE, "100"], capture_output=True, text=True, check=True, timeout=120
    )
    scores = re.search(
        r"test RMSE ([\d.]+); global mean ([\d.]+), best possible ([\d.]+)", done.stdout
    )
    found, by_mean, best = map(float, scores.groups())
    assert best < found < 0.9 * by_mean
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", done.stdout)]
    assert losses[-1] < losses[0]
