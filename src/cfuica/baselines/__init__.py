"""Baselines to compare with, all behind one contract."""

from cfuica.baselines.autoencoders import Cdae, ItemAutoRec, UserAutoRec
from cfuica.baselines.contract import Baseline, RankingBaseline, RatingBaseline
from cfuica.baselines.factorisation import (
    BiasedFactorisation,
    BprFactorisation,
    ProbabilisticFactorisation,
)
from cfuica.baselines.linear import Ease
from cfuica.baselines.local_low_rank import LlormaGlobal, LlormaLocal
from cfuica.baselines.means import GlobalMean, ItemMean, UserItemBias
from cfuica.baselines.nade import ItemCfNade, UserCfNade
from cfuica.baselines.neighbours import ItemCosine, ItemNeighbours, ItemPopularity
from cfuica.baselines.neural_mf import NeuMf, NeuralFactorisation
from cfuica.baselines.rbm import ItemRbm, UserRbm
from cfuica.baselines.weighted_factorisation import (
    ElementwiseFactorisation,
    ImplicitFactorisation,
)

__all__ = [
    "Baseline",
    "BiasedFactorisation",
    "BprFactorisation",
    "Cdae",
    "Ease",
    "ElementwiseFactorisation",
    "GlobalMean",
    "ImplicitFactorisation",
    "ItemAutoRec",
    "ItemCfNade",
    "ItemCosine",
    "ItemMean",
    "ItemNeighbours",
    "ItemPopularity",
    "ItemRbm",
    "LlormaGlobal",
    "LlormaLocal",
    "NeuMf",
    "NeuralFactorisation",
    "ProbabilisticFactorisation",
    "RankingBaseline",
    "RatingBaseline",
    "UserAutoRec",
    "UserCfNade",
    "UserItemBias",
    "UserRbm",
]
