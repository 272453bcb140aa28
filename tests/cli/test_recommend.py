from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from cfuica.models.recommender import load
from tests.cli.harness import done, in_a_process, refused, run
from tests.cli.stand_in import StandIn


def test_json_is_all_that_standard_output_holds(trained: Path) -> None:
    words = ["recommend", trained.name, "--user", "3", "-n", "4", "--json"]
    outcome = in_a_process(*words, cwd=trained.parent)
    assert outcome.returncode == 0
    rows = json.loads(outcome.stdout)
    assert [list(row) for row in rows] == [["user", "rank", "item", "score"]] * 4
    assert [row["rank"] for row in rows] == [1, 2, 3, 4]
    assert {row["user"] for row in rows} == {3}
    assert rows == load(trained).recommend([3], 4).to_dicts()
    assert outcome.stderr == ""


def test_people_get_a_table_per_user(trained: Path) -> None:
    text = done("recommend", trained, "--user", "3", "--user", "5", "-n", "2").out
    assert "For user 3" in text
    assert "For user 5" in text
    assert text.count("│ 2 │") == 2


def test_seen_items_are_left_out_unless_wanted(trained: Path) -> None:
    words = ["recommend", trained, "--user", "3", "-n", "1000", "--min-support", "1", "--json"]
    unseen = {row["item"] for row in json.loads(done(*words).out)}
    every = {row["item"] for row in json.loads(done(*words, "--include-seen").out)}
    assert unseen < every


def test_an_unknown_user_is_explained_where_cold_start_users_are_not_served(model: StandIn) -> None:
    message = refused("recommend", "run", "--user", "zzz", "--unknown", "error")
    assert message == "cfuica: The user 'zzz' is unknown to this model."
    assert model.asked() == ("recommend", (["zzz"], 10), {"exclude_seen": True, "unknown": "error"})


def test_the_model_decides_what_was_not_asked_for(model: StandIn) -> None:
    done("recommend", "run", "--user", "b", "--user", "a", "--user", " b")
    assert model.asked() == ("recommend", (["b", "a"], 10), {"exclude_seen": True})


def test_every_rule_reaches_the_model(model: StandIn) -> None:
    done(
        *("recommend", "run", "--user", "a", "-n", "3", "--item", "x", "--item", "y"),
        *("--exclude", "z", "--where", "genres=Comedy", "--where", "genres=Drama"),
        *("--where", "year=1999", "--max-per", "genres=1", "--by", "lower"),
        *("--min-support", "2", "--include-seen", "--unknown", "serve"),
    )
    name, arguments, options = model.asked()
    names = options.pop("where").meta.root_names()
    assert sorted(names) == ["genres", "genres", "year"]
    assert (name, arguments, options) == (
        "recommend",
        (["a"], 3),
        {
            "items": ["x", "y"],
            "exclude": ["z"],
            "max_per": {"genres": 1},
            "by": "lower",
            "min_support": 2,
            "exclude_seen": False,
            "unknown": "serve",
        },
    )


def test_items_without_ratings_can_be_recommended(model: StandIn) -> None:
    done("recommend", "run", "--user", "a", "--min-support", "0")
    assert model.asked()[2] == {"min_support": 0, "exclude_seen": True}


def test_users_come_from_a_file_or_are_all(model: StandIn, tmp_path: Path) -> None:
    (tmp_path / "users.csv").write_text("user\n3\n1\n3\n")
    done("recommend", "run", "--users-file", tmp_path / "users.csv")
    done("recommend", "run", "--all-users")
    asked = [call[1][0].to_list() for call in model.calls]
    assert asked == [[3, 1], list(model.ids)]


def test_an_anonymous_user_is_served_from_a_history(model: StandIn, tmp_path: Path) -> None:
    (tmp_path / "history.csv").write_text("item,rating\nx,4\ny:z,5\n")
    for words in (("--history", "x:4,y:z:5"), ("--history-file", tmp_path / "history.csv")):
        outcome = done("recommend", "run", *words, "-n", "2")
        assert "For this history" in outcome.out
        _, (users, _), options = model.calls.pop()
        assert users is None
        assert options["history"].rows() == [("x", 4.0), ("y:z", 5.0)]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--user", "a", "--all-users"],
        ["--history", "a:1", "--user", "a"],
        ["--history", "a:1", "--history-file", "f"],
        ["--users-file", "f", "--all-users"],
    ],
)
def test_it_must_be_clear_for_whom(words: list[str]) -> None:
    outcome = run("recommend", "run", *words)
    assert outcome.code == 2
    assert "give one of --user" in " ".join(outcome.err.replace("│", " ").split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--by", "rank"], "--by rank is not known; it is either expected or lower or blend."),
        (["--unknown", "maybe"], "--unknown maybe is not known; it is either serve or error."),
        (["--where", "genres"], "--where 'genres' is not of the form COLUMN=VALUE"),
        (["--max-per", "series=0"], "'0' is not a whole number of at least 1"),
        (["--item", ""], "--item is empty"),
        (["--exclude", " "], "--exclude is empty"),
        (["--user", ""], "--user is empty"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_the_model_is_read(
    model: StandIn, words: list[str], message: str
) -> None:
    assert message in refused("recommend", "run", "--user", "a", *words)
    assert model.calls == []


def test_nothing_left_to_recommend_is_said_and_is_no_failure(trained: Path) -> None:
    words = ["recommend", trained, "--user", "3", "--min-support", "1000"]
    for outcome in (done(*words), done(*words, "--json")):
        assert outcome.out in ("", "[]\n")
        assert outcome.err == (
            "There is nothing to recommend to user 3: no item is left; loosen --min-support or add "
            "--include-seen.\n"
        )


def test_what_is_in_the_way_is_named(model: StandIn) -> None:
    model.top = pl.DataFrame(
        schema={"user": pl.String, "rank": pl.Int32, "item": pl.String, "score": pl.Float64}
    )
    words = ["recommend", "run", "--user", "a", "--user", "b", "--include-seen"]
    assert (
        done(*words).err == "There is nothing to recommend to user a and 1 more: no item is left.\n"
    )
    assert (
        "left; loosen --item, --where.\n" in done(*words, "--item", "x", "--where", "genres=y").err
    )
    model.top = model.top.drop("user")
    message = done("recommend", "run", "--history", "a:1").err
    assert message == (
        "There is nothing to recommend to this history: no item is left; add --include-seen.\n"
    )


def test_rules_choose_among_the_items_of_a_real_model(titled: Path) -> None:
    words = ["recommend", titled, "--user", "3", "-n", "1000", "--json"]
    about = load(titled).artifact.item_metadata
    assert about is not None
    genres = dict(about.select("item", "genres").iter_rows())
    genre = genres[1][0]
    every = json.loads(done(*words).out)
    some = json.loads(done(*words, "--where", f"genres={genre}").out)
    assert some == [
        row | {"rank": rank}
        for rank, row in enumerate((row for row in every if genre in genres[row["item"]]), 1)
    ]
    few = json.loads(done(*words, "--max-per", "genres=1", "--by", "lower").out)
    assert 0 < len(few) < 15
    left = json.loads(done(*words, "--exclude", every[0]["item"]).out)
    assert [row["item"] for row in left] == [row["item"] for row in every[1:]]
    message = refused(*words, "--where", "colour=red")
    assert message == (
        "cfuica: --where names the column 'colour', which the items do not have; they have 'item', "
        "'title', 'genres'."
    )
    message = refused(*words, "--max-per", "colour=1")
    assert message.startswith("cfuica: --max-per names the column 'colour', which the items do not")


def test_a_real_model_serves_cold_start_histories_and_all_users(titled: Path) -> None:
    cold = json.loads(done("recommend", titled, "--user", "new", "--json").out)
    assert [row["user"] for row in cold] == ["new"] * 10
    rows = json.loads(done("recommend", titled, "--history", "1:5,2:4", "-n", "3", "--json").out)
    assert rows == load(titled).recommend(history=[(1, 5.0), (2, 4.0)], n=3).to_dicts()
    assert "For this history" in done("recommend", titled, "--history", "1:5", "-n", "2").out
    every = json.loads(done("recommend", titled, "--all-users", "-n", "1", "--json").out)
    assert [row["user"] for row in every] == list(range(1, 101))
    message = refused("recommend", titled, "--history", "1:9")
    assert "rating 9 of the item '1' is not on the label scale" in message
    message = refused("recommend", titled, "--user", "new", "--unknown", "error")
    assert "user 'new' (row 1) is unknown" in message
    assert "unknown=" not in message


def test_a_missing_run_is_explained(tmp_path: Path) -> None:
    assert "There is no model in" in refused("recommend", tmp_path / "nowhere", "--user", "1")


def test_a_file_excludes_items_for_everybody_or_for_each(trained: Path, tmp_path: Path) -> None:
    def served(*words: object) -> dict[str, list[int]]:
        out = done("recommend", trained, "--user", 3, "--user", 4, "-n", 2, "--json", *words).out
        rows = json.loads(out)
        return {str(u): [row["item"] for row in rows if row["user"] == u] for u in (3, 4)}

    before, path = served(), tmp_path / "exclude.csv"
    path.write_text(f"user,item\n3,{before['3'][0]}\n5,{before['4'][0]}\n")
    own = served("--exclude-file", path)
    assert own["3"][0] == before["3"][1]
    assert own["4"] == before["4"]
    path.write_text(f"item\n{before['3'][0]}\n{before['4'][0]}\n")
    served_now = {item for items in served("--exclude-file", path).values() for item in items}
    assert not served_now & {before["3"][0], before["4"][0]}


def test_users_and_items_of_another_form_are_counted(trained: Path) -> None:
    words = ("--user", "0003", "--exclude", "05", "-n", "1")
    outcome = done("recommend", trained, *words, "--json")
    assert "1 of 1 users is unknown to this model: '0003'; it knows" in outcome.err
    assert "among them 3, which may be the same in another form" in outcome.err
    assert "1 of 1 items is unknown to this model: '05'" in outcome.err
    assert json.loads(outcome.out)[0]["unknown"] == ["user"]
    assert "unknown" not in done("recommend", trained, "--user", "3", "--json").out


def test_an_empty_history_is_served(trained: Path) -> None:
    served = done("recommend", trained, "--history", "", "-n", "3", "--json").out
    assert len(json.loads(served)) == 3
