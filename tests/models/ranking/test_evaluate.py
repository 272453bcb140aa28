"""A ranking model is evaluated as it stands in a run folder."""

from __future__ import annotations

from pathlib import Path

from cfuica.artifact.run_folder import RunFolder
from cfuica.data.split_tables import Parts
from cfuica.evaluation.evaluate import evaluate_model
from cfuica.models.loading import load
from cfuica.models.ranking_model import RankingModel
from tests.models.ranking.cyclic import SMALL, rows, table


def test_what_comes_next_is_found(tmp_path: Path) -> None:
    parts = Parts.leave_one_out(table(rows()))
    assert parts.test is not None
    folder = RunFolder.create(tmp_path / "run")
    folder.write_record({"status": "finished", "task": "ranking", "split": parts.about})
    folder.write_test(parts.test)
    model = RankingModel(SMALL).fit(parts.train, valid=parts.valid, spans=parts.whole)
    model.save(folder.model)
    found = evaluate_model(folder, load(folder.path), protocol="full", cutoffs=(1, 5))
    assert found.questions.n_users == 60
    assert found.intervals["hr@1"].value > 0.6
    assert found.intervals["hr@5"].value > 0.9
