"""Measuring the training step beside its dense forms, and the machine it runs on."""
