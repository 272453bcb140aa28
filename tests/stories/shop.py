"""The tables of a shop: clicks of several types, with times in milliseconds, and its items.

Whoever views a product of a series buys the next one of it, so that there is something to learn.
"""

from __future__ import annotations

import random
from pathlib import Path

N_CUSTOMERS, N_SERIES, LENGTH = 150, 8, 6
START = 1_750_000_000_000  # ms


def sku(series: int, place: int) -> str:
    return f"S{series}-{place % LENGTH}"


def write_shop(folder: Path, *, seed: int = 0) -> tuple[Path, Path]:
    """clicks.csv and items.csv."""
    rng = random.Random(seed)
    rows = []
    for customer in range(N_CUSTOMERS):
        time = START + rng.randrange(10**9)
        for series in rng.sample(range(N_SERIES), 3):
            first = rng.randrange(LENGTH)
            for place in range(first, first + 3):
                for event, repeats in (("view", 1 + (place % 2)), ("purchase", int(place > first))):
                    for _ in range(repeats):
                        time += rng.randrange(1000, 60_000)
                        rows.append(f"c{customer:05d},{sku(series, place)},{event},{time}")
    clicks, items = folder / "clicks.csv", folder / "items.csv"
    clicks.write_text("customer_id,sku,event_type,event_time\n" + "\n".join(rows) + "\n")
    lines = [
        f"{sku(series, place)},{5 + 3 * place}.50,{'new|sale' if place == 0 else 'old'}"
        for series in range(N_SERIES)
        for place in range(LENGTH)
    ]
    items.write_text("sku,price,tags\n" + "\n".join(lines) + "\n")
    return clicks, items
