"""The state of a model in use: it follows new interactions without any training."""
