from __future__ import annotations

import polars as pl
import pytest

from cfuica.data.split_tables import Parts
from cfuica.errors import ModelFileError
from cfuica.evaluation.protocols import Known
from tests.runs.ranking_run import finished_run, tied_table


def test_a_folder_without_a_whole_model_is_explained(tmp_path):
    run = finished_run(tmp_path / "run", Parts.leave_one_out(tied_table()))
    behaviours = run.model / "behaviours.parquet"
    good = behaviours.read_bytes()
    behaviours.unlink()
    with pytest.raises(ModelFileError, match=r"behaviours.parquet is missing.*finish the training"):
        Known.of_run(run)
    behaviours.write_bytes(b"PAR1 and no more")
    with pytest.raises(ModelFileError, match="are damaged"):
        Known.of_run(run)
    pl.DataFrame({"user": [0], "item": [99]}).write_parquet(behaviours)
    with pytest.raises(ModelFileError, match="are damaged"):
        Known.of_run(run)
    behaviours.write_bytes(good)
    assert Known.of_run(run).users.size == 12
