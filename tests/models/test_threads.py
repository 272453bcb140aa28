"""Threads that share a model: each answer is that of a serial run after as many changes."""

from __future__ import annotations

import copy
import os
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from cfuica.models.co_autoregressive import RankingModel, RatingModel
from tests.models.ranking.cyclic import fitted
from tests.runs.small import TINY, small_table

READERS, EVENTS = 8, 5_000  # Of each of the two models.
USERS, ITEMS = 120, 70  # Some of them are new to the models.


def rating_model() -> RatingModel:
    return RatingModel(TINY.replaced(cold_start_units=4)).fit(small_table())


def event(model: Any, number: int) -> Any:
    """The event of a number, done to the model."""
    dice = random.Random(number)
    user, item = dice.randrange(USERS), dice.randrange(ITEMS)
    if number % 50 == 49:
        return model.remove([(user, item)])
    return model.observe([(user, item, float(dice.randint(1, 5)))])


def answer(model: Any, number: int) -> tuple[Any, ...]:
    """The answer to a question of a number; frames as rows, which compare by value."""
    dice = random.Random(number)
    user, item = dice.randrange(USERS), dice.randrange(20)
    kind = number % 4
    if kind == 0:
        return tuple(model.recommend(user, 5).rows())
    if kind == 1:
        return tuple(model.score(user, [item, item + 1])["score"])
    if kind == 2:
        return tuple(model.similar_items([item], 3, min_support=0)["similar"])
    return tuple(model.explain(user, item).history["change"])


@pytest.mark.parametrize("make", [rating_model, fitted], ids=["rating", "ranking"])
def test_every_answer_is_that_of_the_serial_run_at_its_number(make: Callable[[], Any]) -> None:
    made = make()

    def fresh() -> Any:
        return type(made).from_artifact(copy.deepcopy(made.artifact))

    model, found, wrong = fresh(), [], []
    is_over = threading.Event()

    def read(first: int) -> None:
        number = first
        try:
            while not is_over.is_set():
                with model.reading() as sequence:
                    found.append((sequence, number, answer(model, number)))
                number += READERS
                time.sleep(0.1)
        except BaseException as error:  # a thread would die without a word
            wrong.append(error)

    readers = [threading.Thread(target=read, args=(number,)) for number in range(READERS)]
    for reader in readers:
        reader.start()
    sequences = [event(model, number).sequence for number in range(EVENTS)]
    is_over.set()
    for reader in readers:
        reader.join()
    assert not wrong, wrong
    assert sequences == [*range(1, EVENTS + 1)]
    serial = fresh()
    for sequence, number, own in sorted(found, key=lambda one: one[:2]):
        while serial.sequence < sequence:
            event(serial, serial.sequence)
        assert answer(serial, number) == own, f"question {number} after {sequence} events"
    assert len({sequence for sequence, *_ in found}) > READERS


def test_a_first_answer_from_many_threads_makes_one_live_model() -> None:
    model = fitted()
    model = RankingModel.from_artifact(copy.deepcopy(model.artifact))
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(model.live_model)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(one) for one in found}) == 1


def test_what_an_answer_knows_is_told_with_it_and_saved(tmp_path: Any) -> None:
    model = RankingModel.from_artifact(copy.deepcopy(fitted().artifact))
    assert model.sequence == 0
    assert model.observe([(1, 2)]).sequence == 1
    assert model.remove([(1, 2)]).sequence == 2
    model.forget(3)
    assert model.explain(1, 2).sequence == 3
    assert model.explain(1, 2).as_json()["sequence"] == 3
    model.recommend(1)
    assert model.sequence == 3  # an answer changes nothing
    again = RankingModel.load(model.save(tmp_path / "model"))
    assert again.observe([(1, 2)]).sequence == 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_fork_waits_for_the_change_of_another_thread() -> None:
    """Else the child would have a lock that nobody can release."""
    model = RankingModel.from_artifact(copy.deepcopy(fitted().artifact))
    model.recommend(1)
    is_changing = threading.Event()

    def change() -> None:
        with model.reading():
            is_changing.set()
            time.sleep(0.2)
            model.observe([(1, 2)])

    other = threading.Thread(target=change)
    other.start()
    is_changing.wait()
    child = os.fork()
    if child == 0:
        os._exit(int(model.sequence != 1))  # the whole change, and no lock
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    other.join()
    assert model.sequence == 1
