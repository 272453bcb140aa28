"""Ask models in a process and in its forked children: `python -m tests.forked HOME fitted|loaded`.

`fitted` trains the models here, saves them under HOME and leaves polars and torch with threads that
do not survive the fork. `loaded` loads them and does nothing else before the fork.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import cfuica
from cfuica.models.co_autoregressive import CoAutoregressive, RankingModel, RatingModel
from cfuica.ops import runtime
from cfuica.settings import RankingSettings
from tests.runs.small import TINY, small_table

SECONDS = 30


def fitted(home: Path) -> dict[str, CoAutoregressive[Any]]:
    rating = TINY.replaced(max_steps=4, cold_start_units=4, ensemble_size=2)
    ranking = RankingSettings(
        hidden_users=8, hidden_items=8, batch_users=50, max_steps=4, residual_units=4
    )
    models: dict[str, CoAutoregressive[Any]] = {
        "rating": RatingModel(rating).fit(small_table()),
        "ranking": RankingModel(ranking).fit(small_table()),
    }
    for name, model in models.items():
        model.save(home / name)
    square = torch.ones(2000, 2000)
    (square @ square).sum()
    return models


def answers(model: CoAutoregressive[Any]) -> dict[str, str]:
    """Every kind of question; the events make ids that are new and change those that are there."""
    users, items = model.users.ids.to_list(), model.items.ids.to_list()
    rated = model.predicts_ratings
    history: list[Any] = [(items[0], 5), (items[1], 1)] if rated else items[:2]
    found = {
        "one event": model.observe([(users[0], items[0], 5)]),
        "events": model.observe(
            [(users[1], items[2], 4), (7001, items[0], 3), (users[2], 8001, 1)]
        ),
        "user": model.recommend(users[0], n=5),
        "users": model.recommend(users, n=5),
        "history": model.recommend(history=history, n=5),
        "score": model.score(7001, items[:30]),
        "explain": model.explain(users[0], items[3]).as_json(),
        "explain history": model.explain(None, items[3], history=history).as_json(),
        "similar items": model.similar_items(items[0], n=3, min_support=1),
        "similar users": model.similar_users(users[0], n=3, min_support=1),
        "forget": model.forget(7001),
        "remove": model.remove([(users[1], items[2]), (users[1], items[2])]),
        "dictionaries": model.observe([{"user": users[1], "item": items[2], "rating": 4}]),
        "retire": (model.retire(items[5:7]), model.retire(items[5:7], retired=False)),
        "exclude": model.recommend(users[:2], n=5, exclude={users[0]: items[:3]}),
        "nobody": model.recommend([]),
    }
    if rated:
        found["predict"] = model.predict([(user, items[0]) for user in users])
        found["distributions"] = model.predict_proba(
            {"user": users, "item": items[:1] * len(users)}
        )
    shown = {
        name: str(getattr(one, "to_dicts", lambda one=one: one)()) for name, one in found.items()
    }
    return {name: text for name, text in shown.items() if "event" not in name}


def needing_polars(model: CoAutoregressive[Any], home: Path) -> dict[str, Callable[[], Any]]:
    """What needs the threads of polars."""
    title = str(small_table().items["title"][0])  # type: ignore[index]
    return {
        "where": lambda: model.recommend(model.users.ids[0], where={"title": title}),
        "save": lambda: model.save(home / f"{model.task}-{os.getpid()}"),
        "fit": lambda: type(model)(model.settings).fit(small_table()),
    }


def ask(models: dict[str, CoAutoregressive[Any]], home: Path, out: Path) -> None:
    """Write the answers, and what was refused, to a file."""
    signal.alarm(SECONDS)  # ends a process that waits for ever
    refused: dict[str, str] = {}
    found = {name: answers(model) for name, model in models.items()}
    for name, model in models.items():
        for what, call in needing_polars(model, home).items():
            try:
                call()
            except cfuica.CfuicaError as error:
                refused[f"{name} {what}"] = str(error)
    out.write_text(json.dumps({"answers": found, "refused": refused}))


def main(home: Path, how: str) -> None:
    runtime.FEW_ROWS = 0
    if how == "fitted":
        models = fitted(home)
        small_table()  # made before the fork, because making it needs polars
    else:
        models = {name: cfuica.load(home / name) for name in ("rating", "ranking")}  # type: ignore
    for model in models.values():
        if how == "fitted":
            answers(model)
    by_os, by_module = home / f"{how}-fork.json", home / f"{how}-multiprocessing.json"
    child = os.fork()
    if child == 0:
        ask(models, home, by_os)
        os._exit(0)
    process = multiprocessing.get_context("fork").Process(
        target=ask, args=(models, home, by_module)
    )
    process.start()
    own = {name: answers(model) for name, model in models.items()}
    (home / f"{how}.json").write_text(json.dumps(own))
    assert os.waitpid(child, 0)[1] == 0
    process.join()
    assert process.exitcode == 0


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
