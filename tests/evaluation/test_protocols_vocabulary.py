from __future__ import annotations

import polars as pl
import pytest

from cfuica.data.split_tables import DataSplit
from cfuica.errors import ModelFileError
from cfuica.evaluation.protocols import RunVocabulary
from tests.runs.ranking_run import finished_run, tied_table


def test_a_folder_without_a_whole_model_is_explained(tmp_path):
    run = finished_run(tmp_path / "run", DataSplit.leave_one_out(tied_table()))
    interactions = run.model / "interactions.parquet"
    good = interactions.read_bytes()
    interactions.unlink()
    with pytest.raises(
        ModelFileError, match=r"interactions.parquet is missing.*finish the training"
    ):
        RunVocabulary.of_run(run)
    interactions.write_bytes(b"PAR1 and no more")
    with pytest.raises(ModelFileError, match="are damaged"):
        RunVocabulary.of_run(run)
    pl.DataFrame({"user": [0], "item": [99]}).write_parquet(interactions)
    with pytest.raises(ModelFileError, match="are damaged"):
        RunVocabulary.of_run(run)
    interactions.write_bytes(good)
    assert RunVocabulary.of_run(run).users.size == 12
