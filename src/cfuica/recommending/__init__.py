"""From predicted distributions to a list of items: scores, rules, the best of a block."""
