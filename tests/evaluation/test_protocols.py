"""What each protocol asks of a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cfuica.artifact.run_folder import RunFolder
from cfuica.data.split_tables import Parts
from cfuica.data.table import BehaviourTable
from cfuica.errors import DataError, SettingsError
from cfuica.evaluation.protocols import Known, protocol_of, questions_for
from cfuica.metrics.ranking_evaluation import Questions
from tests.data.test_ncf import write as write_ncf
from tests.runs.ranking_run import finished_run, movielens_parts, ranker_of, tied_table

Pairs = set[tuple[int, int]]


@pytest.fixture
def parts() -> Parts:
    return Parts.leave_one_out(tied_table(), protocols=True)


@pytest.fixture
def run(parts: Parts, tmp_path: Path) -> RunFolder:
    return finished_run(tmp_path / "run", parts)


def known_of(parts: Parts) -> Known:
    return Known.of_model(ranker_of(parts))


def relevant_pairs(questions: Questions, known: Known) -> Pairs:
    users = known.users.decode(questions.users_u[questions.relevant.row_of_member()])
    items = known.items.decode(questions.relevant.members)
    return set(zip(users.to_list(), items.to_list(), strict=True))


def pairs_of(frame: pl.DataFrame) -> Pairs:
    return set(frame.select("user", "item").iter_rows())


@pytest.mark.parametrize("protocol", ["full", "paper"])
def test_a_protocol_asks_about_its_own_test_items_given_all_else(parts, run, protocol):
    known = known_of(parts)
    questions, extra = questions_for(protocol, run, known)
    test = parts.test.frame
    assert questions.protocol == protocol
    assert relevant_pairs(questions, known) == pairs_of(test.filter(protocol))
    assert pairs_of(extra.frame) == pairs_of(test.filter(~pl.col(protocol)))
    assert extra.frame.columns == ["user", "item", "rating", "timestamp"]


def test_full_ranks_all_that_is_unseen_and_was_ever_done(parts, run):
    known = known_of(parts)
    questions, extra = questions_for("full", run, known)
    assert questions.candidates_duc is None
    # Three items of the item space were never done.
    assert questions.catalogue_m.sum() == 30
    assert not questions.catalogue_m[30:].any()
    done = pairs_of(parts.train.frame) | pairs_of(parts.valid.frame) | pairs_of(extra.frame)
    users = known.users.decode(questions.users_u[questions.seen.row_of_member()])
    items = known.items.decode(questions.seen.members)
    assert set(zip(users.to_list(), items.to_list(), strict=True)) == done


def test_the_paper_draws_from_all_ids_what_the_user_has_not_done(parts, run):
    known = known_of(parts)
    questions, _ = questions_for("paper", run, known)
    candidates = questions.candidates_duc
    assert candidates.shape == (10, 12, 101)
    done = pairs_of(parts.whole.frame)
    for row, user in enumerate(known.users.decode(questions.users_u)):
        own, *others = known.items.ids.gather(candidates[0, row][candidates[0, row] >= 0])
        assert (user, own) in done
        # Fewer than 100 are left in so small a world: all of them are there, once.
        assert sorted(others) == [i for i in range(1, 34) if (user, i) not in done]


def test_draws_differ_from_each_other_and_repeat_for_ever(tmp_path):
    parts = Parts.leave_one_out(tied_table(items=400), protocols=True)
    run = finished_run(tmp_path / "run", parts)
    questions, _ = questions_for("paper", run, known_of(parts))
    draws = questions.candidates_duc[:, :, 1:]
    assert (draws >= 0).all()
    assert len({tuple(np.sort(draws[d, u])) for d in range(10) for u in range(12)}) == 120
    again, _ = questions_for("paper", run, known_of(parts))
    assert questions.sha256() == again.sha256()
    # Written down once: the figures of the protocol hang on it.
    assert draws[0, 0, :5].tolist() == DRAWN


DRAWN = [66, 41, 43, 52, 272]


def test_what_a_model_folder_tells_is_what_the_model_knows(parts, run):
    for protocol in ("full", "paper"):
        by_folder, _ = questions_for(protocol, run, Known.of_run(run))
        by_model, _ = questions_for(protocol, run, known_of(parts))
        assert by_folder.sha256() == by_model.sha256()


def test_by_date_every_later_behaviour_is_relevant_and_strangers_stay(tmp_path):
    frame = pl.DataFrame(
        {
            "user": [1, 1, 2, 2, 1, 1, 3],
            "item": [1, 2, 1, 3, 3, 4, 9],
            "rating": [1.0] * 7,
            "timestamp": [1, 2, 3, 4, 5, 6, 7],
        }
    )
    parts = Parts.by_date(BehaviourTable(frame), test_from=5, valid=0.0)
    run = finished_run(tmp_path / "run", parts)
    known = known_of(parts)
    questions, extra = questions_for("date", run, known)
    assert extra is None
    assert relevant_pairs(questions, known) == {(1, 3), (1, 4), (3, 9)}
    assert questions.relevant.sizes.tolist() == [2, 1]
    assert questions.seen.members.tolist() == [0, 1]
    assert questions.catalogue_m.all()
    assert protocol_of(run, None) == "date"


def test_ncf_asks_among_its_own_negatives(tmp_path, monkeypatch):
    monkeypatch.setenv("CFUICA_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)  # away from ../shared/data
    write_ncf(tmp_path / "ml-1m-ncf")
    rows = {
        "user": [1, 1, 1, 2, 2, 2],
        "item": [10, 30, 20, 50, 40, 10],
        "rating": [1.0] * 6,
        "timestamp": [1, 900, 900, 3, 800, 800],
    }
    parts = Parts.leave_one_out(BehaviourTable(pl.DataFrame(rows)), protocols=True)
    assert parts.about["protocols"] == {"full": 2, "paper": 2, "ncf": 2}
    run, known = finished_run(tmp_path / "run", parts), known_of(parts)
    questions, extra = questions_for("ncf", run, known)
    assert relevant_pairs(questions, known) == {(1, 30), (2, 40)}
    ids = known.items.ids.to_numpy()
    assert ids[questions.candidates_duc].tolist() == [[[30, 20, 50], [40, 10, 40]]]
    assert pairs_of(extra.frame) == {(1, 20), (2, 10)}
    write_ncf(tmp_path / "ml-1m-ncf", **{
        "ml-1m.test.rating": "0\t2\t5\t900\n1\t4\t3\t800\n",
        "ml-1m.test.negative": "(0,2)\t1\t3\n(1,4)\t0\t4\n",
    })  # fmt: skip
    with pytest.raises(DataError, match="they have changed since"):
        questions_for("ncf", run, known)
    (tmp_path / "ml-1m-ncf" / "item_map.csv").unlink()
    with pytest.raises(DataError, match=r"put ml-1m.test.rating, .* in .*ml-1m-ncf"):
        questions_for("ncf", run, known)


def test_protocols_that_do_not_fit_a_run_say_why(tmp_path, parts, run):
    known = known_of(parts)
    assert protocol_of(run, None) == "full"
    with pytest.raises(SettingsError, match=r"--protocol best is not known; .*ncf and date"):
        protocol_of(run, "best")
    with pytest.raises(SettingsError, match=r"date tests runs with --split date, but .*leave-one"):
        questions_for("date", run, known)
    with pytest.raises(DataError, match=r"needs MovieLens 1M .*ml-1m-ncf.* by full or paper"):
        questions_for("ncf", run, known)
    run.test.unlink()
    with pytest.raises(DataError, match="has no test part"):
        questions_for("full", run, known)
    random = Parts.random(tied_table(), folds=5, fold=0, valid=0.05, seed=0)
    other = finished_run(tmp_path / "random", random)
    with pytest.raises(SettingsError, match="split by --split random, but rankings"):
        protocol_of(other, None)
    with pytest.raises(SettingsError, match=r"but .*random; train again"):
        protocol_of(other, "full")


def test_a_run_that_set_nothing_aside_can_be_ranked_in_full_only(tmp_path):
    parts = Parts.leave_one_out(tied_table())
    run = finished_run(tmp_path / "run", parts, task="rating")
    questions, extra = questions_for("full", run, known_of(parts))
    assert questions.n_users == 12
    assert extra is None
    with pytest.raises(DataError, match="may have been trained on them"):
        questions_for("paper", run, known_of(parts))


def test_data_without_times_cannot_be_tested_by_the_paper(tmp_path):
    table = BehaviourTable(tied_table().frame.drop("timestamp"))
    parts = Parts.leave_one_out(table, protocols=True)
    run = finished_run(tmp_path / "run", parts)
    with pytest.raises(DataError, match=r"has no times, .*evaluate by full"):
        questions_for("paper", run, known_of(parts))


def test_a_test_part_of_another_model_is_refused(parts, run):
    known = known_of(Parts.leave_one_out(tied_table(users=11), protocols=True))
    with pytest.raises(DataError, match="has the user 12, which the run's model does not know"):
        questions_for("full", run, known)


def test_on_movielens_each_protocol_asks_every_user(tmp_path):
    parts = movielens_parts()
    run, known = finished_run(tmp_path / "run", parts), known_of(parts)
    full, _ = questions_for("full", run, known)
    assert full.n_users == 6040
    assert full.catalogue_m.sum() == 3706
    paper, _ = questions_for("paper", run, known)
    assert paper.candidates_duc.shape == (10, 6040, 101)
    never_done = ~full.catalogue_m
    # 246 of 3,952 ids were never rated, and are drawn as any other.
    share = never_done[paper.candidates_duc[:, :, 1:]].mean()
    assert share == pytest.approx(246 / (3952 - 165), abs=0.003)
    ncf, extra = questions_for("ncf", run, known)
    assert ncf.candidates_duc.shape == (1, 6040, 100)
    assert (ncf.candidates_duc[0, :, 1:] == ncf.candidates_duc[0, :, :1]).sum() == 156
    assert extra.n == 8554 - 6040
