"""A model behind HTTP, in one process of many: answers, events, and a new model without a restart.

pip install fastapi uvicorn; MODEL=serving uvicorn web_worker:app --workers 2
"""

import os

from fastapi import FastAPI

import cfuica

app = FastAPI()
app.state.model = cfuica.load(os.environ["MODEL"])  # requests run on threads: a model is locked


@app.get("/recommend/{user}")
def recommend(user: str, n: int = 10):
    with app.state.model.reading() as sequence:  # the last change that the answer knows
        return {"sequence": sequence, "items": app.state.model.recommend(user, n).to_dicts()}


@app.post("/events")
def observe(events: list[dict]):
    return app.state.model.observe(events)


@app.post("/remove")
def remove(pairs: list[tuple[str, str]]):
    return app.state.model.remove(pairs)


@app.delete("/users/{user}")
def forget(user: str):
    return {"removed": app.state.model.forget(user)}


@app.post("/swap")
def swap(folder: str, since: list[dict]):
    fresh = cfuica.load(folder)
    fresh.observe(since)  # what happened while it was trained
    app.state.model = fresh
