"""What `RatingModel` and `RankingModel` share: an artifact, and its live model."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, TypeVar, cast

import numpy as np
import polars as pl

from cfuica.artifact.model_folder import artifact_of, save
from cfuica.data.frames import as_history, as_id_column
from cfuica.errors import CfuicaError, DataError, SettingsError
from cfuica.model.pairs import SIDES, SideName
from cfuica.models.recommender import Recommender, Unknown

if TYPE_CHECKING:
    from cfuica.artifact.artifact import Artifact
    from cfuica.data.vocabulary import Vocabulary
    from cfuica.inference.similar import Similarity
    from cfuica.live.events import History
    from cfuica.live.live_vocabulary import LiveVocabularies
    from cfuica.settings import CommonSettings
S = TypeVar("S", bound="CommonSettings")
K = TypeVar("K", bound="Artifact")
L = TypeVar("L", bound="LiveVocabularies[Any]")

TaskName = Literal["rating", "ranking"]


class LiveRecommender(Recommender, Generic[S, K, L]):
    """A model of a network. A fitted model is live: what it observes changes the next prediction
    without training. It is not locked: threads that share one must take turns."""

    task: ClassVar[TaskName]
    cold_users: ClassVar[bool] = True
    live: ClassVar[bool] = True
    explains: ClassVar[bool] = True
    finds_similar: ClassVar[tuple[SideName, ...]] = SIDES

    def __init__(self, settings: S) -> None:
        self.settings = settings
        self._artifact: K | None = None
        self._live: L | None = None

    @classmethod
    def from_artifact(cls, settings: S, artifact: K) -> Self:
        """A model that is already fitted, as a model folder holds it."""
        model = cls(settings)
        model._artifact = artifact
        return model

    @classmethod
    def _restored(cls, folder: Path, card: dict[str, Any]) -> Self:
        settings, artifact = artifact_of(folder, card)
        return cls.from_artifact(cast("S", settings), cast("K", artifact))

    def save(self, folder: str | Path) -> Path:
        """Write the model folder; see `cfuica.load`."""
        return save(type(self).__name__, self.settings, self.artifact, folder)

    @property
    def artifact(self) -> K:
        """The fitted model with what it has observed since; an error before `fit` or `load`."""
        if self._artifact is None:
            raise CfuicaError(
                "This model is not fitted yet: call fit(table) or cfuica.load(folder)."
            )
        return self._artifact if self._live is None else self._live.artifact()

    @property
    def live_model(self) -> L:
        """The model in use; made on first use."""
        if self._live is None:
            self._live = self._in_use(self.artifact)
        return self._live

    @property
    def catalogue(self) -> L:
        """Users, items and item metadata as they are now; an error before `fit` or `load`."""
        return self.live_model

    @property
    def users(self) -> Vocabulary:
        """The user ids that the model knows, sorted."""
        return self.artifact.users

    @property
    def items(self) -> Vocabulary:
        """The item ids that the model knows, sorted."""
        return self.artifact.items

    @abstractmethod
    def _in_use(self, artifact: K) -> L:
        """The live model of an artifact."""

    @abstractmethod
    def _labels(self, history: pl.DataFrame) -> np.ndarray:
        """(n,) uint8 label of each interaction of a history, as `as_history` gives it."""

    def _history(self, history: Any, unknown: Unknown) -> History:
        from cfuica.live.events import History

        frame = as_history(history, rated=self.reads_ratings)
        index = self._indices("items", frame["item"], unknown)
        labels = self._labels(frame)
        is_stored = index != self.live_model.ids["items"].unknown_index
        return History(index[is_stored], labels[is_stored])

    def _similarity(self, axis: SideName) -> Similarity:
        from cfuica.inference.similar import Similarity

        return Similarity.of_state(self.live_model.state, axis)

    def _stored_user(self, user: Any) -> int:
        """The index of a user to forget; an error for an unknown one."""
        ids = self.live_model.ids["users"]
        index = self._index("users", user, "serve")
        if index == ids.unknown_index:
            raise DataError(
                f"The user {user!r} is unknown to this model, so there is nothing to forget: it "
                f"knows {ids.size} users{ids.example}."
            )
        return index

    def _pair(
        self, user: Any, item: Any, history: Any, unknown: Unknown
    ) -> tuple[int | None, int, Any, Any]:
        """The user and item of an explanation, by index and by external id; the user is None for an
        anonymous user."""
        if (user is None) == (history is None):
            raise SettingsError("An explanation is of a user or of a history: give one of them.")
        users, items = self.live_model.ids["users"], self.live_model.ids["items"]
        item_index = self._index("items", item, unknown)
        item_id = items.shown(as_id_column("item", item))[0]
        if user is None:
            return None, item_index, None, item_id
        user_index = self._index("users", user, unknown)
        return user_index, item_index, users.shown(as_id_column("user", user))[0], item_id
