"""Training runs: from data to a run folder, with progress, checkpoints and a report."""
