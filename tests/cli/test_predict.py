from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cfuica.models.recommender import load
from tests.cli.harness import done, in_a_process, refused
from tests.cli.stand_in import StandIn
from tests.runs.small import small_table


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.csv"
    small_table().frame.select("user", "item").sample(50, seed=1).write_csv(path)
    return path


def test_each_pair_gets_a_prediction_in_its_place(trained: Path, pairs: Path) -> None:
    out = pairs.with_name("predictions.csv")
    outcome = done("predict", trained, "--pairs", pairs, "--out", out)
    assert outcome.out == ""
    assert outcome.err == f"50 predictions written to {out}\n"
    given, predicted = pl.read_csv(pairs), pl.read_csv(out)
    assert predicted.columns == ["user", "item", "prediction"]
    assert predicted.select("user", "item").equals(given)
    assert predicted["prediction"].is_between(1, 5).all()


def test_ratings_beside_the_pairs_are_not_needed_and_not_read(trained: Path, pairs: Path) -> None:
    bare, rated = pairs.with_name("bare.csv"), pairs.with_name("rated.csv")
    done("predict", trained, "--pairs", pairs, "--out", bare)
    pl.read_csv(pairs).with_columns(rating=5.0).write_csv(pairs)
    done("predict", trained, "--pairs", pairs, "--out", rated)
    assert bare.read_bytes() == rated.read_bytes()


def test_a_repeated_pair_is_answered_each_time_it_is_asked(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("user,item\n1,2\n3,4\n1,2\n")
    out = tmp_path / "out.csv"
    done("predict", trained, "--pairs", tmp_path / "pairs.csv", "--out", out)
    predicted = pl.read_csv(out)
    assert predicted["user"].to_list() == [1, 3, 1]
    assert predicted["prediction"][0] == predicted["prediction"][2]


def test_an_earlier_file_is_replaced_whole(trained: Path, pairs: Path) -> None:
    out = pairs.with_name("predictions.csv")
    out.write_text("old\n" * 10_000)
    done("predict", trained, "--pairs", pairs, "--out", out)
    assert pl.read_csv(out).height == 50


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("user,item\n,2\n", "line 2"),
        ("user\n1\n", "only one field"),
        ("1,2\n", "name the columns user"),
        ("\0\1", "not a text file"),
    ],
)
def test_pairs_that_cannot_be_predicted_are_explained_and_nothing_is_written(
    trained: Path, tmp_path: Path, content: str, message: str
) -> None:
    (tmp_path / "pairs.csv").write_text(content)
    out = tmp_path / "predictions.csv"
    assert message in refused("predict", trained, "--pairs", tmp_path / "pairs.csv", "--out", out)
    assert not out.exists()


def test_a_place_that_cannot_be_written_is_said_before_the_work(
    trained: Path, pairs: Path, tmp_path: Path
) -> None:
    for out in (tmp_path / "nowhere" / "out.csv", tmp_path):
        assert "cannot be written" in refused("predict", trained, "--pairs", pairs, "--out", out)


def test_cold_start_pairs_are_served_or_refused(model: StandIn, pairs: Path) -> None:
    done("predict", "run", "--pairs", pairs)
    assert model.calls.pop()[2] == {}
    message = refused("predict", "run", "--pairs", pairs, "--unknown", "error")
    assert message == "cfuica: The user 'zzz' is unknown to this model."
    assert model.calls.pop()[2] == {"unknown": "error"}
    assert "is not known" in refused("predict", "run", "--pairs", pairs, "--unknown", "odd")
    assert model.calls == []


def test_the_whole_distribution_is_given_when_asked(trained: Path, pairs: Path) -> None:
    out = pairs.with_name("predictions.parquet")
    done("predict", trained, "--pairs", pairs, "--out", out, "--distribution")
    predicted = pl.read_parquet(out)
    ratings = [1, 2, 3, 4, 5]
    assert predicted.columns[3:] == [f"p({rating})" for rating in ratings]
    p_pk = predicted.select(predicted.columns[3:]).to_numpy().astype(float)
    assert np.allclose(p_pk.sum(1), 1, atol=1e-5)
    assert np.allclose(p_pk @ ratings, predicted["prediction"].to_numpy(), atol=1e-4)


def test_ratings_that_need_all_their_digits_have_them(model: StandIn, pairs: Path) -> None:
    text = done("predict", "run", "--pairs", pairs, "--distribution", "--format", "csv").out
    assert text.startswith("user,item,prediction,p(1),p(2.5),p(0.3333333333333333)\n")
    assert text.splitlines()[1].endswith(",3.5,0.5,0.25,0.25")


def test_without_a_file_people_get_a_table(trained: Path, pairs: Path) -> None:
    text = done("predict", trained, "--pairs", pairs).out
    assert "prediction" in text
    assert text.count("│") > 100


def test_a_missing_run_is_named_in_a_process_of_its_own(pairs: Path) -> None:
    words = ["predict", "nowhere", "--pairs", pairs, "--out", "out.csv"]
    outcome = in_a_process(*words, cwd=pairs.parent)
    assert outcome.returncode == 1
    assert outcome.stdout == ""
    assert outcome.stderr.startswith("cfuica: There is no model in nowhere")
    assert outcome.stderr.count("\n") == 1


def test_a_real_model_predicts_cold_start_and_distributions(titled: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("user,item\n3,5\n900,5\n3,900\n")
    words = ["predict", titled, "--pairs", tmp_path / "pairs.csv"]
    done(*words, "--distribution", "--out", tmp_path / "out.parquet")
    predicted = pl.read_parquet(tmp_path / "out.parquet")
    names = [f"p({rating})" for rating in range(1, 6)]
    assert predicted.columns == ["user", "item", "prediction", *names]
    assert predicted.select("user", "item", "prediction").equals(
        load(titled).predict({"user": [3, 900, 3], "item": [5, 5, 900]})
    )
    np.testing.assert_allclose(predicted.select(names).sum_horizontal(), 1, rtol=1e-5)
    assert "user 900 (row 2) is unknown" in refused(*words, "--unknown", "error")


def test_a_file_without_pairs_gives_none(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("user,item\n")
    assert done("predict", trained, "--pairs", tmp_path / "pairs.csv", "--json").out == "[]\n"


def test_ids_of_another_form_are_counted_and_marked(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("user,item\n00003,5\n3,5\n3,x7\n00004,5\n")
    outcome = done("predict", trained, "--pairs", tmp_path / "pairs.csv", "--json")
    assert outcome.err.splitlines() == [
        "2 of 3 users are unknown to this model: '00003' and 1 more; it knows 100 users, among "
        "them 3, which may be the same in another form.",
        "1 of 2 items is unknown to this model: 'x7'; it knows 60 items, such as 1.",
    ]
    rows = json.loads(outcome.out)
    assert [row.get("unknown") for row in rows] == [["user"], None, ["item"], ["user"]]
    message = refused("predict", trained, "--pairs", tmp_path / "pairs.csv", "--unknown", "error")
    assert "among them 3, which may be the same in another form" in message
