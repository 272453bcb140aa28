"""Models that these tests share."""

from __future__ import annotations

import copy

import pytest

from cfuica.models.co_autoregressive import RankingModel
from tests.models.ranking.cyclic import fitted


@pytest.fixture(scope="session")
def model() -> RankingModel:
    """Fitted to the cyclic world; look, do not touch."""
    return fitted()


@pytest.fixture
def live(model: RankingModel) -> RankingModel:
    """The same to do anything to."""
    return RankingModel.from_artifact(copy.deepcopy(model.artifact))
