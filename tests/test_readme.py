"""What the README promises holds as printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def test_the_python_example_runs_as_printed(tmp_path: Path) -> None:
    """But for the number of minibatches, which takes all the time."""
    blocks = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    program, shortened = re.subn(r"max_steps=\d+", "max_steps=10", blocks[0])
    assert shortened == 1
    outcome = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stderr == ""
    assert "prediction" in outcome.stdout
    assert "title" in outcome.stdout


def local_links() -> list[str]:
    links = re.findall(r"\]\(([^)\s]+)\)", README) + re.findall(r'(?:src|href)="([^"]+)"', README)
    return sorted({link.partition("#")[0] for link in links if "://" not in link} - {""})


@pytest.mark.parametrize("link", local_links())
def test_every_file_it_links_to_exists(link: str) -> None:
    assert (ROOT / link).exists()


def test_every_command_it_shows_exists() -> None:
    from cfuica.cli import app

    known = {command.name for command in app.registered_commands}
    known |= {group.name for group in app.registered_groups}
    shown = set(re.findall(r"^(?:\.venv/bin/)?cfuica (\w+)", README, re.MULTILINE))
    assert shown <= known
