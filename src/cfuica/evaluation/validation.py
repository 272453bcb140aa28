"""What a training is validated by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from cfuica.evaluation.metrics import RatingScores


@dataclass(frozen=True)
class RankingScores:
    """Of the next behaviour of `n` users among all items that they have not done yet."""

    ndcg: float
    """NDCG@10"""
    hr: float
    """HR@10"""
    n: int

    measure: ClassVar[str] = "NDCG@10"
    sign: ClassVar[int] = -1

    @property
    def value(self) -> float:
        """What it is judged by."""
        return self.ndcg

    @property
    def named(self) -> dict[str, float]:
        """The scores as people call them."""
        return {"NDCG@10": self.ndcg, "HR@10": self.hr}


Scores = RatingScores | RankingScores
"""Each has a `measure`, the `value` of it, and a `sign`: sign * value is to be low."""


def scores_of_record(record: dict[str, Any] | None) -> Scores | None:
    """The scores that `asdict` and JSON made this record of."""
    if record is None:
        return None
    return RatingScores(**record) if "rmse" in record else RankingScores(**record)
