"""Several seeds of one training: a folder with a run for each, `seed-0`, `seed-1` and so on.

The split is the same for all, so that what differs between them is the training alone.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from cfuica.data.split_tables import DataSplit
from cfuica.errors import CfuicaError
from cfuica.run_folder import FINISHED, RunFolder
from cfuica.runs.run import Job
from cfuica.settings import CommonSettings, TrainingSettings

_NAME = re.compile(r"seed-(\d+)")


def seed_runs(path: Path) -> dict[int, RunFolder]:
    """The runs in a folder of several seeds, by seed; none where it is not such a folder."""
    if not path.is_dir() or (path / "run.json").is_file():
        return {}
    found = ((_NAME.fullmatch(child.name), child) for child in path.iterdir() if child.is_dir())
    runs = {int(name[1]): RunFolder(child) for name, child in found if name is not None}
    return dict(sorted(runs.items()))


def job_of_seed(
    path: Path,
    data_split: DataSplit,
    settings: TrainingSettings,
    *,
    preset: str,
    overwrite: bool = False,
) -> Job | None:
    """The job of a seed in the folder of all seeds: new, or resumed; None where it is finished.

    A run of other data or settings is refused, unless it may be overwritten.
    """
    if RunFolder(path).can_be_resumed:
        raise CfuicaError(f"--out {path} is a run itself; choose another folder for several seeds.")
    folder = RunFolder(path / f"seed-{settings.seed}")
    if overwrite or not folder.can_be_resumed:
        # What a process left that was killed before it had a run is replaced.
        created = RunFolder.create(folder.path, overwrite=True)
        return Job.new(created, data_split, settings, preset=preset)
    record = folder.read_record()
    split = json.loads(json.dumps(data_split.description))
    same = {
        "another model": record.get("model", CommonSettings.model) == settings.model,
        "other settings": record.get("settings") == settings.model_dump(),
        "another split": record.get("split") == split,
        "other data": record.get("data", {}).get("sha256") == data_split.whole.sha256(),
    }
    if not all(same.values()):
        other = " and ".join(name for name, is_same in same.items() if not is_same)
        raise CfuicaError(
            f"{folder.path} is a run of {other}; choose another --out, or add --overwrite."
        )
    return None if record.get("status") == FINISHED else Job.resumed(folder, {})
