"""Settings of a training run, for both tasks, and the presets that give them names.

A settings object holds every choice of a training run and is frozen. The command line parses into
it, a run records it, and the model card shows it. `rating_preset` and `ranking_preset` return the
settings of a name, such as "default" or "paper".
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_serializer,
    model_validator,
)

from cfuica.errors import SettingsError
from cfuica.sizing import DataSize, ranking_settings, rating_settings


class TrainingSettings(BaseModel):
    """Settings of any model and its training: what runs, callbacks and tuning ask of them."""

    task: ClassVar[str]
    model: ClassVar[str]  # The name of `cfuica train --model`.
    # What tuning searches: "log" and "uniform" draw from a range, "choice" one of the values.
    space: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    # What may differ when a run is resumed: how it learns from there on, not what it learns.
    changeable: ClassVar[tuple[str, ...]] = ()
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    seed: int = Field(0, ge=0, lt=2**63, description="Seed of initial values and sampling.")

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Those that differ from the defaults; all would fill a screen."""
        fields = type(self).model_fields
        yield from (
            (n, v)
            for n, v in super().__repr_args__()
            if n and n != "sized" and v != fields[n].default
        )

    @property
    def networks(self) -> int:
        """How many networks are trained, one after another."""
        return 1

    def is_cold_start(self, network: int) -> bool:
        """Whether this network, counted from 0, is the cold-start network."""
        return False

    @property
    def most_steps(self) -> int:
        """Steps at most: minibatches, or epochs of a baseline."""
        return 1

    @property
    def steps_planned(self) -> int | None:
        """The number of steps, where it is known before."""
        return self.most_steps

    @property
    def keeps_best(self) -> bool:
        """Whether training ends with the parameters that validated best."""
        return False

    @property
    def option(self) -> str:
        """The option of `cfuica train` that these settings belong to."""
        return f"--model {self.model}"

    def settled(self, size: DataSize) -> Self:
        """The settings for a train set of this size."""
        return self

    def toml(self, comment: str = "") -> str:
        """All settings, their model and its task as TOML, which `with_file` reads; it has "none"
        for None."""
        values = {"task": self.task, "model": self.model} | self.model_dump()
        lines = [f"# {line}" for line in comment.splitlines()]
        # Numbers, truths and plain strings are the same in JSON and TOML.
        lines += [
            f"{name} = {json.dumps('none' if each is None else each)}"
            for name, each in values.items()
        ]
        return "\n".join(lines) + "\n"

    def with_file(self, path: Path) -> Self:
        """These settings with those of a TOML file, which may have all or some."""
        try:
            changes = tomllib.loads(path.read_text("utf-8"))
        except OSError as error:
            raise SettingsError(
                f"The settings in {path} cannot be read ({error.strerror}); give a TOML file, such "
                f"as settings.toml of a run."
            ) from None
        except (ValueError, RecursionError) as error:
            reason = str(error).splitlines()[0]
            raise SettingsError(
                f"{path} is not TOML ({reason}); give a file with lines such as hidden_users = 200."
            ) from None
        task, model = changes.pop("task", self.task), changes.pop("model", self.model)
        if model != self.model:
            raise SettingsError(
                f"{path} has settings of the model {model}, but the model is {self.model}; add "
                f"--model {model}, or give another file."
            )
        if task != self.task:
            raise SettingsError(
                f"{path} has settings of the task {task}, but the task is {self.task}; add --task "
                f"{task}, or give another file."
            )
        values = {name: None if each == "none" else each for name, each in changes.items()}
        try:
            return self.replaced(**values)
        except SettingsError as error:
            raise SettingsError(f"{path}: {error}") from None

    def replaced(self, **changes: Any) -> Self:
        """A copy with some settings changed and validated."""
        try:
            return type(self)(**{**self.model_dump(), **changes})
        except ValidationError as error:
            raise SettingsError(_sentence(error, type(self))) from None


class CommonSettings(TrainingSettings):
    """Settings of CF-UIcA that the rating model and the ranking model share."""

    model: ClassVar[str] = "cf-uica"
    changeable: ClassVar[tuple[str, ...]] = (
        "learning_rate", "l2", "dropout", "drop_interactions", "drop_users", "max_norm",
        "max_entry", "validate_every", "patience", "rate_divisor", "stop_rate", "max_steps", "hold",
    )  # fmt: skip

    # The model.
    sides: Literal["both", "users", "items"] = Field(
        "both",
        description="Sides of the network: user-user (UUC), item-item (IIC) or both.",
    )
    hidden_users: int = Field(
        500, ge=1, description="H_U: hidden units of the UUC side, in each ensemble member."
    )
    hidden_items: int = Field(
        500, ge=1, description="H_I: hidden units of the IIC side, in each ensemble member."
    )
    activation: Literal["tanh", "sigmoid", "relu"] = Field(
        "tanh", description="Activation function of the hidden units (f of Eqns. 3-4)."
    )
    ensemble_size: int = Field(
        1, ge=1, description="Networks trained one after another, whose logits are averaged."
    )
    l2: float = Field(1e-4, ge=0, le=1e6, description="Weight decay: the L2 penalty on W and V.")
    dropout: float = Field(
        0.0, ge=0, lt=1, description="Dropout rate of the hidden units, drawn per query and step."
    )
    start_from_biases: bool = Field(
        False,
        description="Training starts from biases in place of 0: damped biases of users and items; "
        "of rankings the log popularity of items. A rating model has those of the validation set "
        "too in the end.",
    )
    batch_users: int = Field(1000, ge=1, description="B_U: users per minibatch.")

    # The optimiser.
    learning_rate: float = Field(1e-3, gt=0, description="Adam's initial (or peak) rate.")
    beta1: float = Field(0.9, ge=0, lt=1, description="Adam's decay of the mean gradient.")
    beta2: float = Field(0.999, ge=0, lt=1, description="Adam's decay of the squared gradient.")
    epsilon: float = Field(1e-4, gt=0, description="Adam's epsilon, outside its bias correction.")
    max_norm: float | None = Field(
        5.0, gt=0, le=1e30, description="Gradient clipping: largest norm of all gradients together."
    )
    max_entry: float | None = Field(
        1.0, gt=0, le=1e30, description="Gradient clipping: largest absolute value of an entry."
    )

    # The schedule.
    schedule: Literal["patience", "planned"] = Field(
        "patience",
        description="Learning rate: divided when validation stalls, or a plan of max_steps.",
    )
    validate_every: int = Field(12, ge=1, description="Minibatches between validations.")
    patience: int = Field(50, ge=1, description="Validations without improvement before a decay.")
    rate_divisor: float = Field(4.0, gt=1, description="A decay divides the learning rate by this.")
    stop_rate: float = Field(
        1e-5, gt=0, description="Patience: training ends at this learning rate."
    )
    max_steps: int = Field(40_000, ge=1, description="Minibatches at most (planned: exactly).")
    hold: float = Field(0.5, ge=0, le=1, description="Planned: share of steps before the decay.")

    keep_best: bool = Field(
        False,
        description="Planned: end with the parameters of the best validation, as patience does.",
    )
    weight_average: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Weight averaging (EMA): span of the average, as a share of the steps so far. "
        "The averaged parameters are validated and saved. 0: no averaging.",
    )

    sized: tuple[str, ...] = Field(
        (),
        description="Settings that follow the size of the train set, by the table in "
        "docs/tuning.md. A setting that is given is none of them.",
    )
    device: str = Field(
        "cpu", description="Device to train on: cpu (compiled kernels) or a torch device, as cuda."
    )

    @field_serializer("sized")
    def _as_json(self, sized: tuple[str, ...]) -> list[str]:
        return list(sized)  # JSON and TOML have no tuples, and records are compared with dumps

    @property
    def networks(self) -> int:
        """How many networks are trained, one after another."""
        return self.ensemble_size

    @property
    def most_steps(self) -> int:
        """Minibatches at most."""
        return self.max_steps

    @property
    def steps_planned(self) -> int | None:
        """The number of minibatches, where it is known before."""
        return self.max_steps if self.schedule == "planned" else None

    @property
    def keeps_best(self) -> bool:
        """Whether training ends with the parameters that validated best."""
        return self.schedule == "patience" or self.keep_best

    @property
    def option(self) -> str:
        """The option of `cfuica train` that these settings belong to."""
        return f"--task {self.task}"

    def settled(self, size: DataSize) -> Self:
        """The settings for a train set of this size, which chooses those that are `sized`."""
        if not self.sized:
            return self
        found = self._chosen(size)
        return self.replaced(
            **{name: found[name] for name in self.sized if name in found}, sized=()
        )

    def _chosen(self, size: DataSize) -> dict[str, Any]:
        """What a train set of this size chooses."""
        return {}

    def replaced(self, **changes: Any) -> Self:
        """A copy with some settings changed and validated; these follow the data no more."""
        rest = tuple(name for name in self.sized if name not in changes)
        return super().replaced(**{"sized": rest, **changes})


class RatingSettings(CommonSettings):
    """Settings of the rating model and its training."""

    task: ClassVar[str] = "rating"
    space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "learning_rate": ("log", 1e-3, 3e-2),
        "l2": ("log", 1e-5, 1e-2),
        "max_steps": ("choice", 600, 1200, 2400),
        "hidden_users": ("choice", 64, 128, 256, 512),
        "hidden_items": ("choice", 64, 128, 256, 512),
        "dropout": ("uniform", 0.0, 0.5),
        "length_normalisation": ("choice", 0.0, 0.5, 1.0),
    }

    length_normalisation: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Exponent by which sums over n interactions are normalised: divided by "
        "(n + 10) to this power, relative to a typical n. 0: none, as in the paper.",
    )
    bilinear_rate: float = Field(
        0.0,
        ge=0,
        description="Cold-start network: learning rate of its bilinear interaction, as a share of "
        "learning_rate. 0: no bilinear interaction.",
    )
    cold_start_units: int = Field(
        0,
        ge=0,
        description="Hidden units per side of the cold-start network, which is trained last and "
        "predicts for users and items without training data. 0: none, they get mean parameters.",
    )
    share_labels: bool = Field(
        True, description="Parameters of a rating are sums over the ratings up to it."
    )
    bins: int = Field(
        20, ge=2, le=255, description="Bins, where the data has more than 20 distinct ratings."
    )

    # Rows of W and V that several users or items share; each keeps a bias of its own.
    user_clusters: int = Field(
        0,
        ge=0,
        description="Clusters of users that share rows of W and V, as in the paper's Netflix "
        "experiment. 0: none.",
    )
    item_clusters: int = Field(
        0, ge=0, description="Clusters of items that share rows of W and V. 0: none."
    )
    cluster_factors: int = Field(
        100, ge=1, description="Rank of the factorisation whose vectors are clustered."
    )
    min_row_interactions: int | None = Field(
        None,
        ge=0,
        description="Users and items with fewer interactions have no row of W and V of their own: "
        "they share that of their cluster or, without clusters, one row. none: with clusters all "
        "share; without, as few as memory demands.",
    )

    # The loss.
    ordinal_weight: float = Field(
        1.0, ge=0, le=1, description="Weight of the ordinal loss; the rest is the softmax NLL."
    )
    # The estimator.
    estimator: Literal["published", "strict"] = Field(
        "published",
        description="Sampling of minibatches: as in the authors' experiments or as in the paper.",
    )
    smallest_context: float = Field(
        0.2, ge=0, lt=1, description="Published: smallest share of users or items used as context."
    )
    batch_items: int = Field(1000, ge=1, description="B_I: items per minibatch.")
    max_context: int | None = Field(
        None,
        ge=1,
        description="Longer contexts are thinned to about so many interactions, drawn anew for "
        "each minibatch; prediction reads all. Needs length_normalisation. none: no limit.",
    )

    @model_validator(mode="after")
    def _limits_contexts_that_are_normalised(self) -> Self:
        if self.max_context is not None and (
            self.estimator == "strict" or self.length_normalisation == 0
        ):
            raise ValueError(
                f"max_context={self.max_context} needs estimator=published and a "
                f"length_normalisation above 0, so that part of a context stands for all of it; "
                f"add max_context=none"
            )
        return self

    @property
    def networks(self) -> int:
        """How many networks are trained: the ensemble, then the cold-start network."""
        return self.ensemble_size + (self.cold_start_units > 0)

    def is_cold_start(self, network: int) -> bool:
        """Whether this network, counted from 0, is the cold-start network."""
        return self.cold_start_units > 0 and network == self.ensemble_size

    def _chosen(self, size: DataSize) -> dict[str, Any]:
        return rating_settings(
            size._replace(user_clusters=self.user_clusters, item_clusters=self.item_clusters)
        )


ValidatedBy = Annotated[
    Literal["ndcg", "sampled-hr"],
    Field(
        description="Score of a validation: NDCG@10 among all unseen items, or HR@10 among the "
        "next item and 100 sampled ones, as in the authors' experiments."
    ),
]


class RankingSettings(CommonSettings):
    """Settings of the ranking model and its training."""

    task: ClassVar[str] = "ranking"
    space: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "learning_rate": ("log", 1e-4, 1e-2),
        "epochs": ("choice", 1.0, 4.0, 8.0, 16.0),
        "dropout": ("uniform", 0.0, 0.5),
        "drop_interactions": ("uniform", 0.0, 0.5),
        "drop_users": ("uniform", 0.0, 0.9),
        "hidden_users": ("choice", 64, 128, 256),
        "hidden_items": ("choice", 64, 128, 256),
        "residual_units": ("choice", 0, 128, 256, 512),
        "batch_users": ("choice", 16, 32, 64),
    }

    learned_decay: bool = Field(
        False,
        description="Learned decay: each hidden unit of the IIC side learns a time constant by "
        "which past interactions fade. Without it none fade, as in the paper.",
    )

    residual_units: int = Field(
        0,
        ge=0,
        description="Units of a residual feed-forward layer between the IIC sums and the decoder. "
        "0: none, as in the paper.",
    )

    residual_layer: Literal["feed-forward", "gated"] = Field(
        "feed-forward",
        description="Kind of the residual layer: relu, or a gated SwiGLU of the normed units.",
    )

    start_from_factors: int = Field(
        0,
        ge=0,
        description="Hidden units of the IIC side that start from factors of the interactions (a "
        "truncated SVD) in place of random numbers. 0: none, as in the paper.",
    )

    epochs: float | None = Field(
        None,
        gt=0,
        description="Planned: passes over the training interactions; replaces max_steps.",
    )

    # The loss.
    loss: Literal["bernoulli", "softmax", "sampled-softmax"] = Field(
        "softmax",
        description="Binary cross-entropy with sampled negatives, softmax over all items, or "
        "softmax over sampled candidates.",
    )
    softmax_candidates: int = Field(
        1000,
        ge=1,
        description="Sampled softmax: candidate items per minibatch.",
    )
    negatives: int = Field(4, ge=1, description="Bernoulli: sampled negatives per interaction.")
    batch_items: int | None = Field(
        None,
        ge=2,
        description="Bernoulli: B_I, items per minibatch at most. An epoch combines every block of "
        "users with every block of items. none: all items.",
    )

    validated_by: ValidatedBy = "ndcg"

    # The estimator.
    ordering: Literal["chronological", "uniform", "inverse", "global-time", "masked"] = Field(
        "chronological",
        description="Context of a predicted interaction: the user's earlier interactions, a random "
        "subset, the later ones; the earlier ones of this user and of all other users; or those "
        "with items outside the minibatch.",
    )
    ties: Literal["together", "apart"] = Field(
        "together",
        description="Interactions of a user with equal timestamps: no context of each other, or "
        "ordered as in the data.",
    )
    drop_interactions: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="Rate of dropping interactions from histories. none: drawn per minibatch.",
    )
    drop_users: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="Rate of dropping users from the UUC sums. none: drawn per minibatch.",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.learned_decay and self.ordering in ("uniform", "masked"):
            raise ValueError(
                f"learned_decay=true needs a temporal order, which ordering={self.ordering} does "
                f"not have; add learned_decay=false, or choose another ordering"
            )
        if self.ordering == "masked" and self.batch_items is None:
            raise ValueError(
                "ordering=masked reads the items outside a minibatch, but batch_items=none has all "
                "items in each; add batch_items=200 (with loss=bernoulli)"
            )
        if self.residual_units and self.sides == "users":
            raise ValueError(
                f"residual_units={self.residual_units} needs the IIC side, but there is "
                f"sides=users; add residual_units=0"
            )
        if self.start_from_factors and (needs := self._what_factors_need()):
            raise ValueError(
                f"start_from_factors={self.start_from_factors} needs {' and '.join(needs)}; add "
                f"that, or start_from_factors=0"
            )
        if self.batch_items is not None and self.loss != "bernoulli":
            raise ValueError(
                f"batch_items={self.batch_items} needs loss=bernoulli, but there is "
                f"loss={self.loss}; add batch_items=none (with loss=sampled-softmax the setting "
                f"softmax_candidates limits the items)"
            )
        return self

    def _what_factors_need(self) -> list[str]:
        """What has to change so that hidden units can start from factors."""
        needs = {
            "sides=both": self.sides == "users",
            "activation=tanh": self.activation != "tanh",
            "learned_decay=false": self.learned_decay,
            f"hidden_items={self.start_from_factors}": self.hidden_items < self.start_from_factors,
        }
        return [change for change, is_needed in needs.items() if is_needed]

    def _chosen(self, size: DataSize) -> dict[str, Any]:
        found = ranking_settings(size)
        # What is given counts more than a start from factors.
        rest = {name: value for name, value in found.items() if name in self.sized}
        rest["start_from_factors"] = 0
        factors = found["start_from_factors"]
        settled = self.replaced(**rest)
        possible = settled.model_copy(update={"start_from_factors": factors})
        return found if not possible._what_factors_need() else found | {"start_from_factors": 0}

    def planned(self, blocks: int) -> RankingSettings:
        """The settings for an epoch of this many minibatches, with epochs as max_steps."""
        if self.epochs is None:
            return self
        return self.replaced(max_steps=max(1, round(self.epochs * blocks)), epochs=None)


def _sentence(error: ValidationError, kind: type[TrainingSettings]) -> str:
    problem = error.errors()[0]
    if not problem["loc"]:
        return f"These settings contradict each other: {problem['ctx']['error']}."
    name = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return (
            f"There is no setting '{name}'; the settings are: "
            f"{', '.join(sorted(kind.model_fields))}."
        )
    return f"Setting {name} = {problem['input']!r} is not usable: {problem['msg']}."


S = TypeVar("S")

PRESETS: dict[str, tuple[str, RatingSettings]] = {
    "default": (
        "an ensemble of three networks and a cold-start network, on a planned schedule",
        RatingSettings(
            ensemble_size=3,
            hidden_users=256,
            hidden_items=256,
            length_normalisation=1,
            cold_start_units=128,
            bilinear_rate=0.03,
            learning_rate=8e-3,
            l2=1e-4,
            schedule="planned",
            keep_best=True,
            max_steps=2400,
            validate_every=200,
            # The values above are those of MovieLens 1M.
            sized=tuple(rating_settings(DataSize(1, 1, 1))),
        ),
    ),
    "paper": (
        "the published experiments' settings: Table 1 of the paper",
        RatingSettings(),
    ),
    "paper-netflix": (
        "the published experiments' settings for Netflix: 20,000 clusters of users",
        RatingSettings(batch_users=4000, batch_items=1000, l2=5e-6, user_clusters=20_000),
    ),
    "paper-as-written": (
        "what the paper's text alone says: plain NLL, no label sharing, strict estimator",
        RatingSettings(
            share_labels=False,
            ordinal_weight=0.0,
            estimator="strict",
            epsilon=1e-8,
            max_norm=None,
            max_entry=None,
        ),
    ),
}


# The schedule, its learning rate and the span of the weight average are our own. The published
# schedule, patience on validation, takes 10^5 minibatches, and the published average, over some 100
# minibatches, validates worse. Model selection is as published: the best validation. The L2 penalty
# is as published, relative to the mean loss over all pairs with the negatives among them. The
# optimiser is that of the published rating model.
_PAPER_RANKING = RankingSettings(
    activation="relu",
    hidden_users=256,
    hidden_items=256,
    loss="bernoulli",
    negatives=4,
    ordering="chronological",
    ties="together",
    batch_users=200,
    batch_items=200,
    learning_rate=3e-3,
    epsilon=1e-4,
    l2=1e-5,
    epochs=96,
    schedule="planned",
    hold=0,
    keep_best=True,
    weight_average=0.2,
    validate_every=620,  # an epoch of MovieLens 1M
)

RANKING_PRESETS: dict[str, tuple[str, RankingSettings]] = {
    "default": (
        "an ensemble of two networks with learned decay and a residual layer",
        RankingSettings(
            ensemble_size=2,
            hidden_users=128,
            hidden_items=128,
            learned_decay=True,
            residual_units=256,
            loss="softmax",
            ties="apart",
            drop_interactions=0.2,
            drop_users=0.5,
            dropout=0.2,
            batch_users=32,
            learning_rate=4e-3,
            epsilon=1e-8,
            l2=0,
            max_entry=None,
            epochs=8,
            schedule="planned",
            keep_best=True,
            validate_every=189,
            sized=(
                "epochs",
                "hidden_users",
                "hidden_items",
                "ensemble_size",
                "batch_users",
                "validate_every",
                "loss",
                "softmax_candidates",
                "start_from_biases",
                "start_from_factors",
                "sides",
                "learned_decay",
                "residual_units",
                "learning_rate",
                "epsilon",
            ),
        ),
    ),
    "paper": ("the published experiments' settings: Table 2 of the paper", _PAPER_RANKING),
    "paper-uniform": (
        "the same over all orderings of a user's interactions, half as long",
        _PAPER_RANKING.replaced(ordering="uniform", epochs=48),
    ),
    "paper-inverse": (
        "the same with every user's interactions backwards, stopped after four epochs",
        # Longer training on reversed histories predicts the next interaction worse. Weight
        # averaging does not help over so few steps.
        _PAPER_RANKING.replaced(ordering="inverse", epochs=4, weight_average=0),
    ),
}


def rating_preset(name: str) -> RatingSettings:
    """The settings of a preset of the rating model."""
    return _named(name, PRESETS, RANKING_PRESETS)


def ranking_preset(name: str) -> RankingSettings:
    """The settings of a preset of the ranking model."""
    return _named(name, RANKING_PRESETS, PRESETS)


def _named(
    name: str,
    presets: Mapping[str, tuple[str, S]],
    of_other_task: Mapping[str, tuple[str, CommonSettings]],
) -> S:
    if name in presets:
        return presets[name][1]
    if name not in of_other_task:
        raise SettingsError(f"There is no preset '{name}'; the presets are {', '.join(presets)}.")
    task = of_other_task[name][1].task
    raise SettingsError(
        f"The preset '{name}' belongs to the task {task}: use it with --task {task}, in Python "
        f"with {task}_preset('{name}'), or choose one of {', '.join(presets)}."
    )
