"""The systems of the paper's tables as data: what is trained for each row, and what was published.

A row beyond the paper is marked so. `tuned.toml` has settings that tuning found, by data set.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from cfuica.models.recommender import MODELS, kind_named
from cfuica.reproduction.cells import Cell
from cfuica.settings import CommonSettings, TrainingSettings

ML_1M, NETFLIX = "ml-1m", "netflix"
FOLDS, VALID = 10, 0.05
# So many epochs of a baseline at most, in a quick reproduction.
_QUICK_EPOCHS = 130
# The seconds of a quick cell are mostly those of starting programs.
_QUICK_MINUTES = 0.2
# How many times as many ratings as MovieLens 1M it has.
_NETFLIX_TIMES = 100
_ON_NETFLIX = (CommonSettings.model, "biasmf", "bias")


@dataclass(frozen=True)
class System:
    """A row of a table.

    `published` has the paper's figures: of ratings the RMSE by data set; of rankings HR@10 and
    NDCG@10 by protocol.
    """

    name: str  # of files, and for --systems
    row: str  # as the paper has it
    model: str = CommonSettings.model
    task: Literal["rating", "ranking"] = "rating"
    preset: str = "default"
    published: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    origin: Literal["paper", "ours", "beyond the paper"] = "paper"
    changes: Mapping[str, Any] = field(default_factory=dict)
    quick: Mapping[str, Any] = field(default_factory=dict)  # more changes, with --quick
    minutes: float = 5.0
    needs_tuning: bool = False  # a row of its own for what tuning found
    variant_of: str = ""  # the name of another row

    @property
    def base(self) -> str:
        """The name of the row that it is a variant of, or its own."""
        return self.variant_of or self.name

    def why_not(self, data: str, *, quick: bool) -> str | None:
        """Why it cannot be run; None where it can."""
        if data == NETFLIX and self.model not in _ON_NETFLIX:
            return "on Netflix only CF-UIcA, BiasMF and the bias are run"
        if self.model not in MODELS:
            return f"there is no model {self.model} yet"
        if self.needs_tuning and not quick and not self.tuned(data):
            return f"not tuned on {data}"
        return None

    def tuned(self, data: str) -> Mapping[str, Any]:
        """Settings that tuning found."""
        return tuned().get(data, {}).get(self.task, {}).get(self.base, {})

    def settings(self, data: str, *, quick: bool) -> tuple[TrainingSettings, dict[str, Any]]:
        """All settings, and those that differ from the preset's."""
        preset = kind_named(self.model, self.task).preset(self.preset)
        changes = {**self.changes, **self.quick} if quick else {**self.tuned(data), **self.changes}
        if quick and "epochs" not in changes and (epochs := getattr(preset, "epochs", None)):
            changes["epochs"] = min(epochs, _QUICK_EPOCHS)
        return preset.replaced(**changes), changes

    def variant(self, suffix: str, **changes: Any) -> System:
        """The same with other settings, under a name of its own."""
        name, row = f"{self.name}-{suffix}", f"{self.row}, {suffix}"
        own: dict[str, Any] = {
            "changes": {**self.changes, **changes},
            "quick": {**self.quick, **changes},
            "variant_of": self.name,
            "published": {},
        }
        return replace(self, name=name, row=row, **own)

    def cell(
        self,
        data: str,
        *,
        fold: int | None,
        seed: int,
        quick: bool,
        protocols: tuple[str, ...] = (),
        file: str | None = None,
        content: str = "",
    ) -> Cell:
        """Its training and its test, of rankings by each protocol. `file` is read in place of the
        data set of that name; `content` is a hash of what is read."""
        settings, changes = self.settings(data, quick=quick)
        words = ["train", file or data, "--model", self.model]
        if self.model == CommonSettings.model:
            words += ["--task", self.task, "--preset", self.preset]
        place = f"seed {seed}"
        asked = ["evaluate", "{run}", "--json", "--per-user", "{users}"]
        if self.task == "rating":
            place = f"fold {fold}, {place}"
            words += ["--split", "random", "--folds", str(FOLDS), "--fold", str(fold)]
            words += ["--valid", str(VALID)]
            questions = {"ratings": tuple(asked)}
        else:
            words += ["--split", "leave-one-out"]
            questions = {each: (*asked, "--protocol", each) for each in protocols}
        words += ["--seed", str(seed)]
        for name, value in sorted(changes.items()):
            text = "none" if value is None else value
            text = text if isinstance(text, str) else json.dumps(text)
            words += ["--set", f"{name}={text}"]
        parts = [data, self.task, self.name, f"fold{fold}" * (self.task == "rating"), f"seed{seed}"]
        return Cell(
            name="-".join(filter(None, [*parts, "quick" * quick])),
            title=f"{self.row}, {data}, {place}",
            system=f"{data} {self.name}",
            questions=questions,
            train=tuple(words),
            settings=settings.replaced(seed=seed).model_dump(),
            content=content,
            fold=fold,
            seed=seed,
            minutes=_QUICK_MINUTES if quick else self.minutes,
        )


@cache
def tuned() -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
    """Settings that tuning found: by data set, task and name of the system."""
    text = Path(__file__).with_name("tuned.toml").read_text("utf-8")
    return tomllib.loads(text)


def _baseline(
    model: str,
    row: str,
    rmse: float | None = None,
    netflix: float | None = None,
    **more: Any,
) -> System:
    figures = {ML_1M: rmse, NETFLIX: netflix}
    published = {data: (figure,) for data, figure in figures.items() if figure is not None}
    return System(**{"name": model, "row": row, "model": model, "published": published, **more})


def _ranking(model: str, row: str, ncf: tuple[float, float] | None = None, **more: Any) -> System:
    """NCF's protocol is that of the figures which the paper quotes."""
    published = {} if ncf is None else {"ncf": ncf}
    own: dict[str, Any] = {"name": model, "row": row, "model": model, "published": published}
    return System(**{**own, "task": "ranking", **more})


_SHORT: dict[str, Any] = {
    "hidden_users": 64, "hidden_items": 64, "schedule": "planned", "keep_best": True,
    "learning_rate": 8e-3, "l2": 3e-4, "max_steps": 240, "validate_every": 40,
}  # fmt: skip
_SHORT_RANKING: dict[str, Any] = {
    "hidden_users": 64, "hidden_items": 64, "epochs": 16.0, "learning_rate": 6e-3,
    "validate_every": 100,
}  # fmt: skip

PAPER = System(
    "cf-uica-paper", "CF-UIcA (preset paper)", preset="paper", quick=_SHORT, minutes=22,
    published={ML_1M: (0.823,)},
)  # fmt: skip
DEFAULT = System(
    "cf-uica-default", "CF-UIcA (preset default)", origin="ours", minutes=11,
    quick={"ensemble_size": 1, "cold_start_units": 0, "max_steps": 300},
)  # fmt: skip
BIAS = _baseline("bias", "user + item bias", origin="beyond the paper", minutes=0.1)
_SHORT_NADE: dict[str, Any] = {"hidden": 100, "epochs": 60, "batch": 64}
I_CF_NADE = _baseline("i-cf-nade-s", "I-CF-NADE-S", 0.829, minutes=15, quick=_SHORT_NADE)

RATING = (
    _baseline("pmf", "PMF", 0.883),
    _baseline(
        "pmf", "PMF, tuned", 0.883, name="pmf-tuned", needs_tuning=True,
        quick={
            "learning_rate": 20.0, "factors": 20, "initial_deviation": 0.03, "l2": 0.1,
            "batches": 4,
        },
    ),
    _baseline("u-rbm", "U-RBM", 0.881, 0.845, minutes=10),
    _baseline("u-autorec", "U-AutoRec", 0.874, quick={"hidden_units": 100, "l2": 20.0}),
    _baseline("llorma-global", "LLORMA-Global", 0.865, 0.874, minutes=10),
    _baseline("i-rbm", "I-RBM", 0.854, minutes=10),
    _baseline("biasmf", "BiasMF", 0.845, 0.844, minutes=1),
    _baseline(
        "u-cf-nade-s", "U-CF-NADE-S (2 layers)", 0.845, 0.803, minutes=15, quick=_SHORT_NADE
    ),
    _baseline(
        "nnmf", "NNMF", 0.843, minutes=17,
        quick={"learning_rate": 0.02, "l2": 20.0, "epochs": 90},
    ),
    _baseline("llorma-local", "LLORMA-Local", 0.833, 0.834, minutes=10),
    _baseline("i-autorec", "I-AutoRec", 0.831, 0.823, minutes=10),
    replace(I_CF_NADE, row="I-CF-NADE-S (2 layers)"),
    PAPER,
    System(
        "cf-uica-as-written", "CF-UIcA (preset paper-as-written)", preset="paper-as-written",
        origin="ours", quick={**_SHORT, "l2": 1e-5}, minutes=13,
    ),
    DEFAULT,
    BIAS,
    _baseline("item-knn-ratings", "item-kNN", origin="beyond the paper", minutes=1),
)  # fmt: skip

NETFLIX_CLUSTERS = tuple(
    System(
        f"cf-uica-netflix-c{clusters}", f"CF-UIcA (paper-netflix), {clusters:,} clusters",
        preset="paper-netflix", changes={"user_clusters": clusters}, minutes=300,
    )
    for clusters in (10_000, 15_000, 20_000)
)  # fmt: skip
NETFLIX_PAPER = replace(NETFLIX_CLUSTERS[-1], published={NETFLIX: (0.799,)})
NETFLIX_RATING = (
    *(
        replace(system, minutes=_NETFLIX_TIMES * system.minutes)
        for system in RATING
        if system.model != PAPER.model and not system.needs_tuning
    ),
    *NETFLIX_CLUSTERS[:-1],
    NETFLIX_PAPER,
)

PAPER_RANKING = System(
    "cf-uica-paper", "CF-UIcA (preset paper)", task="ranking", preset="paper",
    published={"paper": (0.736, 0.492)}, quick=_SHORT_RANKING, minutes=27,
)  # fmt: skip
DEFAULT_RANKING = System(
    "cf-uica-default", "CF-UIcA (preset default)", task="ranking", origin="ours",
    quick={"ensemble_size": 1, "epochs": 6.0}, minutes=13,
)  # fmt: skip
ITEM_POP = _ranking("itempop", "ItemPop", (0.454, 0.254), minutes=0.1)
UNIFORM = System(
    "cf-uica-uniform", "CF-UIcA (Uniform; preset paper-uniform)", task="ranking",
    preset="paper-uniform", published={"paper": (0.692, 0.406)}, quick=_SHORT_RANKING, minutes=12,
)  # fmt: skip
INVERSE = System(
    "cf-uica-inverse", "CF-UIcA (Inverse; preset paper-inverse)", task="ranking",
    preset="paper-inverse", published={"paper": (0.616, 0.353)},
    quick={**_SHORT_RANKING, "epochs": 4.0}, minutes=1.5,
)  # fmt: skip
RANKING = (
    ITEM_POP,
    _ranking(
        "itemknn", "ItemKNN, all neighbours", (0.623, 0.359), name="itemknn-all", minutes=0.2,
        changes={"neighbours": 1_000_000},
    ),
    _ranking("itemknn", "ItemKNN", (0.623, 0.359), minutes=0.2),
    _ranking("bpr", "BPR", (0.690, 0.419), minutes=3),
    _ranking("eals", "eALS", (0.704, 0.433)),
    _ranking("neumf", "NeuMF", (0.730, 0.447), minutes=15, quick={"epochs": 20}),
    _ranking("cdae", "CDAE", (0.726, 0.448), quick={"epochs": 20}),
    UNIFORM,
    # Settings that the authors probably had.
    replace(
        UNIFORM, name="cf-uica-uniform-masked", row="CF-UIcA (Uniform, masked)", minutes=14,
        changes={"ordering": "masked"},
    ),
    INVERSE,
    replace(
        INVERSE, name="cf-uica-inverse-ladder", row="CF-UIcA (Inverse, ladder of rates)",
        minutes=50,
        changes={
            "schedule": "patience", "patience": 30, "learning_rate": 1e-3, "epochs": 400,
            "validated_by": "sampled-hr",
        },
        quick={**_SHORT_RANKING, "epochs": 8.0, "patience": 2},
    ),
    PAPER_RANKING,
    DEFAULT_RANKING,
    _ranking("ease", "EASE", origin="beyond the paper", minutes=0.5),
    _ranking("ials", "iALS", origin="beyond the paper", minutes=2, quick={"epochs": 20}),
)  # fmt: skip

SYSTEMS = tuple(dict.fromkeys(each.name for each in (*RATING, *NETFLIX_RATING, *RANKING)))
