"""How good a prediction is: metrics and protocols."""

from cfuica.metrics.rating_metrics import RatingScores, mae, rating_scores, rmse

__all__ = ["RatingScores", "mae", "rating_scores", "rmse"]
