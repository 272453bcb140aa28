"""Runs: a training from data to folder, and how it shows its progress."""
