"""Checks of the `Recommender` contract, for the models of this package and for your own.

    >>> check_recommender(lambda: ItemMean(), interactions)

runs all of them; with pytest, each is a test of its own:

    >>> @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    ... def test_it_is_a_recommender(check):
    ...     check(lambda: ItemMean(), interactions)

A check makes and fits a model of its own; what does not hold is an AssertionError of one sentence.
The interactions need users who have not seen everything, and ratings where the model reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from cfuica.data.frames import as_table
from cfuica.data.table import Interactions
from cfuica.errors import CfuicaError
from cfuica.models.recommender import Recommender

Make: TypeAlias = Callable[[], Recommender]
Data: TypeAlias = Interactions | Any  # A table, or a dataframe of user, item and perhaps rating.


class _Case:
    """A fitted model, and some of the users that it was fitted to."""

    def __init__(self, make: Make, interactions: Data) -> None:
        self.model, self.frame = make(), as_table(interactions).frame
        self.model.fit(interactions)
        users = self.frame["user"].unique(maintain_order=True)
        self.users = users.gather_every(max(1, len(users) // 5)).to_list()

    def own(self, user: Any) -> pl.DataFrame:
        return self.frame.filter(pl.col("user") == user)

    def history(self, user: Any) -> list[Any]:
        own = self.own(user)
        return (
            own.select("item", "rating").rows() if self.model.reads_ratings else list(own["item"])
        )

    def items_for(self, user: Any, n: int = 10**6, **options: Any) -> list[Any]:
        return list(self.model.recommend([user], n, **options)["item"])


def fit_returns_self(make: Make, interactions: Data) -> None:
    model = make()
    found = model.fit(interactions)
    assert found is model, f"fit returned {found!r}; it has to return self."


def seen_items_are_left_out(make: Make, interactions: Data) -> None:
    case = _Case(make, interactions)
    for user in case.users:
        seen = set(case.own(user)["item"])
        again = seen & set(case.items_for(user))
        assert not again, f"User {user!r} was recommended {again}, which the user has seen."
        found = case.items_for(user, items=seen, exclude_seen=False)
        assert found, f"With exclude_seen=False user {user!r} got no item of the history."


def the_best_comes_first(make: Make, interactions: Data) -> None:
    case = _Case(make, interactions)
    top = case.model.recommend(case.users, 5)
    for (user,), own in top.group_by("user", maintain_order=True):
        ranks, scores = own["rank"].to_list(), own["score"].to_numpy()
        assert ranks == [*range(1, len(ranks) + 1)], f"User {user!r} got the ranks {ranks}."
        assert (np.diff(scores) <= 0).all(), f"The scores of user {user!r} ascend: {scores}."


def n_is_honoured(make: Make, interactions: Data) -> None:
    case = _Case(make, interactions)
    for user in case.users:
        available = len(case.items_for(user))
        for n in (1, 3):
            found = len(case.items_for(user, n))
            assert found == min(n, available), f"User {user!r} got {found} items, n was {n}."


def candidates_are_honoured(make: Make, interactions: Data) -> None:
    case = _Case(make, interactions)
    for user in case.users:
        some = case.items_for(user)[::2]
        other = set(case.items_for(user, items=some)) - set(some)
        assert not other, f"User {user!r} was recommended {other}, which are not in items."
        excluded = set(case.items_for(user, exclude=some)) & set(some)
        assert not excluded, f"User {user!r} was recommended {excluded}, which are in exclude."


def exclusions_of_each_user_are_honoured(make: Make, interactions: Data) -> None:
    case = _Case(make, interactions)
    first, second = case.users[0], case.users[-1]
    best = case.items_for(first)[:2]
    top = case.model.recommend([first, second], 10**6, exclude={first: best})
    got = set(top.filter(pl.col("user") == first)["item"])
    assert not got & set(best), f"User {first!r} was recommended {best}, excluded for this user."
    others = top.filter(pl.col("user") == second)["item"].to_list()
    expected = case.items_for(second)
    assert others == expected, f"What user {first!r} is not to get changed user {second!r}'s items."


def retired_items_stay_away(make: Make, interactions: Data) -> None:
    case = _Case(make, interactions)
    user = case.users[0]
    best = case.items_for(user)[0]
    case.model.retire([best])
    with TemporaryDirectory() as folder:
        again = type(case.model).load(case.model.save(Path(folder) / "model"))
    for model in (case.model, again):
        found = list(model.recommend([user], 10**6)["item"])
        assert best not in found, f"User {user!r} was recommended {best!r}, which is retired."
    case.model.retire([best], retired=False)
    assert case.items_for(user)[0] == best, f"{best!r} was taken back, but is not recommended."


def nothing_asked_gives_nothing(make: Make, interactions: Data) -> None:
    case = _Case(make, interactions)
    model = case.model
    answers = [("recommend", model.recommend([]), model.recommend(case.users, 1))]
    if model.predicts_ratings:
        pair = case.frame.select("user", "item").rows()[:1]
        answers.append(("predict", model.predict([]), model.predict(pair)))
    for name, found, usual in answers:
        assert found.equals(usual.clear()), f"{name}([]) gave {found}; an empty frame is expected."
    if model.live:
        counts = model.observe([])
        done = (counts.added, counts.changed, counts.removed)
        assert done == (0, 0, 0), f"observe([]) changed something: {counts}."
    if model.cold_users:
        assert model.recommend(history=[], n=1).height == 1, "An empty history was not served."


def score_agrees_with_recommend(make: Make, interactions: Data) -> None:
    case = _Case(make, interactions)
    model, user = case.model, case.users[0]
    asked: list[tuple[Any, dict[str, Any]]] = [(user, {})]
    if model.cold_users:
        asked.append((None, {"history": case.history(user)}))
    for one, options in asked:
        top = model.recommend(one, 10**6, exclude_seen=False, **options)
        top = top.reverse()  # another order than that of the ranks
        found = model.score(one, top["item"], **options)
        assert found["item"].equals(top["item"]), "score gave other items than it was given."
        wrong = top["item"].filter(~np.isclose(found["score"], top["score"], rtol=1e-5, atol=1e-6))
        assert wrong.is_empty(), f"score and recommend score {wrong.to_list()} differently."


def equal_calls_give_equal_answers(make: Make, interactions: Data) -> None:
    case = _Case(make, interactions)
    first, second = (case.model.recommend(case.users, 5) for _ in range(2))
    assert first.equals(second), "Two equal calls of recommend gave different answers."


def a_saved_model_is_the_same(make: Make, interactions: Data) -> None:
    case = _Case(make, interactions)
    with TemporaryDirectory() as folder:
        again = type(case.model).load(case.model.save(Path(folder) / "model"))
        before, after = (one.recommend(case.users, 5) for one in (case.model, again))
    schema = dict(before.schema), dict(after.schema)
    assert schema[0] == schema[1], f"Saving changed the columns from {schema[0]} to {schema[1]}."
    assert before.equals(after), "A saved and loaded model recommends something else."


def unknown_users_are_served_or_refused(make: Make, interactions: Data) -> None:
    case = _Case(make, interactions)
    ids = case.frame["user"].to_list()
    unknown = "unknown user" if isinstance(ids[0], str) else max(ids) + 1
    _refusal(lambda: case.items_for(unknown))
    refusal = _refusal(lambda: case.items_for(unknown, unknown="error"))
    assert refusal, "An unknown user was served, although unknown was 'error'."


def flags_tell_the_truth(make: Make, interactions: Data) -> None:
    case = _Case(make, interactions)
    model, user, row = case.model, case.users[0], case.frame.row(0)
    item, history = row[1], case.history(user)
    calls: list[tuple[str, bool, Callable[[], object]]] = [
        ("predicts_ratings", model.predicts_ratings, lambda: model.predict([(user, item)])),
        ("cold_users", model.cold_users, lambda: model.recommend(history=history)),
        ("explains", model.explains, lambda: model.explain(user, item)),
        ("similar items", "items" in model.finds_similar, lambda: model.similar_items(item)),
        ("similar users", "users" in model.finds_similar, lambda: model.similar_users(user)),
        ("live (observe)", model.live, lambda: model.observe([row[:3]])),
        ("live (remove)", model.live, lambda: model.remove([row[:2]])),
        ("live (forget)", model.live, lambda: model.forget(user)),
    ]
    for flag, announced, call in calls:
        refusal = _refusal(call)
        assert announced or refusal, f"{flag} is not announced, but the call was not refused."
        assert not (announced and refusal), f"{flag} is announced, but was refused: {refusal}"


def _refusal(call: Callable[[], object]) -> str:
    """The one sentence in which a call is refused; empty where it is not."""
    try:
        call()
    except CfuicaError as error:
        text = str(error)
        assert text.endswith("."), f"A refusal is no sentence: {text!r}."
        assert "\n" not in text, f"A refusal is more than one sentence: {text!r}."
        return text
    return ""


CHECKS: tuple[Callable[[Make, Data], None], ...] = (
    fit_returns_self,
    seen_items_are_left_out,
    the_best_comes_first,
    n_is_honoured,
    candidates_are_honoured,
    exclusions_of_each_user_are_honoured,
    retired_items_stay_away,
    nothing_asked_gives_nothing,
    score_agrees_with_recommend,
    equal_calls_give_equal_answers,
    a_saved_model_is_the_same,
    unknown_users_are_served_or_refused,
    flags_tell_the_truth,
)


def check_recommender(make: Make, interactions: Data) -> None:
    """Run all checks against models that `make` gives, unfitted."""
    for check in CHECKS:
        check(make, interactions)
