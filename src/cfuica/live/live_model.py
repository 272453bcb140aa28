"""A model in use, by external ids: it predicts, observes events and forgets users.

`Catalogue` is what every recommender reads of its data: users, items, their support, and what is
known about the items.

`LiveModel` is an artifact on live states, one for each of its networks. What it observes changes
the next prediction without training; `snapshot()` gives the model as it is now, for saving.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import torch

from cfuica.artifact import (
    COLD_START,
    WARM,
    Artifact,
    BaseArtifact,
    restored_network,
    saved_tensors,
    shared_rows,
    typical_sizes,
)
from cfuica.data.columns import rows_of
from cfuica.data.item_metadata import by_index, check_types, matched_note, updated
from cfuica.data.table import Interactions
from cfuica.data.vocabulary import LiveVocabulary, Vocabulary
from cfuica.errors import DataError
from cfuica.live.interactions import Changes, Observed, columns_of, like, merged, places
from cfuica.live.live_state import LiveState
from cfuica.model.network import Network, expected_rating
from cfuica.model.shared_rows import SharedRows
from cfuica.ops.tables import ROLES, SIDES, SideName

# From so many events on, rebuilding the states is faster than one change at a time. Both give the
# same bits.
MANY_EVENTS = 2000


class Catalogue(ABC):
    """The users and items of a model by external id and by index, and the item metadata.

    The unknown user and the unknown item have an index too, without interactions.
    """

    def __init__(self, artifact: BaseArtifact) -> None:
        self._item_table = artifact.item_metadata
        self.ids: dict[SideName, LiveVocabulary] = {
            "users": LiveVocabulary(ROLES["users"], artifact.users),
            "items": LiveVocabulary(ROLES["items"], artifact.items),
        }
        self.sequence = artifact.sequence  # How many changes there have been.
        # Items that are neither recommended nor similar to others: ascending indices, replaced and
        # never written to.
        self.retired = np.sort(self.ids["items"].encode(artifact.retired))

    @abstractmethod
    def support(self, axis: SideName) -> np.ndarray:
        """(n,) how many interactions each user or item has, by index."""

    @abstractmethod
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Users and items (n,) of all interactions, by index."""

    @property
    def item_metadata(self) -> pl.DataFrame | None:
        """The item metadata, one row per index; null where there is none."""
        table, n_items = self._item_table, self.ids["items"].n_indices
        if table is not None and table.height < n_items:
            nulls = [None] * (n_items - table.height)
            unknown = [pl.Series(name, nulls, kind) for name, kind in table.schema.items()]
            self._item_table = table = table.vstack(pl.DataFrame(unknown))
        return table

    def retire(self, items: np.ndarray, *, retired: bool = True) -> int:
        """Retire items, or take that back; returns of how many that is a change."""
        before, change = self.retired, np.union1d if retired else np.setdiff1d
        self.retired = change(before, items)
        self.sequence += 1
        return abs(len(self.retired) - len(before))

    @property
    def retired_ids(self) -> pl.Series:
        """The ids of the retired items."""
        return self.ids["items"].decode(self.retired)

    def vocabulary(self, axis: SideName) -> Vocabulary:
        """The ids of all known users or items, sorted."""
        return Vocabulary(self.ids[axis].decode(self.ids[axis].present()).rename("id"))

    @property
    def titles(self) -> Callable[[np.ndarray], pl.Series] | None:
        """Titles by item index, null where there is none."""
        table = self.item_metadata
        if table is None or "title" not in table.columns:
            return None
        return lambda index: table["title"].gather(index)

    def indices(self, axis: SideName, ids: pl.Series, *, serve_unknown: bool) -> np.ndarray:
        """(n,) int32 indices of n ids; an unknown id gets the unknown index, or is an error."""
        stored = self.ids[axis]
        if ids.null_count():
            row = int(ids.is_null().arg_max() or 0) + 1
            raise DataError(f"The {stored.role} in row {row} is missing; give an id or no row.")
        index = stored.encode(ids)
        unknown = np.flatnonzero(index < 0)
        if len(unknown) and not serve_unknown:
            row = int(unknown[0])
            others = f", like {len(unknown) - 1} more of {len(ids)}" if len(unknown) > 1 else ""
            raise DataError(
                f"The {stored.role} {ids[row]!r} (row {row + 1}) is unknown to this model{others}: "
                f"it knows {stored.size} {axis}{self._example(axis, ids[row])}; leave the unknown "
                f"ones out, or have them served as cold-start users or items."
            )
        index[unknown] = stored.unknown_index
        return index

    def unknown(self, axis: SideName, ids: pl.Series) -> tuple[pl.Series, str]:
        """Those of the ids, each once, that the model does not know, and a sentence about them."""
        once = ids.unique(maintain_order=True)
        unknown = once.filter(self.ids[axis].encode(once) < 0)
        if not len(unknown):
            return unknown, ""
        verb = "is" if len(unknown) == 1 else "are"
        others = f" and {len(unknown) - 1:,} more" if len(unknown) > 1 else ""
        return unknown, (
            f"{len(unknown):,} of {len(once):,} {axis} {verb} unknown to this model: {unknown[0]!r}"
            f"{others}; it knows {self.ids[axis].size:,} {axis}{self._example(axis, unknown[0])}."
        )

    def _example(self, axis: SideName, one: Any) -> str:
        """An id like an unknown one, as the end of "it knows 5 users"."""
        other = self.ids[axis].other_form(one)
        if other is None:
            return self.ids[axis].example
        return f", among them {other!r}, which may be the same in another form"


class LiveModel(Catalogue):
    """A model of either task and what it has observed since it was fitted.

    Pairs of a warm user and a warm item are predicted by the warm network, all others by the
    cold-start network where the model has one.
    """

    def __init__(self, artifact: Artifact) -> None:
        super().__init__(artifact)
        # What was fitted or loaded; its sums are the live states' from now on.
        self.artifact = replace(artifact, sums={})
        self.scale = artifact.scale
        self._has_changed = False
        self.states: dict[str, LiveState] = {}
        for name, network in artifact.networks.items():
            # Without a cold-start network, cold-start users have the mean rows of the warm one and
            # no bias of their own.
            is_rated = name == COLD_START and artifact.scale is not None
            self.states[name] = LiveState.of(
                network,
                artifact.interactions,
                artifact.rows,
                values_k=artifact.scale.values_array() if is_rated and artifact.scale else None,
                item_sums=artifact.sums.get(name),
                centroids=artifact.centroids,
            )
            for axis in SIDES:
                self.states[name].add(axis)  # the unknown user and the unknown item

    @property
    def state(self) -> LiveState:
        """The interactions, and the warm network on them."""
        return self.states[WARM]

    def support(self, axis: SideName) -> np.ndarray:
        """(n,) how many interactions each user or item has, by index."""
        return self.state.support(axis)

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Users and items (n,) of all interactions, by index."""
        return columns_of(self.state.collected())[:2]

    def network_for(self, user: int, item: int) -> str:
        """The name of the network that predicts a pair; an anonymous user has the unknown index."""
        is_cold = self.state.is_cold("users", user) or self.state.is_cold("items", item)
        return COLD_START if is_cold and COLD_START in self.states else WARM

    def by_network(self, is_cold: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
        """The names of the networks, and the positions of what each of them predicts: those that
        are cold by a mask (n,), or not."""
        if COLD_START not in self.states:
            is_cold = np.zeros_like(is_cold)
        for name, own in ((WARM, ~is_cold), (COLD_START, is_cold)):
            if own.any():
                yield name, np.flatnonzero(own)

    def pair_logits(
        self, users_p: np.ndarray, items_p: np.ndarray
    ) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """For each network: its name, which of the pairs it predicts (A,), and their logits
        (A, K)."""
        is_cold_p = self.state.is_cold("users", users_p) | self.state.is_cold("items", items_p)
        for name, own in self.by_network(is_cold_p):
            yield name, own, self.states[name].pair_logits(users_p[own], items_p[own])

    def distributions(self, users_p: np.ndarray, items_p: np.ndarray) -> np.ndarray:
        """(P, K) float32 calibrated distributions of pairs, of a rating model."""
        assert self.scale is not None
        values_k = self.scale.values_array()
        p_pk = np.empty((len(users_p), len(values_k)), np.float32)
        for name, own, logits_pk in self.pair_logits(users_p, items_p):
            calibration = self.artifact.calibration(name)
            p_pk[own] = calibration.distributions(logits_pk, values_k)
        return p_pk

    def expected(self, users_p: np.ndarray, items_p: np.ndarray) -> np.ndarray:
        """(P,) float32 expected ratings of pairs, which calibration does not change."""
        assert self.scale is not None
        expected_p = np.empty(len(users_p), np.float32)
        for _, own, logits_pk in self.pair_logits(users_p, items_p):
            expected_p[own] = expected_rating(logits_pk[None], self.scale.values_array())[0]
        return expected_p

    def observe(self, events: pl.DataFrame, item_metadata: pl.DataFrame | None = None) -> Observed:
        """Add, change or remove the interactions of these rows, at most one of a pair: user, item,
        of a rating model rating, of a ranking model perhaps timestamp, and perhaps removed.

        `item_metadata` has the column `item` and any others. Nothing is changed where a row is
        refused.
        """
        if item_metadata is not None:
            check_types(self.item_metadata, item_metadata, "the items frame")
        if self.scale is None and "timestamp" in events.columns and not self.artifact.has_times:
            # The model has no times to compare these with, so they only order the events.
            order = np.argsort(events["timestamp"].to_numpy(), kind="stable")
            events = rows_of(events, order, without="timestamp")
        given = np.ones(len(events), np.bool_)
        labels = np.zeros(len(events), np.uint8)
        if "removed" in events.columns:
            given = (~events["removed"]).to_numpy()
        added = rows_of(events, np.flatnonzero(given))
        if self.scale is not None and added.height:
            labels[given] = self.scale.encode(
                added["rating"],
                lambda row: f"of user {added['user'][row]!r} and item {added['item'][row]!r}",
            )
        types = Interactions(events, source="the events").type_numbers(self.artifact.types)
        new_users, new_items = self._add_ids_of(added)
        users, items = (self.ids[axis].encode(events[self.ids[axis].role]) for axis in SIDES)
        is_there = (users >= 0) & (items >= 0)  # what is removed may never have been there
        times = None
        if self.scale is None and "timestamp" in events.columns:
            times = events["timestamp"].to_numpy()[is_there]
        types = None if types is None else types[is_there]
        changes = Changes(
            users[is_there], items[is_there], labels[is_there], given[is_there], times, types
        )
        self._has_changed = True
        few = len(events) < MANY_EVENTS
        observed = self._change(changes.rows()) if few else self._rebuild(changes)
        if item_metadata is not None:
            self._update_items(item_metadata)
        self.sequence += 1
        return replace(observed, new_users=new_users, new_items=new_items, sequence=self.sequence)

    def observe_one(
        self,
        user: str | int,
        item: str | int,
        rating: float | None = None,
        *,
        time: int | None = None,
    ) -> Observed:
        """The same of one event that removes nothing, without frames, which take longer than all
        the rest."""
        label = 0
        if self.scale is not None:
            place = f"of user {user!r} and item {item!r}"
            label = int(self.scale.encode(np.array([rating]), lambda _: place)[0])
        index: dict[SideName, int] = {}
        added: dict[SideName, Any] = {}
        for axis, one in zip(SIDES, (user, item), strict=True):
            name = self.ids[axis].name(one)
            index[axis] = -1 if name is None else self.ids[axis].find(name)
            if index[axis] < 0:
                self.ids[axis].check(pl.Series([one]))
                added[axis] = name
        for axis, name in added.items():
            self._add_ids(axis, [name])
            index[axis] = self.ids[axis].find(name)
        self._has_changed = True
        time = time if self.artifact.has_times else None
        # An event without a type is of the strongest.
        strongest = max(len(self.artifact.types) - 1, 0)
        observed = self._change([(index["users"], index["items"], label, time, strongest)])
        self.sequence += 1
        return replace(
            observed,
            new_users=int("users" in added),
            new_items=int("items" in added),
            sequence=self.sequence,
        )

    def forget(self, axis: SideName, index: int) -> int:
        """Forget a user or item; returns the number of interactions removed."""
        removed = [state.forget(axis, index) for state in self.states.values()]
        self.ids[axis].forget(index)
        if axis == "items":
            self.retired = np.setdiff1d(self.retired, [index])
        self._has_changed = True
        self.sequence += 1
        return removed[0]

    def snapshot(self) -> Artifact:
        """The model as it is now, for saving: ids in order, without the forgotten ones."""
        present = {axis: self.ids[axis].present() for axis in SIDES}
        cached = {name: state.item_sums(present["items"]) for name, state in self.states.items()}
        sums = {name: own for name, own in cached.items() if own is not None}
        changed: dict[str, Any] = {"retired": self.retired_ids, "sequence": self.sequence}
        if not self._has_changed:
            return replace(self.artifact, sums=sums, **changed)
        rows = {axis: self.state.rows(axis)[present[axis]] for axis in SIDES}
        networks, new_rows = {}, rows
        for name, state in self.states.items():
            networks[name], new_rows = self._without_unused_rows(name, state.network, rows)
        collected = self.state.collected()
        users, items, values, types = columns_of(collected)
        vocabularies = {axis: self.vocabulary(axis) for axis in SIDES}
        item_metadata = self.item_metadata
        if item_metadata is not None:
            item_metadata = rows_of(item_metadata, present["items"]).with_columns(
                item=vocabularies["items"].ids
            )
        return replace(
            self.artifact,
            users=vocabularies["users"],
            items=vocabularies["items"],
            rows=new_rows,
            item_metadata=item_metadata,
            networks=networks,
            interactions=like(
                collected,
                places(present["users"], collected.n_users)[users],
                places(present["items"], collected.n_items)[items],
                values,
                types,
                n_users=len(present["users"]),
                n_items=len(present["items"]),
            ),
            sums=sums,
            **changed,
        )

    def _without_unused_rows(
        self, name: str, network: Network, rows: dict[SideName, np.ndarray]
    ) -> tuple[Network, dict[SideName, np.ndarray]]:
        """The network without unused table rows, and the row of each user and item in it.

        The shared row stays, as the last one. Users or items without a side have no table, and
        their rows are all 0.
        """
        tensors, shared = saved_tensors(network), dict(shared_rows(network))
        new_rows = {axis: np.zeros_like(own) for axis, own in rows.items()}
        is_whole = True
        for axis, side in network.sides.items():
            # Those of the clusters stay: new users or items may join them.
            used = np.union1d(rows[axis], np.arange(side.n_own_rows, side.n_rows))
            new_rows[axis] = np.searchsorted(used, rows[axis]).astype(np.int32)
            if len(used) == side.n_rows:
                continue
            is_whole, in_table = False, used
            if side.shared is not None:
                in_table, row_of = np.unique(side.shared.row_of[used], return_inverse=True)
                shared[axis] = SharedRows(row_of.astype(np.int32), side.shared.n_clusters)
            for table, own in (("W", in_table), ("V", in_table), ("b", used)):
                tensors[f"{axis}.{table}"] = tensors[f"{axis}.{table}"][torch.from_numpy(own)]
        if not is_whole:
            network = restored_network(
                self.artifact.settings,
                tensors,
                network.n_labels,
                typical_sizes(network),
                cold_start=name == COLD_START,
                shared=shared,
            )
        return network, new_rows

    def _change(self, changes: Iterable[tuple[int, int, int | None, int | None, int]]) -> Observed:
        """Apply changes one at a time."""
        counts = dict.fromkeys(("added", "changed", "removed"), 0)
        now = self.state.newest
        for user, item, label, time, type_ in changes:
            for state in self.states.values():
                change = state.change(user, item, label, time, type_, now=now)
            if change is not None:
                counts[change] += 1
        return Observed(**counts)

    def _rebuild(self, changes: Changes) -> Observed:
        """Apply changes by rebuilding the states."""
        interactions, observed = merged(self.state.collected(), changes, self.state.newest)
        rows = {axis: self.state.rows(axis) for axis in SIDES}
        self.states = {name: old.anew(interactions, rows) for name, old in self.states.items()}
        return observed

    def _add_ids_of(self, events: pl.DataFrame) -> tuple[int, int]:
        """Add the users and items of these rows; returns how many users and items are new.

        Nothing is added where one id is refused.
        """
        unknown: dict[SideName, pl.Series] = {}
        for axis, live_ids in self.ids.items():
            ids = events[live_ids.role]
            unknown[axis] = ids.filter(live_ids.encode(ids) < 0)
            live_ids.check(unknown[axis])
        new_users, new_items = (
            self._add_ids(axis, self.ids[axis].names(unknown[axis])) for axis in SIDES
        )
        return new_users, new_items

    def _add_ids(self, axis: SideName, names: Iterable[Any]) -> int:
        """Give unknown names an index; returns how many."""
        count = self.ids[axis].add(names)
        if count:
            for state in self.states.values():
                state.add(axis, count)
        return count

    def update_items(
        self, item_metadata: pl.DataFrame, source: str = "the items frame"
    ) -> str | None:
        """Add item metadata, in place of what the model has in the same columns; returns a note
        where not all items have some."""
        note = matched_note(item_metadata["item"], self.vocabulary("items"), source, "the model")
        self._update_items(item_metadata, source)
        return note

    def _update_items(self, item_metadata: pl.DataFrame, source: str = "the items frame") -> None:
        n_items = self.ids["items"].n_indices
        more = by_index(item_metadata, self.ids["items"].encode(item_metadata["item"]), n_items)
        names = self.ids["items"].decode(np.arange(n_items))
        table = updated(self.item_metadata, more.with_columns(item=names), source)
        self._item_table, self._has_changed = table, True
