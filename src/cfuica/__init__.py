"""Co-autoregressive collaborative filtering (CF-UIcA): ratings and recommendations from the raw
interactions of users and items."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cfuica.data.datasets import resolve as load_data
    from cfuica.data.table import Interactions
    from cfuica.errors import CfuicaError
    from cfuica.models.co_autoregressive import RankingModel, RatingModel
    from cfuica.models.recommender import Recommender, load
    from cfuica.settings import RankingSettings, RatingSettings, ranking_preset, rating_preset
# Torch's OpenMP threads spin after every parallel operation, beside our own threads, and cost a
# tenth to a quarter of a minibatch. The policy is read when torch is loaded.
if "torch" not in sys.modules:
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")

try:
    __version__ = version("cfuica")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

# Imported on first use: torch, numba and polars take seconds, `cfuica --help` must not.
_PLACES = {
    "Interactions": ("cfuica.data.table", "Interactions"),
    "CfuicaError": ("cfuica.errors", "CfuicaError"),
    "RankingModel": ("cfuica.models.co_autoregressive", "RankingModel"),
    "RankingSettings": ("cfuica.settings", "RankingSettings"),
    "RatingModel": ("cfuica.models.co_autoregressive", "RatingModel"),
    "RatingSettings": ("cfuica.settings", "RatingSettings"),
    "Recommender": ("cfuica.models.recommender", "Recommender"),
    "load": ("cfuica.models.recommender", "load"),
    "load_data": ("cfuica.data.datasets", "resolve"),
    "rating_preset": ("cfuica.settings", "rating_preset"),
    "ranking_preset": ("cfuica.settings", "ranking_preset"),
}

__all__ = [
    "CfuicaError",
    "Interactions",
    "RankingModel",
    "RankingSettings",
    "RatingModel",
    "RatingSettings",
    "Recommender",
    "__version__",
    "load",
    "load_data",
    "ranking_preset",
    "rating_preset",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'cfuica' has no attribute '{name}'")
    module, attribute = _PLACES[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return __all__
