"""Other systems to compare with, all behind one contract."""

from cfuica.baselines.contract import RatingBaseline
from cfuica.baselines.simple import GlobalMean, ItemMean, UserItemBias

__all__ = ["GlobalMean", "ItemMean", "RatingBaseline", "UserItemBias"]
