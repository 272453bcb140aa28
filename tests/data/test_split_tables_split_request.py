"""What is asked of a split: defaults filled in, and everything that makes no sense refused."""

from __future__ import annotations

import pytest

from cfuica.data.split_tables import DataSplit, SplitRequest
from cfuica.errors import SettingsError
from tests.runs.ranking_run import tied_table
from tests.runs.small import small_table


@pytest.mark.parametrize(
    ("request_", "data_split"),
    [
        (SplitRequest(), lambda t: DataSplit.random(t, folds=10, fold=0, valid=0.05, seed=0)),
        (
            SplitRequest(folds=5, fold=3, valid=0.2, seed=9),
            lambda t: DataSplit.random(t, folds=5, fold=3, valid=0.2, seed=9),
        ),
        (SplitRequest("none", valid=0.0), lambda t: DataSplit.everything(t, valid=0.0, seed=0)),
        (SplitRequest("leave-one-out"), DataSplit.leave_one_out),
        (SplitRequest("date"), lambda t: DataSplit.by_date(t, test_share=0.1, valid=0.05)),
        (
            SplitRequest("date", test_from="2012-01-01"),
            lambda t: DataSplit.by_date(t, test_from=1_325_376_000, valid=0.05),
        ),
        (
            SplitRequest("users", test_share=0.5, seed=2),
            lambda t: DataSplit.cold_start(t, test_share=0.5, valid=0.05, seed=2),
        ),
    ],
)
def test_a_request_becomes_the_split_it_names(request_: SplitRequest, data_split) -> None:
    assert request_.splitter()(small_table()).description == data_split(small_table()).description


def test_two_tables_are_a_split_made_elsewhere() -> None:
    table = small_table()
    train, test = table.take(range(2000)), table.take(range(2000, 2200))
    description = SplitRequest("given", valid=0.1).splitter()(train, test).description
    assert description == DataSplit.given(train, test, valid=0.1, seed=0).description


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (
            SplitRequest("time"),
            "--split time is not known; the splits are random, leave-one-out, date, users, none "
            "and given.",
        ),
        (
            SplitRequest("date", fold=1),
            "--fold does not belong to --split date, whose options are: --test-from, --test-share, "
            "--valid.",
        ),
        (SplitRequest("date", seed=0), "--split-seed does not belong to --split date"),
        (
            SplitRequest("leave-one-out", valid=0.1),
            "--valid does not belong to --split leave-one-out, whose options are: none.",
        ),
        (SplitRequest(test_share=0.1), "--test-share does not belong to --split random"),
        (SplitRequest("users", test_from="2000-01-01"), "--test-from does not belong to"),
        (SplitRequest("given", folds=3), "--folds does not belong to --split given"),
        (SplitRequest("date", test_from="2000-01-01", test_share=0.1), "give one of them"),
        (SplitRequest("date", test_from="soon"), "'soon' is not a date"),
        (SplitRequest(valid=1.0), "--valid 1.0 is not a share"),
    ],
)
def test_what_no_table_can_satisfy_is_refused_before_one_is_read(
    request_: SplitRequest, message: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        request_.splitter()
    assert message in str(caught.value)


def test_leave_one_out_alone_has_protocols() -> None:
    table = tied_table()
    for protocols in (False, True):
        data_split = SplitRequest("leave-one-out").splitter(protocols=protocols)(table)
        assert ("protocols" in data_split.description) == protocols
    assert "protocols" not in SplitRequest("random").splitter(protocols=True)(table).description
