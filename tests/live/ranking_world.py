"""Small ranking models with random parameters, and the plainest form of what they know."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import polars as pl
import torch

from cfuica.artifact import Artifact, saved_tensors
from cfuica.data.matrix import Timeline
from cfuica.data.vocabulary import Vocabulary
from cfuica.live.interactions import Observed
from cfuica.model.network import Network
from cfuica.models.co_autoregressive import RankingModel
from cfuica.ops.tables import SIDES, SideName
from cfuica.settings import RankingSettings

SMALL = RankingSettings(hidden_users=3, hidden_items=5)
KINDS = {
    "paper": SMALL,
    "decay": SMALL.replaced(learned_decay=True),
    "sigmoid": SMALL.replaced(learned_decay=True, activation="sigmoid"),
    "residual": SMALL.replaced(learned_decay=True, residual_units=4, ensemble_size=2),
    "items": SMALL.replaced(sides="items", learned_decay=True),
    "users": SMALL.replaced(sides="users"),
    "text": SMALL.replaced(learned_decay=True, ensemble_size=2),
    "untimed": SMALL.replaced(learned_decay=True),
}
# 9 users and 8 items, the last of each without an interaction, and more that only come to be
# observed.
USERS, ITEMS = range(1, 10), range(1, 9)
ALL_USERS, ALL_ITEMS = range(13), range(11)
RATINGS = (1.0, 2.0, 3.0)


def network_of(settings: RankingSettings, n_users: int, n_items: int) -> Network:
    """Random parameters, those of the shared rows and of the biases too."""
    rows: dict[SideName, int] = {"users": n_users + 1, "items": n_items + 1}
    network = Network.of(settings, rows, 1, members=settings.ensemble_size)
    generator = torch.Generator().manual_seed(5)
    for name, tensor in saved_tensors(network).items():
        if "log_time" not in name:
            tensor.uniform_(-1, 1, generator=generator)
    return network


@cache
def artifact_of(kind: str) -> Artifact:
    """What a small model knows; look, do not touch."""
    settings = KINDS[kind]
    rng = np.random.default_rng(3)
    grid = [(user, item) for user in range(len(USERS) - 1) for item in range(len(ITEMS) - 1)]
    chosen = [grid[at] for at in rng.permutation(len(grid))[:30]]
    users, items = (np.array(column, np.int32) for column in zip(*chosen, strict=True))
    names = {"users": pl.Series("id", USERS), "items": pl.Series("id", ITEMS)}
    if kind == "text":
        names = {axis: ids.cast(pl.String) for axis, ids in names.items()}
    has_times = kind != "untimed"
    return Artifact(
        settings=settings,
        networks={"warm": network_of(settings, len(USERS), len(ITEMS))},
        users=Vocabulary(names["users"]),
        items=Vocabulary(names["items"]),
        rows={
            "users": np.r_[: len(USERS) - 1, len(USERS)].astype(np.int32),
            "items": np.arange(len(ITEMS), dtype=np.int32),
        },
        interactions=Timeline.of(
            users,
            items,
            rng.integers(0, 6, len(chosen)) if has_times else None,
            n_users=len(USERS),
            n_items=len(ITEMS),
        ),
        has_times=has_times,
        item_metadata=pl.DataFrame(
            {
                "item": names["items"],
                "title": [f"Title {item}" for item in ITEMS],
                "series": [item % 3 for item in ITEMS],
            }
        ),
    )


def fresh(kind: str, **changes: Any) -> RankingModel:
    """A model of its own with the same parameters."""
    warm = replace(copy.deepcopy(artifact_of(kind)), **changes)
    return RankingModel.from_artifact(warm)


Event = tuple[int, int, float | None, int]
"""user, item, rating or None where it is taken back, time."""


@dataclass
class Truth:
    """What a model knows, in the plainest form: a list of deeds for each user, oldest first."""

    kind: str
    timed: dict[Any, list[tuple[Any, int]]]
    """Of each user (item, time)."""
    rows: dict[SideName, dict[Any, int]] = field(default_factory=dict)
    """The row of each known id; that of cold-start users and items is -1."""

    @classmethod
    def of(cls, kind: str) -> Truth:
        warm = artifact_of(kind)
        line = warm.interactions
        names = warm.items.decode(line.items).to_list()
        timed = {}
        for user, name in enumerate(warm.users.ids.to_list()):
            own = range(int(line.offsets[user]), int(line.offsets[user + 1]))
            timed[name] = [(names[e], int(line.times[e])) for e in own]
        rows: dict[SideName, dict[Any, int]] = {}
        for axis in SIDES:
            side = warm.networks["warm"].sides.get(axis)
            own_rows = warm.rows[axis].tolist()
            shared = side.shared_row if side else None
            rows[axis] = {
                one: -1 if row == shared else row
                for one, row in zip(getattr(warm, axis).ids.to_list(), own_rows, strict=True)
            }
        return cls(kind, timed, rows)

    def named(self, one: int) -> Any:
        return str(one) if self.kind == "text" else one

    def observe(self, events: list[Event], *, timed: bool) -> Observed:
        """`events` are of different pairs, in the order they are told."""
        counts = dict.fromkeys(("added", "changed", "removed", "new_users", "new_items"), 0)
        times = [time for own in self.timed.values() for _, time in own]
        now = max(times, default=0)
        if timed and self.kind == "untimed":
            events, timed = sorted(events, key=lambda event: event[3]), False
        for number, item_number, rating, when in events:
            user, item = self.named(number), self.named(item_number)
            own = self.timed.setdefault(user, []) if rating is not None else self.timed.get(user)
            if own is None:
                continue
            before = next((deed for deed in own if deed[0] == item), None)
            if rating is None:
                counts["removed"] += before is not None
                own[:] = [deed for deed in own if deed[0] != item]
                continue
            for axis, one in zip(SIDES, (user, item), strict=True):
                counts[f"new_{axis}"] += one not in self.rows[axis]
                self.rows[axis].setdefault(one, -1)
            time = when if timed else now
            counts["added"] += before is None
            if before is not None and timed and time <= before[1]:
                continue
            if before is not None:
                counts["changed"] += 1
                own.remove(before)
            place = sum(deed[1] <= time for deed in own)
            own.insert(place, (item, time))
        return Observed(**counts)

    def forget(self, user: Any) -> int:
        del self.rows["users"][user]
        return len(self.timed.pop(user))

    def model(self) -> RankingModel:
        """Made from the parameters of training and all the data, at once."""
        warm = artifact_of(self.kind)
        kind = pl.String if self.kind == "text" else pl.Int64
        ids = {
            axis: Vocabulary.from_ids(pl.Series(list(self.rows[axis]), dtype=kind))
            for axis in SIDES
        }
        rows = {}
        for axis in SIDES:
            side = warm.networks["warm"].sides.get(axis)
            own = [self.rows[axis][one] for one in ids[axis].ids]
            rows[axis] = np.array(own, np.int32)
            rows[axis][rows[axis] < 0] = side.shared_row if side else 0
        flat = [(user, *deed) for user, own in self.timed.items() for deed in own]
        users, items, times = zip(*flat, strict=True) if flat else ((), (), ())
        timeline = Timeline.of(
            ids["users"].encode(pl.Series(users, dtype=kind)),
            ids["items"].encode(pl.Series(items, dtype=kind)),
            np.array(times, np.int64),
            n_users=ids["users"].size,
            n_items=ids["items"].size,
        )
        item_metadata = pl.DataFrame({"item": ids["items"].ids})
        item_metadata = item_metadata.join(
            warm.item_metadata, on="item", how="left", maintain_order="left"
        )
        return fresh(
            self.kind, **ids, rows=rows, interactions=timeline, item_metadata=item_metadata
        )
