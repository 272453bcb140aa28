"""Where numba's cache is, for a user who can write nowhere but in temporary folders."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import cfuica

# Compiles one small function.
PROGRAM = """
import os, stat
import numpy as np
from cfuica import ops
from cfuica.ops.runtime import product
three = np.ones(3, np.float32)
assert product(three, three) == 3.0
folder = ops.temporary_cache
print(folder, oct(stat.S_IMODE(os.stat(folder).st_mode)), os.stat(folder).st_uid == os.getuid())
print(ops.is_filled, sum(product.stats.cache_hits.values()))
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that everybody can enter, with a copy of the package that nobody can write to."""
    home = Path(tempfile.mkdtemp())
    home.chmod(0o755)
    source = Path(cfuica.__file__).parent
    shutil.copytree(source, home / "cfuica", ignore=shutil.ignore_patterns("__pycache__"))
    (home / "home").mkdir(mode=0o555)
    (home / "tmp").mkdir()
    yield home
    for folder, _, _ in os.walk(home):
        os.chmod(folder, 0o755)
    shutil.rmtree(home)


def run(
    home: Path, program: str, *, privileged: bool = False, **variables: object
) -> tuple[list[str], str]:
    """Output and standard error of a program, in an empty environment and without root's rights."""
    # Not as another user, who may be unable to enter the folder that this Python lies in.
    drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    if drop and shutil.which(drop[0]) is None:
        pytest.skip("root has no setpriv here to give up its rights with")
    ran = subprocess.run(
        [*([] if privileged else drop), sys.executable, "-B", "-c", program],
        env={
            "PYTHONPATH": str(home),
            "HOME": str(home / "home"),
            "TMPDIR": str(home / "tmp"),
            **{name: str(value) for name, value in variables.items()},
        },
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split(), ran.stderr


def close(folder: Path) -> None:
    for each, _, _ in os.walk(folder):
        os.chmod(each, 0o555)


def test_without_a_writable_folder_the_cache_is_temporary_and_private(home: Path) -> None:
    close(home / "cfuica")
    (folder, mode, is_own, *state), err = run(home, PROGRAM)
    assert (mode, is_own) == ("0o700", "True")
    assert state == ["False", "0"]
    assert err.count("\n") == 1
    assert err.startswith("cfuica: Compiled code cannot be stored, because")
    assert "NUMBA_CACHE_DIR" in err
    assert not Path(folder).exists()  # removed at the end
    assert list((home / "tmp").iterdir()) == []


def test_a_filled_cache_that_cannot_be_written_is_read(home: Path) -> None:
    filled = home / "compiled"
    filled.mkdir()
    fill = PROGRAM[: PROGRAM.index("folder =")]
    run(home, fill, privileged=True, NUMBA_CACHE_DIR=filled)
    close(home / "cfuica")
    close(filled)
    (*_, is_filled, hits), err = run(home, PROGRAM, NUMBA_CACHE_DIR=filled)
    assert (is_filled, hits, err) == ("True", "1", "")


def test_a_forked_process_leaves_the_cache_of_its_parent(home: Path) -> None:
    close(home / "cfuica")
    forked = (
        "import os, sys\nfrom cfuica import ops\nif os.fork() == 0: sys.exit()\nos.wait()\n"
        "print(ops.temporary_cache.is_dir())"
    )
    assert run(home, forked)[0] == ["True"]


def test_without_a_temporary_folder_either_it_is_said(home: Path) -> None:
    close(home)
    program = (
        "import tempfile\ntempfile._candidate_tempdir_list = lambda: []\n"
        "try:\n    import cfuica.ops\nexcept OSError as error:\n    print(error.strerror)"
    )
    assert "set NUMBA_CACHE_DIR to a folder that can be written" in " ".join(run(home, program)[0])
