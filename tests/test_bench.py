from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from cfuica import bench
from cfuica.bench import KERNELS, PARTS, timed_kernels
from cfuica.data.matrix import InteractionMatrix, RatedPairs
from cfuica.ops import adam, decode, encode, loss, tables
from cfuica.ops.runtime import run_rows
from cfuica.reproduction.dense import DenseAuthors, DenseBest
from cfuica.settings import RatingSettings
from cfuica.training.rating_task import RatingTask, pair_contexts

CALLERS = (encode, decode, loss, adam, tables)
SMALL = RatingSettings(hidden_users=6, hidden_items=4, batch_users=20, batch_items=10)


def _matrix() -> InteractionMatrix:
    rng = np.random.default_rng(2)
    users, items = np.nonzero(rng.random((60, 30)) < 0.3)
    return InteractionMatrix.from_triplets(
        users, items, rng.integers(0, 3, users.size), n_users=60, n_items=30, n_labels=3
    )


def test_the_bench_reports_everything_the_command_prints() -> None:
    lines: list[str] = []
    measured = bench.bench_step(_matrix(), SMALL, repeats=3, dense_repeats=2, log=lines.append)
    report: dict[str, Any] = json.loads(json.dumps(measured))
    for key in ("median_s", "dense_median_s", "dense_best_median_s"):
        assert report[key] > 0
    assert report["speedup"] == pytest.approx(report["dense_median_s"] / report["median_s"])
    assert report["speedup_best"] == pytest.approx(
        report["dense_best_median_s"] / report["median_s"]
    )
    assert set(report["parts"]) == set(PARTS)
    assert all(report["parts"][name] > 0 for name in PARTS)
    assert report["hidden"] == {"users": 6, "items": 4}
    assert report["labels"] == 3
    assert 0 < report["block"]["users"] <= 20
    assert 0 < report["block"]["items"] <= 10
    assert set(report["machine"]) == {"cpu", "cores", "threads"}
    assert len(lines) == 4


def test_a_one_sided_model_can_be_measured() -> None:
    settings = SMALL.replaced(sides="items", share_labels=False)
    measured = bench.bench_step(_matrix(), settings, repeats=1, dense_repeats=1)
    assert measured["hidden"] == {"items": 4}
    assert "context_entries_users" not in measured["block"]


def test_every_kernel_of_a_step_belongs_to_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel with a new name must be given a part, or it would hide in the rest."""
    seen = set()

    def spy(kernel: Any, rows: int, *args: Any, **kwargs: Any) -> None:
        seen.add(kernel.__name__)
        run_rows(kernel, rows, *args, **kwargs)

    for module in CALLERS:
        monkeypatch.setattr(module, "run_rows", spy)
    ours = bench._Ours(_matrix(), SMALL)
    ours.step(ours.estimator.draw(0))
    # The inner products of gradients and parameters are small sums, which are part of the rest.
    assert seen - {"paired"} == {kernel for kernels in KERNELS.values() for kernel in kernels}


def test_clocks_are_taken_out_again_after_an_error() -> None:
    def interrupted() -> None:
        with timed_kernels():
            assert all(module.run_rows is not run_rows for module in CALLERS)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    for module in CALLERS:
        assert module.run_rows is run_rows


def test_a_test_set_is_predicted_the_same_by_all_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """The forms race fairly: what each of them is timed on has one loss."""
    rng = np.random.default_rng(3)
    users_p, items_p = np.nonzero(rng.random((60, 30)) < 0.05)
    labels_p = rng.integers(0, 3, users_p.size).astype(np.uint8)
    test = RatedPairs(
        users_p.astype(np.int32), items_p.astype(np.int32), labels_p, labels_p.astype(np.float64)
    )
    losses = []
    for form in (DenseAuthors, DenseBest):
        own = form.loss

        def spy(self: Any, block: Any, factor: float, own: Any = own) -> Any:
            losses.append(float(own(self, block, factor)))
            return own(self, block, factor)

        monkeypatch.setattr(form, "loss", spy)
    task = RatingTask.of(_matrix(), SMALL)
    monkeypatch.setattr(bench.RatingTask, "of", lambda *_: task)
    measured = bench.bench_test(_matrix(), test, SMALL, repeats=2)
    every = {side: np.arange(n, dtype=np.int32) for side, n in (("users", 60), ("items", 30))}
    pairs, contexts = pair_contexts(_matrix(), test.users_p, test.items_p, every)
    network = task.new_network(0)
    loss = float(task.pair_loss(network(pairs, network.encode(contexts)), labels_p).detach())
    assert losses == pytest.approx([loss] * 4, rel=1e-5)
    assert measured["pairs"] == test.n
    for key in ("median_s", "dense_median_s", "dense_best_median_s"):
        assert measured[key] > 0
