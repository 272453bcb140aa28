"""Other systems to compare with, all behind one contract."""

from cfuica.baselines.contract import RatingBaseline
from cfuica.baselines.factorisation import BiasedFactorisation
from cfuica.baselines.neighbours import ItemNeighbours
from cfuica.baselines.simple import GlobalMean, ItemMean, UserItemBias

__all__ = [
    "BiasedFactorisation",
    "GlobalMean",
    "ItemMean",
    "ItemNeighbours",
    "RatingBaseline",
    "UserItemBias",
]
