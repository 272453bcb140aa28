"""A model that these tests share."""

from __future__ import annotations

import pytest

from cfuica.rating_model import RatingModel
from tests.runs.small import TINY, small_table


@pytest.fixture(scope="session")
def model() -> RatingModel:
    """Fitted to the small world, integer ids and titles; look, do not touch."""
    return RatingModel(TINY).fit(small_table())
