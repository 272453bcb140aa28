"""The checks of `cfuica doctor`: a complete installation, and a machine that computes correctly.

`examine` gives a `Diagnosis`: facts by topic for a bug report, and checks with what to do where one
fails. Modules that need third-party packages are imported inside the functions, because the doctor
has to name a package that is missing. Paths hide the user's name: the home folder is written as ~.
"""

from __future__ import annotations

import copy
import os
import platform
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import cfuica
from cfuica.io import expanded


@dataclass(frozen=True)
class Check:
    """One thing that was checked; `advice` says what to do where it is not `ok`."""

    name: str
    ok: bool
    found: str
    advice: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """Facts by topic, and checks."""

    facts: dict[str, dict[str, Any]]
    checks: list[Check]

    @property
    def healthy(self) -> bool:
        return all(check.ok for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        checks = [asdict(check) for check in self.checks]
        return {"healthy": self.healthy, **self.facts, "checks": checks}


def examine(*, compile_all: bool = False) -> Diagnosis:
    """Gather facts and run every check: seconds, or about a minute where numba has to compile.

    With `compile_all` all that a later process may call is compiled and stored.
    """
    found = packages()
    facts: dict[str, dict[str, Any]] = {"versions": {"cfuica": cfuica.__version__}}
    facts["versions"] |= {"python": platform.python_version(), "platform": platform.platform()}
    facts["versions"] |= {package.name: package.installed for package in found}
    checks = [check_packages(found)]
    if any(package.installed is None for package in found):
        return Diagnosis(facts, checks)  # nothing else can be imported
    facts |= surroundings()
    checks += [*check_environment(), check_numba_cache(), *check_computation()]
    if compile_all:
        from cfuica.models.warm_up import warm_up

        warm_up("rating")
        warm_up("ranking")
    return Diagnosis(facts, checks)


class Package(NamedTuple):
    """A package that cfuica needs; `installed` is its version."""

    name: str
    least: str
    installed: str | None

    @property
    def suffices(self) -> bool:
        return self.installed is not None and _release(self.installed) >= _release(self.least)


def packages() -> list[Package]:
    """Every package that cfuica needs without its extras; none where it was never installed."""
    try:
        declared = requires("cfuica") or []
    except PackageNotFoundError:
        return []
    found = []
    for line in declared:  # such as "numpy>=1.26", or "tensorboard>=2.16; extra == 'viz'"
        if "extra ==" in line:
            continue
        name = re.split(r"[^\w.-]", line)[0]
        least = re.search(r">=\s*([\d.]+)", line.partition(";")[0])
        try:
            installed = version(name)
        except PackageNotFoundError:
            installed = None
        found.append(Package(name, least[1] if least else "0", installed))
    return found


def check_packages(needed: list[Package]) -> Check:
    """Whether every package that cfuica needs is installed and new enough."""
    wrong = [package for package in needed if not package.suffices]
    if not needed:
        text = "cfuica runs from a source tree that was never installed"
        return Check("packages", False, text, "Install it: pip install -e . in its folder.")
    if not wrong:
        return Check("packages", True, f"all {len(needed)} are installed and new enough")
    text = ", ".join(f"{package.name} is {package.installed or 'missing'}" for package in wrong)
    install = " ".join(f"'{package.name}>={package.least}'" for package in wrong)
    return Check("packages", False, text, f"Install what is wrong: pip install {install}")


def _release(version: str) -> list[int]:
    """The numbers of a version, to compare: "2.13.0+cpu" is [2, 13, 0]."""
    return [int(number) for number in re.findall(r"\d+", version.partition("+")[0])]


def surroundings() -> dict[str, dict[str, Any]]:
    """Facts about the machine, the data sets, the folders and the environment variables."""
    import torch

    from cfuica.data import datasets
    from cfuica.ops.runtime import machine

    gpus = [f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(torch.cuda.device_count())]
    devices = ["cpu", *gpus, *(["mps"] if torch.backends.mps.is_available() else [])]
    memory = None  # Windows has no sysconf
    if hasattr(os, "sysconf"):
        memory = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    # The values of other variables may be secrets.
    shown = ("CFUICA_DATA", "CFUICA_CACHE", "CFUICA_THREADS", "CFUICA_DEBUG")
    own = sorted(name for name in os.environ if name.startswith("CFUICA_"))
    return {
        "machine": {**machine(), "memory_gb": memory, "devices": devices},
        "data": {name: path and with_tilde(path) for name, path in datasets.found().items()},
        "data_folder": _folder(datasets.homes()[0]),
        "cache_folder": _folder(datasets.cache_folder()),
        "environment": {n: with_tilde(os.environ[n]) if n in shown else "set" for n in own},
    }


def check_environment() -> list[Check]:
    """Variables that are set; the rest of cfuica ignores a value that it cannot use."""
    checks = []
    if threads := os.environ.get("CFUICA_THREADS"):
        ok = threads.isdigit() and int(threads) > 0
        advice = "Set CFUICA_THREADS to a whole number from 1, or unset it."
        checks.append(Check("CFUICA_THREADS", ok, threads, "" if ok else advice))
    if data := os.environ.get("CFUICA_DATA"):
        ok, text = expanded(data).is_dir(), with_tilde(data)
        advice = "Set CFUICA_DATA to a folder that exists, create it, or unset it."
        checks.append(Check("CFUICA_DATA", ok, text, "" if ok else advice))
    return checks


def check_numba_cache() -> Check:
    """Whether numba can store compiled code; else every start compiles for half a minute."""
    from cfuica import ops
    from cfuica.ops.encode import apply_f

    if not hasattr(apply_f, "stats"):
        text, advice = "the operations are not compiled", "Unset NUMBA_DISABLE_JIT to compile."
        return Check("numba cache", False, text, advice)
    folder = Path(str(apply_f.stats.cache_path))
    if ops.temporary_cache is not None:
        text = "a temporary folder, because no other can be written"
        if ops.is_filled:
            return Check("numba cache", True, f"{text}; it began with stored code")
    elif os.access(_existing(folder), os.W_OK):
        return Check("numba cache", True, f"{with_tilde(folder)} can be written")
    else:
        text = f"{with_tilde(folder)} can not be written"
    advice = "Set NUMBA_CACHE_DIR to a folder that can be written."
    return Check("numba cache", False, text, advice)


def with_tilde(path: Path | str) -> str:
    """A path without the name of the user whose home it is in."""
    text, home = str(path), str(Path.home())
    return "~" + text[len(home) :] if text == home or text.startswith(home + os.sep) else text


def _folder(folder: Path) -> dict[str, Any]:
    free = shutil.disk_usage(_existing(folder)).free
    return {"path": with_tilde(folder), "free_gb": round(free / 1e9, 1)}


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())


# Relative to the largest number: float32 sums of the same numbers in another order differ by less.
TOLERANCE = 1e-4
ADVICE = (
    "Results of this machine cannot be trusted: delete the folder of numba's cache, "
    "run cfuica doctor again, and if it persists report it with the output of cfuica doctor --json."
)


def check_computation() -> list[Check]:
    """Run the compiled operations on a toy problem as training and serving do, and compare with
    autograd on the torch definitions, with a fresh load, with batch prediction and with sorting."""
    import numpy as np
    import torch

    from cfuica.data.matrix import Csr, InteractionMatrix, Timeline
    from cfuica.inference.recommend import top_k
    from cfuica.live.live_state import LiveState
    from cfuica.metrics import ranking_metrics
    from cfuica.model import network as networks
    from cfuica.ops.tables import SideName
    from cfuica.settings import RankingSettings, RatingSettings
    from cfuica.training import optimizer, ranking_task, rating_task

    # Few different times, so that some interactions of a user are simultaneous; odd numbers of
    # hidden units, which leave a remainder beside the processor's vectors.
    rng = np.random.default_rng(0)
    shape: dict[str, Any] = {"n_users": 40, "n_items": 30}
    is_seen_ui = rng.random((40, 30)) < 0.4
    users, items = (index.astype(np.int32) for index in np.nonzero(is_seen_ui))
    labels, times = rng.integers(0, 5, len(users)), rng.integers(0, 99, len(users))
    matrix = InteractionMatrix.from_triplets(users, items, labels, n_labels=5, **shape)
    timeline, seen = Timeline.of(users, items, times, **shape), Csr.of_pairs(users, items, 40)
    all_users, every_item = np.arange(40, dtype=np.int32), np.arange(30, dtype=np.int32)
    rows: dict[SideName, Any] = {"users": all_users, "items": every_item}
    values_k, new_item = np.arange(1, 6, dtype=np.float32), int(np.argmin(is_seen_ui[0]))
    common: dict[str, Any] = {"hidden_users": 17, "hidden_items": 9, "dropout": 0.2}
    common |= {"batch_users": 20, "l2": 1e-3, "max_norm": None, "max_entry": None}
    cold_start = {"cold_start_units": 7, "bilinear_rate": 1}
    settings = RatingSettings(
        **common, **cold_start, ordinal_weight=0.5, length_normalisation=1, batch_items=15
    )
    rating = rating_task.RatingTask.of(matrix, settings)
    sampled = RankingSettings(
        **common,
        loss="sampled-softmax",
        softmax_candidates=15,
        learned_decay=True,
        residual_units=11,
    )
    softmax = ranking_task.RankingTask.of(timeline, sampled)
    pointwise = RankingSettings(**common, loss="bernoulli", batch_items=15, activation="sigmoid")
    bernoulli = ranking_task.RankingTask.of(timeline, pointwise)

    def difference(found: Any, expected: Any) -> float:
        """Relative to the largest expected number; absolute where all of them are 0."""
        one, other = np.asarray(found, np.float64), np.asarray(expected, np.float64)
        return float(np.abs(one - other).max() / (np.abs(other).max() or 1.0))

    def random_network(task: Any, number: int = 0) -> networks.Network:
        """Random parameters, because the initial ones have zeros, which hide errors."""
        network: networks.Network = task.new_network(number)
        for tensor in network.state_dict().values():
            tensor.copy_(torch.from_numpy(rng.normal(0, 0.3, tuple(tensor.shape))))
        return network

    def minibatch(task: Any, number: int = 0) -> Iterator[float]:
        """Loss, gradients, and the parameters after a step of Adam."""
        began, block = random_network(task, number), task.blocks(number).draw(0)

        def step() -> list[Any]:
            network = copy.deepcopy(began)
            total, count = task.loss(network, block)
            (total / count).backward()
            gradients = [table.dense_gradient() for table in network.tables.values()]
            gradients += [each.grad for each in network.parameters() if each.grad is not None]
            optimizer.Adam(network, task.settings).step(0.1)
            return [total.detach(), *gradients, *network.state_dict().values()]

        own = step()
        with mock.patch.dict(os.environ, CFUICA_OPS="reference"):
            expected = step()
        yield from map(difference, own, expected)

    @torch.no_grad()
    def live(task: Any, interactions: Any) -> Iterator[float]:
        """An interaction comes, one changes its time, one goes, and a user is forgotten. Compared
        with a fresh load, and with the prediction that validates a training."""
        network = random_network(task)
        state = LiveState.of(network, interactions, rows)
        state.item_logits(state.profiles(all_users))  # so that sums exist before they change
        state.change(0, new_item, 0, 99)
        state.change(int(users[0]), int(items[0]), 0, 100)
        state.change(int(users[-1]), int(items[-1]), None)
        state.forget("users", 7)
        now, now_rows = state.collected(), {axis: state.rows(axis) for axis in rows}
        fresh = LiveState.of(network, now, now_rows)
        logits_bmk = state.item_logits(state.profiles(all_users))
        fresh_bmk = fresh.item_logits(fresh.profiles(all_users))
        yield float(not np.array_equal(logits_bmk, fresh_bmk))
        if isinstance(now, Timeline):
            batch = ranking_task.ranker(network, ranking_task.whole_contexts(now, now.by_item()))
            yield difference(state.ranker().scores(all_users), batch.scores(all_users))
            # Both ways went through the same residual layer.
            sums_qh = torch.from_numpy(rng.normal(0, 1, (7, 9)).astype(np.float32))
            side = network.sides["items"]
            with mock.patch.dict(os.environ, CFUICA_OPS="reference"):
                expected_qh = side.hidden(sums_qh)
            yield difference(side.hidden(sums_qh), expected_qh)
            return
        asked = [index.ravel().astype(np.int32) for index in np.indices((40, 30))]
        logits_pk = state.pair_logits(*asked)
        pairs, contexts = rating_task.pair_contexts(now, asked[0], asked[1], rows)
        p_pk = networks.softmax(network(pairs, network.encode(contexts)).numpy())
        yield difference(networks.softmax(logits_pk), p_pk)
        yield difference(networks.expected_rating(logits_pk[None], values_k)[0], p_pk @ values_k)

    def top_k_and_ranks() -> Iterator[float]:
        """By scores with many ties. One item of each user is relevant: its reciprocal rank."""
        vectors = (rng.integers(-2, 3, size).astype(np.float32) for size in ((40, 3), (30, 3), 30))
        ranker = networks.Ranker(*vectors)
        scores_um = ranker.scores(all_users)
        others_um, item_u = np.where(is_seen_ui, -np.inf, scores_um), np.argmin(is_seen_ui, 1)
        top = top_k(scores_um, 5, seen_offsets=seen.offsets, seen_items=seen.indices)
        yield difference(top.items, np.argsort(-others_um, 1, kind="stable")[:, :5].ravel())
        others_um[all_users, item_u] = -np.inf
        relevant = Csr.of_pairs(all_users, item_u, 40)
        ranking_test = ranking_metrics.RankingTest.among_unseen(
            "all unseen", all_users, relevant, seen=seen, catalogue_m=every_item >= 0
        )
        found_u = ranking_metrics.answer(ranking_test, ranker, (30,)).per_user["mrr@30"]
        above_um = others_um >= scores_um[all_users, item_u][:, None]
        yield difference(found_u, 1 / (1 + above_um.sum(1)))

    checks = []
    for name, differences in {
        "rating minibatch": minibatch(rating),
        "cold-start minibatch": minibatch(rating, 1),
        "softmax minibatch": minibatch(softmax),
        "Bernoulli minibatch": minibatch(bernoulli),
        "live rating model": live(rating, matrix),
        "live ranking model": live(softmax, timeline),
        "top-k and ranks": top_k_and_ranks(),
    }.items():
        try:
            largest = float(np.max(list(differences)))  # not a number, if any of them is
            text = f"largest relative difference {largest:.0e}"
        except Exception as error:  # whatever it is, the user called the doctor to find it
            largest, text = np.inf, f"{type(error).__name__}: {error}".splitlines()[0]
        ok = largest <= TOLERANCE
        checks.append(Check(name, ok, text, "" if ok else ADVICE))
    return checks
