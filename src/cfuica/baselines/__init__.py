"""Baselines to compare with, all behind one contract."""

from cfuica.baselines.contract import Baseline, RankingBaseline, RatingBaseline
from cfuica.baselines.factorisation import BiasedFactorisation, BprFactorisation
from cfuica.baselines.linear import Ease
from cfuica.baselines.local_low_rank import LlormaGlobal, LlormaLocal
from cfuica.baselines.means import GlobalMean, ItemMean, UserItemBias
from cfuica.baselines.nade import ItemCfNade, UserCfNade
from cfuica.baselines.neighbours import ItemCosine, ItemNeighbours, ItemPopularity

__all__ = [
    "Baseline",
    "BiasedFactorisation",
    "BprFactorisation",
    "Ease",
    "GlobalMean",
    "ItemCfNade",
    "ItemCosine",
    "ItemMean",
    "ItemNeighbours",
    "ItemPopularity",
    "LlormaGlobal",
    "LlormaLocal",
    "RankingBaseline",
    "RatingBaseline",
    "UserCfNade",
    "UserItemBias",
]
