"""What each protocol asks of a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cfuica.data.split_tables import DataSplit
from cfuica.data.table import Interactions
from cfuica.errors import DataError, SettingsError
from cfuica.evaluation.evaluate import same_test
from cfuica.evaluation.protocols import RunVocabulary, protocol_of, ranking_test_for
from cfuica.metrics.ranking_metrics import RankingTest
from cfuica.run_folder import RunFolder
from tests.data.test_movielens_ncf import write as write_ncf
from tests.runs.ranking_run import finished_run, movielens_parts, ranker_of, tied_table

Pairs = set[tuple[int, int]]


@pytest.fixture
def data_split() -> DataSplit:
    return DataSplit.leave_one_out(tied_table(), protocols=True)


@pytest.fixture
def run(data_split: DataSplit, tmp_path: Path) -> RunFolder:
    return finished_run(tmp_path / "run", data_split)


def known_of(data_split: DataSplit) -> RunVocabulary:
    return RunVocabulary.of_model(ranker_of(data_split))


def relevant_pairs(ranking_test: RankingTest, run_vocabulary: RunVocabulary) -> Pairs:
    users = run_vocabulary.users.decode(ranking_test.users_u[ranking_test.relevant.row_of_entry()])
    items = run_vocabulary.items.decode(ranking_test.relevant.indices)
    return set(zip(users.to_list(), items.to_list(), strict=True))


def pairs_of(frame: pl.DataFrame) -> Pairs:
    return set(frame.select("user", "item").iter_rows())


@pytest.mark.parametrize("protocol", ["full", "paper"])
def test_a_protocol_asks_about_its_own_test_items_given_all_else(data_split, run, protocol):
    run_vocabulary = known_of(data_split)
    ranking_test, extra = ranking_test_for(protocol, run, run_vocabulary)
    test = data_split.test.frame
    assert ranking_test.protocol == protocol
    assert relevant_pairs(ranking_test, run_vocabulary) == pairs_of(test.filter(protocol))
    assert pairs_of(extra.frame) == pairs_of(test.filter(~pl.col(protocol)))
    assert extra.frame.columns == ["user", "item", "rating", "timestamp"]


def test_full_ranks_all_that_is_unseen_and_was_ever_done(data_split, run):
    run_vocabulary = known_of(data_split)
    ranking_test, extra = ranking_test_for("full", run, run_vocabulary)
    assert ranking_test.candidates_duc is None
    # Three items of the item space were never done.
    assert ranking_test.catalogue_m.sum() == 30
    assert not ranking_test.catalogue_m[30:].any()
    done = (
        pairs_of(data_split.train.frame) | pairs_of(data_split.valid.frame) | pairs_of(extra.frame)
    )
    users = run_vocabulary.users.decode(ranking_test.users_u[ranking_test.seen.row_of_entry()])
    items = run_vocabulary.items.decode(ranking_test.seen.indices)
    assert set(zip(users.to_list(), items.to_list(), strict=True)) == done


def test_the_paper_draws_from_all_ids_what_the_user_has_not_done(data_split, run):
    run_vocabulary = known_of(data_split)
    ranking_test, _ = ranking_test_for("paper", run, run_vocabulary)
    candidates = ranking_test.candidates_duc
    assert candidates.shape == (10, 12, 101)
    done = pairs_of(data_split.whole.frame)
    for row, user in enumerate(run_vocabulary.users.decode(ranking_test.users_u)):
        own, *others = run_vocabulary.items.ids.gather(candidates[0, row][candidates[0, row] >= 0])
        assert (user, own) in done
        # Fewer than 100 are left in so small a world: all of them are there, once.
        assert sorted(others) == [i for i in range(1, 34) if (user, i) not in done]


def test_draws_differ_from_each_other_and_repeat_for_ever(tmp_path):
    data_split = DataSplit.leave_one_out(tied_table(items=400), protocols=True)
    run = finished_run(tmp_path / "run", data_split)
    ranking_test, _ = ranking_test_for("paper", run, known_of(data_split))
    draws = ranking_test.candidates_duc[:, :, 1:]
    assert (draws >= 0).all()
    assert len({tuple(np.sort(draws[d, u])) for d in range(10) for u in range(12)}) == 120
    again, _ = ranking_test_for("paper", run, known_of(data_split))
    assert same_test(ranking_test, again)
    # Written down once: the figures of the protocol hang on it.
    assert draws[0, 0, :5].tolist() == DRAWN


DRAWN = [66, 41, 43, 52, 272]


def test_what_a_model_folder_tells_is_what_the_model_knows(data_split, run):
    for protocol in ("full", "paper"):
        by_folder, _ = ranking_test_for(protocol, run, RunVocabulary.of_run(run))
        by_model, _ = ranking_test_for(protocol, run, known_of(data_split))
        assert same_test(by_folder, by_model)


def test_by_date_every_later_interaction_is_relevant_and_cold_start_stay(tmp_path):
    frame = pl.DataFrame(
        {
            "user": [1, 1, 2, 2, 1, 1, 3],
            "item": [1, 2, 1, 3, 3, 4, 9],
            "rating": [1.0] * 7,
            "timestamp": [1, 2, 3, 4, 5, 6, 7],
        }
    )
    data_split = DataSplit.by_date(Interactions(frame), test_from=5, valid=0.0)
    run = finished_run(tmp_path / "run", data_split)
    run_vocabulary = known_of(data_split)
    ranking_test, extra = ranking_test_for("date", run, run_vocabulary)
    assert extra is None
    assert relevant_pairs(ranking_test, run_vocabulary) == {(1, 3), (1, 4), (3, 9)}
    assert ranking_test.relevant.sizes.tolist() == [2, 1]
    assert ranking_test.seen.indices.tolist() == [0, 1]
    assert ranking_test.catalogue_m.all()
    assert protocol_of(run, None) == "date"


def test_ncf_asks_among_its_own_negatives(tmp_path, monkeypatch):
    monkeypatch.setenv("CFUICA_DATA", str(tmp_path))
    write_ncf(tmp_path / "ml-1m-ncf")
    rows = {
        "user": [1, 1, 1, 2, 2, 2],
        "item": [10, 30, 20, 50, 40, 10],
        "rating": [1.0] * 6,
        "timestamp": [1, 900, 900, 3, 800, 800],
    }
    data_split = DataSplit.leave_one_out(Interactions(pl.DataFrame(rows)), protocols=True)
    assert data_split.description["protocols"] == {"full": 2, "paper": 2, "ncf": 2}
    run, run_vocabulary = finished_run(tmp_path / "run", data_split), known_of(data_split)
    ranking_test, extra = ranking_test_for("ncf", run, run_vocabulary)
    assert relevant_pairs(ranking_test, run_vocabulary) == {(1, 30), (2, 40)}
    ids = run_vocabulary.items.ids.to_numpy()
    assert ids[ranking_test.candidates_duc].tolist() == [[[30, 20, 50], [40, 10, 40]]]
    assert pairs_of(extra.frame) == {(1, 20), (2, 10)}
    write_ncf(tmp_path / "ml-1m-ncf", **{
        "ml-1m.test.rating": "0\t2\t5\t900\n1\t4\t3\t800\n",
        "ml-1m.test.negative": "(0,2)\t1\t3\n(1,4)\t0\t4\n",
    })  # fmt: skip
    with pytest.raises(DataError, match="they have changed since"):
        ranking_test_for("ncf", run, run_vocabulary)
    (tmp_path / "ml-1m-ncf" / "item_map.csv").unlink()
    with pytest.raises(DataError, match=r"put ml-1m.test.rating, .* in .*ml-1m-ncf"):
        ranking_test_for("ncf", run, run_vocabulary)


def test_protocols_that_do_not_fit_a_run_say_why(tmp_path, data_split, run):
    run_vocabulary = known_of(data_split)
    assert protocol_of(run, None) == "full"
    with pytest.raises(SettingsError, match=r"--protocol best is not known; .*users and given"):
        protocol_of(run, "best")
    with pytest.raises(SettingsError, match=r"date tests runs with --split date, but .*leave-one"):
        ranking_test_for("date", run, run_vocabulary)
    with pytest.raises(DataError, match=r"needs MovieLens 1M .*ml-1m-ncf.* by full or paper"):
        ranking_test_for("ncf", run, run_vocabulary)
    run.test.unlink()
    with pytest.raises(DataError, match="has no test set"):
        ranking_test_for("full", run, run_vocabulary)
    random = DataSplit.random(tied_table(), folds=5, fold=0, valid=0.05, seed=0)
    other = finished_run(tmp_path / "random", random)
    with pytest.raises(SettingsError, match=r"but .*random; evaluate by random, or train again"):
        protocol_of(other, "paper")
    nothing = DataSplit.everything(tied_table(), valid=0.05, seed=0)
    other = finished_run(tmp_path / "nothing", nothing)
    for protocol in (None, "full"):
        with pytest.raises(SettingsError, match=r"--split none, which has no test set; .* --test"):
            protocol_of(other, protocol)


def test_a_run_that_set_nothing_aside_can_be_ranked_in_full_only(tmp_path):
    data_split = DataSplit.leave_one_out(tied_table())
    run = finished_run(tmp_path / "run", data_split, task="rating")
    ranking_test, extra = ranking_test_for("full", run, known_of(data_split))
    assert ranking_test.n_users == 12
    assert extra is None
    with pytest.raises(DataError, match="may have been trained on them"):
        ranking_test_for("paper", run, known_of(data_split))


def test_data_without_times_cannot_be_tested_by_the_paper(tmp_path):
    table = Interactions(tied_table().frame.drop("timestamp"))
    data_split = DataSplit.leave_one_out(table, protocols=True)
    run = finished_run(tmp_path / "run", data_split)
    with pytest.raises(DataError, match=r"has no times, .*evaluate by full"):
        ranking_test_for("paper", run, known_of(data_split))


def test_a_test_part_of_another_model_is_refused(data_split, run):
    run_vocabulary = known_of(DataSplit.leave_one_out(tied_table(users=11), protocols=True))
    with pytest.raises(DataError, match="has the user 12, which the run's model does not know"):
        ranking_test_for("full", run, run_vocabulary)


def test_on_movielens_each_protocol_asks_every_user(tmp_path):
    data_split = movielens_parts()
    run, run_vocabulary = finished_run(tmp_path / "run", data_split), known_of(data_split)
    full, _ = ranking_test_for("full", run, run_vocabulary)
    assert full.n_users == 6040
    assert full.catalogue_m.sum() == 3706
    paper, _ = ranking_test_for("paper", run, run_vocabulary)
    assert paper.candidates_duc.shape == (10, 6040, 101)
    unobserved_items = ~full.catalogue_m
    # 246 of 3,952 ids were never rated, and are drawn as any other.
    share = unobserved_items[paper.candidates_duc[:, :, 1:]].mean()
    assert share == pytest.approx(246 / (3952 - 165), abs=0.003)
    ncf, extra = ranking_test_for("ncf", run, run_vocabulary)
    assert ncf.candidates_duc.shape == (1, 6040, 100)
    assert (ncf.candidates_duc[0, :, 1:] == ncf.candidates_duc[0, :, :1]).sum() == 156
    assert extra.n == 8554 - 6040
