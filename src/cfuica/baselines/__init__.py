"""Baselines to compare with, all behind one contract."""

from cfuica.baselines.contract import Baseline, RankingBaseline, RatingBaseline
from cfuica.baselines.factorisation import BiasedFactorisation, BprFactorisation
from cfuica.baselines.linear import Ease
from cfuica.baselines.means import GlobalMean, ItemMean, UserItemBias
from cfuica.baselines.neighbours import ItemCosine, ItemNeighbours, ItemPopularity
from cfuica.baselines.neural_mf import NeuMf, NeuralFactorisation

__all__ = [
    "Baseline",
    "BiasedFactorisation",
    "BprFactorisation",
    "Ease",
    "GlobalMean",
    "ItemCosine",
    "ItemMean",
    "ItemNeighbours",
    "ItemPopularity",
    "NeuMf",
    "NeuralFactorisation",
    "RankingBaseline",
    "RatingBaseline",
    "UserItemBias",
]
