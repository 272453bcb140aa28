"""Evaluation of models and of tables of predictions, by protocols."""

from cfuica.metrics.rating_metrics import RatingScores, mae, rating_scores, rmse

__all__ = ["RatingScores", "mae", "rating_scores", "rmse"]
