"""Baselines to compare with, all behind one contract."""

from cfuica.baselines.contract import RatingBaseline
from cfuica.baselines.matrix_factorisation import BiasedFactorisation
from cfuica.baselines.means import GlobalMean, ItemMean, UserItemBias
from cfuica.baselines.neighbours import ItemNeighbours

__all__ = [
    "BiasedFactorisation",
    "GlobalMean",
    "ItemMean",
    "ItemNeighbours",
    "RatingBaseline",
    "UserItemBias",
]
