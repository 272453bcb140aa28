"""Fitting a model: the estimator that draws blocks, the optimiser, the schedule, the trainer."""
