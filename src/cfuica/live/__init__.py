"""Interactions that change and the sums that follow them: what a saved model serves from."""
