"""Evaluation of models and of tables of predictions, by protocols."""
