"""What `RatingModel` and `RankingModel` share: an artifact, and its live model."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, TypeVar, cast

import numpy as np
import polars as pl

from cfuica.artifact import Artifact, artifact_of
from cfuica.data.frames import as_history, as_id_column
from cfuica.errors import CfuicaError, DataError, SettingsError
from cfuica.model.pairs import SIDES, SideName
from cfuica.models.recommender import Recommender, Unknown

if TYPE_CHECKING:
    from cfuica.data.vocabulary import Vocabulary
    from cfuica.inference.explain import BaseExplanation
    from cfuica.inference.recommend import By, ItemScorer
    from cfuica.inference.similar import Similarity
    from cfuica.live.interactions import History
    from cfuica.live.live_model import LiveModel
    from cfuica.settings import CommonSettings
S = TypeVar("S", bound="CommonSettings")

TaskName = Literal["rating", "ranking"]


class LiveRecommender(Recommender, Generic[S]):
    """A model of a network. A fitted model is live: what it observes changes the next prediction
    without training. It is not locked: threads that share one must take turns."""

    task: ClassVar[TaskName]
    cold_users: ClassVar[bool] = True
    live: ClassVar[bool] = True
    explains: ClassVar[bool] = True
    finds_similar: ClassVar[tuple[SideName, ...]] = SIDES

    def __init__(self, settings: S) -> None:
        self.settings = settings
        self._artifact: Artifact | None = None
        self._live: LiveModel | None = None

    @classmethod
    def from_artifact(cls, artifact: Artifact) -> Self:
        """A model that is already fitted, as a model folder holds it."""
        model = cls(cast("S", artifact.settings))
        model._artifact = artifact
        return model

    @classmethod
    def _restored(cls, folder: Path, card: dict[str, Any]) -> Self:
        return cls.from_artifact(artifact_of(folder, card))

    def save(self, folder: str | Path) -> Path:
        """Write the model folder; see `cfuica.load`."""
        return self.snapshot().save(folder)

    @property
    def artifact(self) -> Artifact:
        """The model as it was fitted or loaded; an error before `fit` or `load`."""
        if self._artifact is None:
            raise CfuicaError(
                "This model is not fitted yet: call fit(table) or cfuica.load(folder)."
            )
        return self._artifact

    def snapshot(self) -> Artifact:
        """The model as it is now, with what it has observed since it was fitted or loaded."""
        return self.artifact if self._live is None else self._live.snapshot()

    @property
    def live_model(self) -> LiveModel:
        """The model in use; made on first use."""
        if self._live is None:
            from cfuica.live.live_model import LiveModel

            self._live = LiveModel(self.artifact)
            self._artifact = self._live.artifact
        return self._live

    @property
    def catalogue(self) -> LiveModel:
        """Users, items and item metadata as they are now; an error before `fit` or `load`."""
        return self.live_model

    @property
    def users(self) -> Vocabulary:
        """The user ids that the model was fitted or loaded with, sorted."""
        return self.artifact.users

    @property
    def items(self) -> Vocabulary:
        """The item ids that the model was fitted or loaded with, sorted."""
        return self.artifact.items

    def explain(
        self, user: Any, item: Any, *, history: Any = None, unknown: Unknown = "serve"
    ) -> BaseExplanation:
        """Explain the expected rating or the score of an item by exact counterfactuals: what it
        would be without each interaction of the user, and without those of other users.

        For an anonymous user, give a `history` (see `recommend`) and None for the user.
        """
        from cfuica.inference.explain import explain

        if (user is None) == (history is None):
            raise SettingsError("An explanation is of a user or of a history: give one of them.")
        live = self.live_model
        item_index = self._index("items", item, unknown)
        item_id = live.ids["items"].shown(as_id_column("item", item))[0]
        if user is None:
            ad_hoc = self._history(history, unknown)
            return explain(live, None, ad_hoc, item_index, item_id=item_id)
        user_index = self._index("users", user, unknown)
        user_id = live.ids["users"].shown(as_id_column("user", user))[0]
        return explain(live, user_index, None, item_index, user_id=user_id, item_id=item_id)

    def forget(self, user: Any) -> int:
        """Remove a user: interactions, state, sums, id and own parameters; returns how many
        interactions were removed.

        What other parameters learned from the user stays in them until the next training, which has
        to be without the user's rows.
        """
        ids = self.live_model.ids["users"]
        index = self._index("users", user, "serve")
        if index == ids.unknown_index:
            raise DataError(
                f"The user {user!r} is unknown to this model, so there is nothing to forget: it "
                f"knows {ids.size} users{ids.example}."
            )
        return self.live_model.forget("users", index)

    @abstractmethod
    def _labels(self, history: pl.DataFrame) -> np.ndarray:
        """(n,) uint8 label of each interaction of a history, as `as_history` gives it."""

    def _scorer(self, by: By | None) -> ItemScorer:
        from cfuica.inference.recommend import LiveScorer

        return LiveScorer.of(self.live_model, by)

    def _history(self, history: Any, unknown: Unknown) -> History:
        from cfuica.live.interactions import History

        frame = as_history(history, rated=self.reads_ratings)
        index = self._indices("items", frame["item"], unknown)
        labels = self._labels(frame)
        is_stored = index != self.live_model.ids["items"].unknown_index
        return History(index[is_stored], labels[is_stored])

    def _similarity(self, axis: SideName) -> Similarity:
        from cfuica.inference.similar import Similarity

        return Similarity.of_state(self.live_model.state, axis)
