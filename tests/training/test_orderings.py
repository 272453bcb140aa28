"""What each ordering lets an interaction be predicted from, read off the blocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfuica.data.matrix import Timeline
from cfuica.errors import SettingsError
from cfuica.settings import RankingSettings
from cfuica.training.batches import Block
from cfuica.training.orderings import UserBlocks, blocks_per_epoch
from cfuica.training.ranking_task import RankingTask, train_ranking
from tests.ops.shapes import read_by
from tests.training.histories import timeline_of

WHOLE = {"drop_interactions": 0.0, "drop_users": 0.0}
OPEN = {"drop_interactions": None, "drop_users": None}


def blocks_of(timeline: Timeline, **changes: object) -> UserBlocks:
    ranking = RankingSettings(batch_users=5).replaced(**{**WHOLE, **changes})
    return UserBlocks(timeline, timeline.by_item(), ranking)


def epoch(blocks: UserBlocks) -> list[Block]:
    n = blocks_per_epoch(blocks.timeline, blocks.settings)
    return [blocks.draw(step) for step in range(n)]


def done_by(timeline: Timeline, user: int) -> list[tuple[int, int]]:
    """(time, item) of each interaction of a user, in order."""
    own = slice(timeline.offsets[user], timeline.offsets[user + 1])
    return list(zip(timeline.times[own].tolist(), timeline.items[own].tolist(), strict=True))


def ranking_test(block: Block) -> list[tuple[int, int, list[int], bool]]:
    """(user, item, what it is read from, whether it happened) of each pair."""
    read = read_by(block.contexts["items"])
    return [
        (int(user), int(item), read[position], bool(label))
        for user, item, position, label in zip(
            block.pairs.users.row_of_pair,
            block.pairs.items.row_of_pair,
            block.pairs.items.query_of_pair,
            block.labels,
            strict=True,
        )
    ]


SEEDS = st.integers(0, 999)


@settings(max_examples=40, deadline=None)
@given(ordering=st.sampled_from(["chronological", "inverse"]), seed=SEEDS)
def test_an_interaction_is_read_from_the_strictly_earlier_or_later_ones(ordering, seed):
    timeline = timeline_of(9, 8, 40, seed=seed)
    for block in epoch(blocks_of(timeline, ordering=ordering)):
        for user, item, read, happened in ranking_test(block):
            own = done_by(timeline, user)
            (when,) = (time for time, other in own if other == item)
            if ordering == "chronological":
                expected = [other for time, other in own if time < when]
            else:
                expected = [other for time, other in reversed(own) if time > when]
            assert read == expected
            assert happened


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS)
def test_apart_interactions_of_one_second_follow_one_another(seed):
    timeline = timeline_of(9, 8, 40, seed=seed)
    for block in epoch(blocks_of(timeline, ties="apart")):
        for user, item, read, _ in ranking_test(block):
            items = [other for _, other in done_by(timeline, user)]
            assert read == items[: items.index(item)]


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS)
def test_uniform_reads_a_part_of_a_history_and_predicts_the_rest(seed):
    timeline = timeline_of(9, 8, 40, seed=seed)
    for block in epoch(blocks_of(timeline, ordering="uniform")):
        asked: dict[int, set[int]] = {}
        read_of: dict[int, set[int]] = {}
        for user, item, read, _ in ranking_test(block):
            asked.setdefault(user, set()).add(item)
            read_of[user] = set(read)
        for user, items in asked.items():
            assert not items & read_of[user]
            assert items | read_of[user] == {item for _, item in done_by(timeline, user)}


def masked_blocks(timeline: Timeline, **changes: object) -> UserBlocks:
    return blocks_of(timeline, ordering="masked", loss="bernoulli", **{"batch_items": 3, **changes})


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS)
def test_masked_reads_the_items_of_other_blocks_for_positives_and_negatives(seed):
    timeline = timeline_of(9, 8, 40, seed=seed)
    positives = []
    for block in epoch(masked_blocks(timeline, seed=seed)):
        own = set(block.pairs.items.rows.tolist())
        for user, item, read, happened in ranking_test(block):
            items = [other for _, other in done_by(timeline, user)]
            assert read == [other for other in items if other not in own]
            assert (item in items) == happened
            positives += [(user, item)] * happened
    everything = [(user, item) for user in range(9) for _, item in done_by(timeline, user)]
    assert sorted(positives) == sorted(everything)


def test_masked_leaves_out_a_share_that_is_drawn_from_0_to_08_for_each_block_and_each_side():
    """The published law of rating prediction."""
    timeline = timeline_of(60, 40, 1800, seed=4)
    sizes = {"batch_users": 15, "batch_items": 20}
    thinned, whole = (masked_blocks(timeline, **sizes, **drop) for drop in (OPEN, WHOLE))
    shares_sb = np.empty((2, 800))
    for step in range(800):
        left, of_all = (blocks.draw(step).contexts for blocks in (thinned, whole))
        for row, side in enumerate(("items", "users")):
            counts = [np.count_nonzero(each[side].entries >= 0) for each in (left, of_all)]
            shares_sb[row, step] = 1 - counts[0] / counts[1]
    for shares_b in shares_sb:
        counts, _ = np.histogram(shares_b, bins=[-0.01, 0.2, 0.4, 0.6, 1.0])
        assert counts / 800 == pytest.approx(0.25, abs=0.06)
    assert abs(np.corrcoef(shares_sb)[0, 1]) < 0.1


def test_masked_has_one_context_for_all_of_a_user():
    timeline = timeline_of(30, 40, 900, seed=4)
    for block in epoch(masked_blocks(timeline, batch_items=20, drop_interactions=0.5)):
        read_of: dict[int, list[int]] = {}
        for user, _, read, _ in ranking_test(block):
            assert read_of.setdefault(user, read) == read


def test_masked_needs_items_outside_a_minibatch():
    with pytest.raises(SettingsError, match=r"ordering=masked .* batch_items=none has all items"):
        RankingSettings().replaced(ordering="masked")
    timeline = timeline_of(9, 8, 40, seed=0)
    changes = {"ordering": "masked", "loss": "bernoulli", "batch_items": 8}
    with pytest.raises(SettingsError, match="batch_items=8 has all 8 items in each"):
        train_ranking(timeline, RankingSettings().replaced(**changes))


def test_uniform_asks_as_often_from_every_share_of_a_history():
    """For an interaction that is predicted, the share of the others that it is read from is uniform
    up to the largest."""
    timeline = timeline_of(1, 60, 60, seed=0)
    blocks = blocks_of(timeline, ordering="uniform")
    shares = [
        len(read) / 60 for step in range(400) for _, _, read, _ in ranking_test(blocks.draw(step))
    ]
    counts, _ = np.histogram(shares, bins=4, range=(0, 0.95))
    assert counts.min() > 0.75 * counts.mean()


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS)
def test_in_global_time_nothing_is_read_that_was_not_earlier(seed):
    timeline = timeline_of(9, 8, 40, seed=seed)
    blocks = blocks_of(timeline, ordering="global-time")
    asked = []
    for block in epoch(blocks):
        bags = block.contexts["users"]
        when = {}
        for user, item, read, _ in ranking_test(block):
            own = done_by(timeline, user)
            (when[user, item],) = (time for time, other in own if other == item)
            assert read == [other for time, other in own if time < when[user, item]]
            asked.append((user, item))
        # All of what was done before the first of them, and nothing else.
        first = min(when.values(), default=0)
        for item in range(8):
            read_users = bags.entries[bags.offsets[item] : bags.offsets[item + 1]]
            earlier = [
                user for user in range(9) for time, other in done_by(timeline, user)
                if other == item and time < first
            ]  # fmt: skip
            if when:
                assert set(earlier) == set(read_users.tolist())
    everything = [(user, item) for user in range(9) for _, item in done_by(timeline, user)]
    assert sorted(asked) == sorted(everything)


@pytest.mark.parametrize("ordering", ["chronological", "uniform", "inverse"])
def test_others_are_read_and_the_blocks_own_users_are_not(ordering):
    timeline = timeline_of(20, 8, 120, seed=1)
    for block in epoch(blocks_of(timeline, ordering=ordering)):
        bags, own = block.contexts["users"], set(block.pairs.users.rows.tolist())
        for item in range(8):
            read = set(bags.entries[bags.offsets[item] : bags.offsets[item + 1]].tolist())
            who = {user for user in range(20) if item in [i for _, i in done_by(timeline, user)]}
            assert read == who - own


def test_every_user_is_seen_once_in_an_epoch_and_in_another_order_in_the_next():
    timeline = timeline_of(23, 8, 100, seed=2)
    blocks = blocks_of(timeline)
    n = blocks_per_epoch(timeline, blocks.settings)
    orders = [
        np.concatenate([blocks.draw(e * n + b).pairs.users.rows for b in range(n)])
        for e in range(2)
    ]
    all_rows = np.flatnonzero(np.diff(timeline.offsets))
    assert np.array_equal(np.sort(orders[0]), all_rows)
    assert np.array_equal(np.sort(orders[1]), all_rows)
    assert not np.array_equal(*orders)


def test_negatives_are_unobserved_and_predicted_from_whole_histories():
    timeline = timeline_of(10, 40, 80, seed=3)
    blocks = blocks_of(timeline, loss="bernoulli", negatives=3)
    for block in epoch(blocks):
        asked = ranking_test(block)
        assert sum(not happened for *_, happened in asked) == 3 * sum(h for *_, h in asked)
        for user, item, read, happened in asked:
            items = [other for _, other in done_by(timeline, user)]
            assert (item in items) == happened
            if not happened:
                assert set(read) <= set(items)
    shares = [
        len(read) / len(done_by(timeline, user))
        for step in range(60)
        for user, _, read, happened in ranking_test(blocks.draw(step))
        if not happened
    ]
    assert np.mean(shares) == pytest.approx(0.8, abs=0.05)


def test_who_did_everything_has_no_negatives():
    timeline = timeline_of(2, 3, 6, seed=0)
    block = blocks_of(timeline, loss="bernoulli").draw(0)
    assert block.labels.all()


@settings(max_examples=60, deadline=None)
@given(
    ordering=st.sampled_from(["chronological", "inverse", "global-time"]),
    batch_items=st.integers(2, 9),
    seed=SEEDS,
)
def test_in_groups_of_items_every_interaction_is_a_target_once_an_epoch(
    ordering, batch_items, seed
):
    """From what it is read from otherwise too: only what is asked about is cut into groups."""
    timeline = timeline_of(9, 8, 40, seed=seed)
    changes = {"ordering": ordering, "loss": "bernoulli", "seed": seed}
    asked = {}
    for size in (None, batch_items):
        blocks = epoch(blocks_of(timeline, batch_items=size, **changes))
        asked[size] = sorted(
            (user, item, read)
            for block in blocks
            for user, item, read, happened in ranking_test(block)
            if happened
        )
    everything = [(user, item) for user in range(9) for _, item in done_by(timeline, user)]
    assert [(user, item) for user, item, _ in asked[batch_items]] == sorted(everything)
    assert asked[batch_items] == asked[None]


@settings(max_examples=40, deadline=None)
@given(
    ordering=st.sampled_from(["chronological", "inverse", "uniform", "masked"]),
    batch_items=st.integers(2, 9),
    seed=SEEDS,
)
def test_each_block_of_users_meets_each_group_of_items(ordering, batch_items, seed):
    timeline = timeline_of(20, 8, 120, seed=seed)
    blocks = blocks_of(
        timeline, ordering=ordering, loss="bernoulli", negatives=2, batch_items=batch_items
    )
    met = []
    for block in epoch(blocks):
        users, items = block.pairs.users.rows, block.pairs.items.rows
        assert 1 <= len(items) <= batch_items
        assert np.all(np.diff(items) > 0)
        met += [(user, item) for user in users.tolist() for item in items.tolist()]
        assert {item for _, item, _, _ in ranking_test(block)} <= set(items.tolist())
        # The sums of others are those of the group's items, in its order.
        bags = block.contexts["users"]
        assert len(bags.offsets) == len(items) + 1
        for row, item in enumerate(items.tolist()):
            read = set(bags.entries[bags.offsets[row] : bags.offsets[row + 1]].tolist())
            who = {user for user in range(20) if item in [i for _, i in done_by(timeline, user)]}
            assert read == who - set(users.tolist())
        assert np.array_equal(items[block.pairs.users.query_of_pair], block.pairs.items.row_of_pair)
    all_rows = np.flatnonzero(np.diff(timeline.offsets)).tolist()
    assert sorted(met) == [(user, item) for user in all_rows for item in range(8)]


def test_negatives_are_drawn_inside_the_group_uniformly():
    timeline = timeline_of(10, 60, 80, seed=3)
    blocks = blocks_of(timeline, loss="bernoulli", negatives=3, batch_items=15)
    drawn = np.zeros(60)
    for step in range(400):
        block = blocks.draw(step)
        asked = ranking_test(block)
        assert sum(not happened for *_, happened in asked) == 3 * sum(h for *_, h in asked)
        for user, item, _, happened in asked:
            assert item in block.pairs.items.rows
            assert (item in [other for _, other in done_by(timeline, user)]) == happened
            drawn[item] += not happened
    seen = [[item for _, item in done_by(timeline, user)] for user in range(10)]
    chance = [sum(len(own) for own in seen if item not in own) for item in range(60)]
    assert 0.6 * drawn.sum() < (drawn / chance).min() * sum(chance)


def test_groups_of_items_are_others_in_the_next_epoch():
    timeline = timeline_of(23, 12, 100, seed=2)
    blocks = blocks_of(timeline, loss="bernoulli", batch_items=5)
    n = blocks_per_epoch(timeline, blocks.settings)
    assert n == 3 * blocks_per_epoch(timeline, blocks.settings.replaced(batch_items=None))
    groups = [
        {tuple(blocks.draw(e * n + b).pairs.items.rows.tolist()) for b in range(n)}
        for e in range(2)
    ]
    assert [sorted(map(len, found)) for found in groups] == [[4, 4, 4]] * 2
    assert groups[0] != groups[1]


def test_one_group_of_all_items_is_as_no_groups():
    timeline = timeline_of(20, 15, 120, seed=5)
    whole, one = (
        ranking_test(blocks_of(timeline, loss="bernoulli", batch_items=size, **OPEN).draw(3))
        for size in (None, 15)
    )
    assert whole == one


def test_a_softmax_is_over_all_items():
    for loss in ("softmax", "sampled-softmax"):
        with pytest.raises(
            SettingsError, match=f"=5 needs loss=bernoulli, but there is loss={loss}"
        ):
            RankingSettings(loss=loss).replaced(batch_items=5)


def test_a_group_of_one_item_has_no_negatives():
    with pytest.raises(SettingsError, match="batch_items = 1 is not usable"):
        RankingSettings(loss="bernoulli").replaced(batch_items=1)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_interactions_are_left_out_with_the_chance_that_is_set(share):
    timeline = timeline_of(30, 30, 700, seed=4)
    blocks = blocks_of(timeline, drop_interactions=share, batch_users=30)
    entries = np.concatenate([blocks.draw(step).contexts["items"].entries for step in range(9)])
    assert np.mean(entries < 0) == pytest.approx(share, abs=0.03)


def test_an_open_chance_is_drawn_for_each_block_as_published():
    """min(max(1 - 2u, 0), 0.8): half of the blocks leave out nothing, a tenth leave out 0.8."""
    timeline = timeline_of(30, 30, 700, seed=4)
    blocks = blocks_of(timeline, drop_interactions=None, batch_users=30)
    shares = np.array(
        [np.mean(blocks.draw(step).contexts["items"].entries < 0) for step in range(300)]
    )
    assert np.mean(shares == 0) == pytest.approx(0.5, abs=0.08)
    assert np.mean(shares > 0.72) == pytest.approx(0.14, abs=0.07)


def test_a_block_is_a_function_of_seed_and_step():
    timeline = timeline_of(20, 15, 120, seed=5)
    entries = [
        blocks_of(timeline, drop_interactions=0.4, seed=seed).draw(step).contexts["items"].entries
        for seed, step in ((0, 3), (0, 3), (1, 3), (0, 4))
    ]
    assert np.array_equal(entries[0], entries[1])
    assert not np.array_equal(entries[0], entries[2])
    assert not np.array_equal(entries[0], entries[3])


@pytest.mark.parametrize("ordering", ["uniform", "masked"])
def test_a_decay_needs_an_order(ordering):
    with pytest.raises(SettingsError, match="learned_decay=true needs a temporal order"):
        RankingSettings().replaced(learned_decay=True, ordering=ordering)


@pytest.mark.parametrize("ordering", ["chronological", "inverse", "uniform", "global-time"])
@pytest.mark.parametrize("loss", ["softmax", "sampled-softmax"])
def test_the_items_before_a_position_are_masked_at_it(ordering, loss):
    timeline = timeline_of(12, 9, 50, seed=1)
    ranking = RankingSettings(
        ordering=ordering, loss=loss, softmax_candidates=4, batch_users=6, drop_interactions=0.0
    )
    block = UserBlocks(timeline, timeline.by_item(), ranking).draw(0)
    items, targets = block.pairs.items.rows, block.targets
    read = read_by(block.contexts["items"])
    assert any(read)
    for q, own in enumerate(read):
        found = items[targets.seen[targets.seen_start[q] : targets.seen_stop[q]]]
        assert sorted(found) == sorted(set(own) & set(items))


def test_a_sample_estimates_the_sum_over_the_whole_catalogue():
    """The mean over samples of each position's sum of exponentials is that of all items."""
    timeline = timeline_of(12, 9, 50, seed=0)
    sampled = RankingSettings(loss="sampled-softmax", softmax_candidates=3, batch_users=1)
    blocks = UserBlocks(timeline, timeline.by_item(), sampled)
    exponentials_m = np.random.default_rng(0).random(9) + 0.1
    sums = []
    for step in range(0, 12 * 400, 12):  # the same number in every epoch: another user each time
        block = blocks.draw(step)
        chosen = block.pairs.items.row_of_pair[0]
        items = block.pairs.items.rows
        others = items != chosen
        weights_m = np.exp(block.targets.correction_m[others])
        drawn = float((weights_m * exponentials_m[items[others]]).sum())
        sums.append(drawn - (exponentials_m.sum() - exponentials_m[chosen]))
    assert np.mean(sums) == pytest.approx(0.0, abs=4 * np.std(sums) / np.sqrt(len(sums)))


def weighted(timeline: Timeline, seed: int) -> Timeline:
    """Half of the interactions are context only, the others have weights from 1 to 3."""
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, 4, timeline.n_interactions) * (rng.random(len(timeline.items)) < 0.5)
    weights[0] = 1
    return replace(timeline, weights=weights.astype(np.float32))


@settings(max_examples=30, deadline=None)
@given(
    ordering=st.sampled_from(["chronological", "inverse", "uniform", "global-time", "masked"]),
    loss=st.sampled_from(["softmax", "bernoulli", "sampled-softmax"]),
    seed=SEEDS,
)
def test_context_only_interactions_are_read_and_never_predicted(ordering, loss, seed):
    plain = timeline_of(9, 8, 40, seed=seed)
    own = weighted(plain, seed)
    changes = {"ordering": ordering, "loss": loss, "softmax_candidates": 5}
    if ordering == "masked":
        changes |= {"loss": "bernoulli", "batch_items": 3}
    mean = own.weights[own.weights > 0].mean()
    weight_of = {
        (user, item): weight / mean
        for user, item, weight in zip(own.users.tolist(), own.items, own.weights, strict=True)
    }
    both = (epoch(blocks_of(line, **changes)) for line in (plain, own))
    for without, block in zip(*both, strict=True):
        expected = [row for row in ranking_test(without) if not row[3] or weight_of[row[:2]] > 0]
        found = ranking_test(block)
        if ordering == "uniform" or changes["loss"] == "bernoulli":  # drawn by numbers of targets
            found, expected = ([row for row in rows if row[3]] for rows in (found, expected))
        assert sorted(found) == sorted(expected)
        for (user, item, _, happened), weight in zip(
            ranking_test(block), block.weights, strict=True
        ):
            assert weight == pytest.approx(weight_of[user, item] if happened else 1.0)


def test_positions_without_a_target_do_not_change_the_loss():
    plain = timeline_of(9, 8, 40, seed=1)
    ranking = RankingSettings(batch_users=5, loss="softmax").replaced(**WHOLE)
    task = RankingTask.of(weighted(plain, 1), ranking)
    network, block = task.new_network(0), task.blocks(0).draw(0)
    whole = RankingTask.of(plain, ranking).blocks(0).draw(0)
    assert block.contexts["items"].n_rows < whole.contexts["items"].n_rows
    pairs = {row[:2]: at for at, row in enumerate(ranking_test(whole))}
    weights = np.zeros(len(whole.labels), np.float32)
    for (user, item, *_), weight in zip(ranking_test(block), block.weights, strict=True):
        weights[pairs[user, item]] = weight
    whole = replace(whole, targets=replace(whole.targets, weights=weights))
    losses = [float(task.loss(network, each)[0].detach()) for each in (block, whole)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
