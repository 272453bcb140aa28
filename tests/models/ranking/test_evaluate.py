"""A ranking model is evaluated as it stands in a run folder."""

from __future__ import annotations

from pathlib import Path

from cfuica.data.split_tables import DataSplit
from cfuica.evaluation.evaluate import evaluate_model
from cfuica.models.co_autoregressive import RankingModel
from cfuica.models.recommender import load
from cfuica.run_folder import RunFolder
from tests.models.ranking.cyclic import SMALL, rows, table


def test_what_comes_next_is_found(tmp_path: Path) -> None:
    data_split = DataSplit.leave_one_out(table(rows()))
    assert data_split.test is not None
    folder = RunFolder.create(tmp_path / "run")
    folder.write_record({"status": "finished", "task": "ranking", "split": data_split.description})
    folder.write_test(data_split.test)
    model = RankingModel(SMALL).fit(
        data_split.train, valid=data_split.valid, vocabulary=data_split.whole
    )
    model.save(folder.model)
    found = evaluate_model(folder, load(folder.path), protocol="full", cutoffs=(1, 5))
    assert found.ranking_test.n_users == 60
    assert found.intervals["hr@1"].value > 0.6
    assert found.intervals["hr@5"].value > 0.9
