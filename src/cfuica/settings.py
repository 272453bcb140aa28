"""Every choice of a training run in one frozen object: what the command line parses, what a run
records and what the model card shows.

Settings by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from cfuica.errors import SettingsError


class CommonSettings(BaseModel):
    """What every training has to choose."""

    task: ClassVar[str]
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    # The model.
    sides: Literal["both", "users", "items"] = Field(
        "both", description="Sums used: UUC (users), IIC (items) or both."
    )
    hidden_users: int = Field(
        500, ge=1, description="H_U: hidden units of the UUC side, per member."
    )
    hidden_items: int = Field(
        500, ge=1, description="H_I: hidden units of the IIC side, per member."
    )
    activation: Literal["tanh", "sigmoid", "relu"] = Field("tanh", description="f of Eqns. 3-4.")
    ensemble_size: int = Field(
        1, ge=1, description="Models trained one after another and joined into one wide model."
    )
    l2: float = Field(1e-4, ge=0, le=1e6, description="Penalty on the squares of stored W and V.")
    dropout: float = Field(
        0.0, ge=0, lt=1, description="Chance that a hidden unit is left out, per query and step."
    )
    batch_users: int = Field(1000, ge=1, description="B_U: users per minibatch.")

    # The optimiser.
    learning_rate: float = Field(1e-3, gt=0, description="Adam's first (or highest) rate.")
    beta1: float = Field(0.9, ge=0, lt=1, description="Adam's decay of the mean.")
    beta2: float = Field(0.999, ge=0, lt=1, description="Adam's decay of the square.")
    epsilon: float = Field(1e-4, gt=0, description="Adam's epsilon, outside its bias correction.")
    max_norm: float | None = Field(
        5.0, gt=0, le=1e30, description="Limit of the whole gradient's norm."
    )
    max_entry: float | None = Field(
        1.0, gt=0, le=1e30, description="Limit of each entry of the gradient."
    )

    # The schedule.
    schedule: Literal["patience", "planned"] = Field(
        "patience", description="Divide the rate when validation stalls, or follow a plan."
    )
    validate_every: int = Field(12, ge=1, description="Minibatches between validations.")
    patience: int = Field(50, ge=1, description="Validations without improvement before a cut.")
    rate_divisor: float = Field(4.0, gt=1, description="What a cut divides the rate by.")
    stop_rate: float = Field(1e-5, gt=0, description="Patience ends at this rate.")
    max_steps: int = Field(40_000, ge=1, description="Minibatches at most (planned: exactly).")
    warmup: float = Field(0.0, ge=0, lt=1, description="Planned: share of steps to rise over.")
    hold: float = Field(0.5, ge=0, le=1, description="Planned: share of steps before the fall.")

    keep_best: bool = Field(
        False,
        description="Planned: end with the parameters that validated best, as patience does.",
    )
    weight_average: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Share of the minibatches so far, the newest, that a moving average of the "
        "parameters spans; it is then what is validated and kept. 0: there is none.",
    )

    device: str = Field(
        "cpu", description="Where to train: cpu (compiled kernels) or a torch device such as cuda."
    )
    seed: int = Field(0, ge=0, lt=2**63, description="Decides initial values and every draw.")

    @property
    def networks(self) -> int:
        """How many networks are trained one after another."""
        return self.ensemble_size

    def is_cold_start(self, network: int) -> bool:
        """Whether this network, counted from 0, is one for cold-start users and items only."""
        return False

    def replaced(self, **changes: Any) -> Self:
        """A copy with some fields changed, checked like new ones."""
        try:
            return type(self)(**{**self.model_dump(), **changes})
        except ValidationError as error:
            raise SettingsError(_sentence(error, type(self))) from None


class RatingSettings(CommonSettings):
    """Settings of the rating model and of its training."""

    task: ClassVar[str] = "rating"

    length_normalisation: float = Field(
        0.0,
        ge=0,
        le=1,
        description="A sum over n interactions is divided by n + 10 to this power, relative to a "
        "typical n; 0: not at all, as in the paper.",
    )
    bilinear_rate: float = Field(
        0.0,
        ge=0,
        description="Cold-start network: rate of the bilinear interaction, as "
        "a share of the learning rate; 0: there is none.",
    )
    cold_start_units: int = Field(
        0,
        ge=0,
        description="Hidden units per side of one more network, trained last, that answers for "
        "users and items unknown to training; 0: none, and they have the mean of all parameters.",
    )
    share_labels: bool = Field(
        True, description="A label's columns are the sum of the stored columns up to it."
    )
    bins: int = Field(
        20, ge=2, le=255, description="Labels that more than 20 distinct ratings are binned into."
    )

    # The cost.
    ordinal_weight: float = Field(
        1.0, ge=0, le=1, description="Weight of the ordinal cost; the rest is the softmax NLL."
    )
    l2_ratings: int | None = Field(
        None,
        ge=1,
        description="Ratings that l2 is meant for; for n it is times sqrt(this / n).",
    )

    # The estimator.
    estimator: Literal["published", "strict"] = Field(
        "published", description="How blocks are drawn: the authors' experiments or the paper."
    )
    smallest_context: float = Field(
        0.2, ge=0, lt=1, description="Published: smallest share of an axis that may be context."
    )
    batch_items: int = Field(1000, ge=1, description="B_I: items per minibatch.")

    @property
    def networks(self) -> int:
        """Those of the members, and that of cold-start users and items last."""
        return self.ensemble_size + (self.cold_start_units > 0)

    def is_cold_start(self, network: int) -> bool:
        """Whether this network, counted from 0, is that of strangers."""
        return self.cold_start_units > 0 and network == self.ensemble_size

    def settled(self, ratings: int) -> RatingSettings:
        """These settings for training on so many ratings, with nothing left open."""
        if self.l2_ratings is None:
            return self
        # The root suits MovieLens 100K as well as 1M; neither a constant nor 1 / n does.
        return self.replaced(l2=self.l2 * (self.l2_ratings / ratings) ** 0.5, l2_ratings=None)


class RankingSettings(CommonSettings):
    """Settings of the ranking model and of its training."""

    task: ClassVar[str] = "ranking"

    learned_decay: bool = Field(
        False,
        description="Whether each hidden unit of the IIC side learns how fast it forgets; without "
        "it none does, as in the paper.",
    )

    residual_units: int = Field(
        0,
        ge=0,
        description="Units of one more layer between the IIC sums and the decoder; 0: none, as in "
        "the paper.",
    )

    epochs: float | None = Field(
        None,
        gt=0,
        description="Planned: how often everything that was done is asked about; in place of "
        "max_steps.",
    )

    # The cost.
    loss: Literal["bernoulli", "softmax", "sampled-softmax"] = Field(
        "softmax",
        description="Each pair by itself beside pairs that did not happen, a choice among all "
        "items, or one among some of them.",
    )
    softmax_candidates: int = Field(
        1000,
        ge=1,
        description="Sampled softmax: items that every choice of a minibatch is among.",
    )
    negatives: int = Field(
        4, ge=1, description="Bernoulli: pairs that did not happen, for each that did."
    )
    batch_items: int | None = Field(
        None,
        ge=2,
        description="Bernoulli: B_I, items per minibatch at most; an epoch then has every block of "
        "users with every group of items. None: all items.",
    )

    # The estimator.
    ordering: Literal["chronological", "uniform", "inverse", "global-time"] = Field(
        "chronological",
        description="What an interaction is predicted from: the user's earlier ones, a random part "
        "of the others, the later ones; or the earlier ones of the user and of everybody.",
    )
    ties: Literal["together", "apart"] = Field(
        "together",
        description="Interactions of one second do not know of each other, or follow one another "
        "as in the data.",
    )
    drop_interactions: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="Chance that a past interaction is left out; none: drawn for each minibatch.",
    )
    drop_users: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="Chance that a user is left out of the UUC sums; none: drawn for each "
        "minibatch.",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.learned_decay and self.ordering == "uniform":
            raise ValueError(
                "learned_decay=true needs an order in time, which ordering=uniform has not; add "
                "learned_decay=false, or take another ordering"
            )
        if self.residual_units and (self.loss == "bernoulli" or self.sides == "users"):
            other = "loss=bernoulli" if self.loss == "bernoulli" else "sides=users"
            raise ValueError(
                f"residual_units={self.residual_units} needs the IIC side and one of the softmax "
                f"losses, but there is {other}; add residual_units=0"
            )
        if self.batch_items is not None and self.loss != "bernoulli":
            raise ValueError(
                f"batch_items={self.batch_items} needs loss=bernoulli, but there is "
                f"loss={self.loss}; add batch_items=none (with loss=sampled-softmax the setting "
                f"softmax_candidates says what a choice is among)"
            )
        return self

    def settled(self, blocks: int) -> RankingSettings:
        """These settings where an epoch has so many minibatches, with nothing open."""
        if self.epochs is None:
            return self
        return self.replaced(max_steps=max(1, round(self.epochs * blocks)), epochs=None)


def _sentence(error: ValidationError, kind: type[CommonSettings]) -> str:
    problem = error.errors()[0]
    if not problem["loc"]:
        return f"These settings do not go together: {problem['ctx']['error']}."
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
        "an ensemble of three and a cold-start network, on a planned schedule: the best in ten "
        "minutes",
        RatingSettings(
            ensemble_size=3,
            hidden_users=256,
            hidden_items=256,
            length_normalisation=1,
            cold_start_units=128,
            bilinear_rate=0.03,
            learning_rate=8e-3,
            l2=1e-4,
            l2_ratings=855_179,  # those of the fold it was chosen on
            schedule="planned",
            max_steps=2400,
            validate_every=200,
        ),
    ),
    "paper": (
        "the published experiments' settings: Table 1 of the paper",
        RatingSettings(),
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


# The schedule, its rate and the span of the average are our own: the published schedule, patience
# on validation, takes 10^5 minibatches, and the published average, of some 100 minibatches, is
# worse on the validation item. Like the published models they are those that validated best. The
# penalty is the published one, read as beside the mean over all pairs, negatives among them; the
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
        "two models joined into one, whose units learn how fast they forget, and one more layer",
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
            validate_every=189,
        ),
    ),
    "paper": ("the published experiments' settings: Table 2 of the paper", _PAPER_RANKING),
    "paper-uniform": (
        "the same over all orderings of a user's interactions, half as long",
        _PAPER_RANKING.replaced(ordering="uniform", epochs=48),
    ),
    "paper-inverse": (
        "the same with every user's interactions backwards, stopped after four epochs",
        # The more it learns of what comes before, the worse it says what comes after. No average:
        # over so few steps it is no better.
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
    of_the_other_task: Mapping[str, tuple[str, CommonSettings]],
) -> S:
    if name in presets:
        return presets[name][1]
    if name not in of_the_other_task:
        raise SettingsError(f"There is no preset '{name}'; the presets are {', '.join(presets)}.")
    task = of_the_other_task[name][1].task
    function = {RatingSettings.task: rating_preset, RankingSettings.task: ranking_preset}[
        task
    ].__name__
    raise SettingsError(
        f"The preset '{name}' is one of the task {task}: ask for it with --task {task}, in Python "
        f"with {function}('{name}'), or take one of {', '.join(presets)}."
    )
