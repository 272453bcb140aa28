"""Baselines to compare with, all behind one contract."""

from cfuica.baselines.autoencoders import Cdae, ItemAutoRec, UserAutoRec
from cfuica.baselines.contract import Baseline, RankingBaseline, RatingBaseline
from cfuica.baselines.factorisation import BiasedFactorisation, BprFactorisation
from cfuica.baselines.linear import Ease
from cfuica.baselines.means import GlobalMean, ItemMean, UserItemBias
from cfuica.baselines.neighbours import ItemCosine, ItemNeighbours, ItemPopularity
from cfuica.baselines.rbm import ItemRbm, UserRbm

__all__ = [
    "Baseline",
    "BiasedFactorisation",
    "BprFactorisation",
    "Cdae",
    "Ease",
    "GlobalMean",
    "ItemAutoRec",
    "ItemCosine",
    "ItemMean",
    "ItemNeighbours",
    "ItemPopularity",
    "ItemRbm",
    "RankingBaseline",
    "RatingBaseline",
    "UserAutoRec",
    "UserItemBias",
    "UserRbm",
]
