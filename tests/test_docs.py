"""What README.md and docs/*.md print is run as printed, or at least can be typed.

Blocks marked ```sh and ```python are run in document order, each file in a folder of its own; only
the trainings are made short. A block marked ```sh (takes long), which needs MovieLens, a network or
minutes, and every command that stands inside a sentence, is read: the command, its options and the
names of its settings must exist.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cfuica import baselines
from cfuica.models.recommender import MODELS, kind_named, tasks
from tests.cli.harness import run

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
LONG = "(takes long)"

SHORT = {
    "rating": (
        "ensemble_size=1", "hidden_users=8", "hidden_items=8", "cold_start_units=8", "max_steps=4",
    ),
    "ranking": (
        "ensemble_size=1", "hidden_users=8", "hidden_items=8", "residual_units=4", "epochs=0.1",
    ),
}  # fmt: skip
SETTINGS = {
    name
    for kind in (*tasks().values(), *map(kind_named, MODELS))
    for name in kind.settings.model_fields
}


@dataclass(frozen=True)
class Fence:
    """A fenced block."""

    line: int
    language: str
    note: str
    text: str


def fences(text: str) -> Iterator[Fence]:
    for found in re.finditer(r"^```(\w+) *(.*)\n((?s:.*?))^```$", text, re.MULTILINE):
        line = text.count("\n", 0, found.start()) + 1
        yield Fence(line, found[1], found[2], found[3])


def typed(block: str) -> list[str]:
    """The commands of a block of shell, continued lines joined."""
    lines = block.replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def words_of(command: str) -> list[str]:
    """Without a comment, an environment and the folder of the program."""
    words = shlex.split(command, comments=True)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    return [Path(words[0]).name, *words[1:]] if words else []


@cache
def commands() -> dict[str, set[str]]:
    """Every command of cfuica with its options."""
    from typer.main import get_command

    from cfuica.cli import app

    def below(command: Any, name: str) -> Iterator[tuple[str, set[str]]]:
        groups = getattr(command, "commands", {})
        if not groups or not name:
            parameters = command.params
            yield name, {word for one in parameters for word in (*one.opts, *one.secondary_opts)}
        for inner in groups.values():
            yield from below(inner, f"{name} {inner.name}".strip())

    return {name: options | {"--help", "-h"} for name, options in below(get_command(app), "")}


def check_settings(words: list[str]) -> None:
    """Each KEY=VALUE,... that is given to --set or to benchmarks/search.py."""
    for word in words:
        for key in re.findall(r"(?:^|,)([a-z][a-z0-9_]*)=", word):
            assert key in SETTINGS, f"there is no setting {key}"


def check_typable(command: str) -> None:
    """The command exists, and so does everything in it that has a name."""
    program, *words = words_of(command)
    if program == "cfuica":
        known = commands()
        first = words[0] if words and not words[0].startswith("-") else ""
        name = " ".join(words[:2]) if " ".join(words[:2]) in known else first
        assert name in known, f"there is no command {name}"
        for word in words:
            option = word.partition("=")[0]
            if re.match(r"-[a-z-]", word):
                assert option in known[name], f"cfuica {name} has no option {option}"
        sets = [value for option, value in pairwise(words) if option == "--set"]
        check_settings(sets)
    elif program.startswith("python") and words[0].startswith("benchmarks/"):
        script = ROOT / words[0]
        assert script.is_file(), f"there is no {words[0]}"
        # Options of its own, those that scripts share, and those that it passes on to a system.
        passes_on = script.parent.joinpath(*words[1:2], "predict.py")
        files = [script, ROOT / "benchmarks/evidence.py", *filter(Path.is_file, [passes_on])]
        source = "".join(file.read_text("utf-8") for file in files)
        for word in words[1:]:
            assert not word.startswith("--") or f'"{word}"' in source, f"{words[0]} has no {word}"
        check_settings([word for word in words[1:] if not word.startswith("-")])
    elif program == "make":
        for target in (word for word in words if "=" not in word):
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    else:
        known_programs = {"pip", "python", "source", "printf", "uvicorn"}
        assert program in known_programs, f"{program} is not known to this test"


def shortened(words: list[str]) -> list[str]:
    """A training of seconds; everything else as it is."""
    # A baseline is quick as it is.
    if words[0] not in ("train", "tune") or {"--resume", "--model"} & set(words):
        return words
    task = words[words.index("--task") + 1] if "--task" in words else "rating"
    return [*words, *(word for one in SHORT[task] for word in ("--set", one))]


def run_shell(block: str) -> None:
    for command in typed(block):
        check_typable(command)
        program, *words = words_of(command)
        if program == "cfuica":
            outcome = run(*shortened(words))
            assert outcome.code == 0, f"{command}\n{outcome.err}"
        else:
            subprocess.run(command, shell=True, check=True, capture_output=True)


def run_python(program: str, names: dict[str, Any]) -> None:
    short, trainings = re.subn(r"\b(max_steps=|epochs=)[\d.]+", r"\g<1>2", program)
    short = short.replace("epochs=2", "epochs=0.1")
    # A baseline is fitted in less than a second.
    quick = len(re.findall(r"\b(?:ItemNeighbours|Power)\([^)]*\)\.fit\(", program))
    fits = program.count(".fit(") - quick
    assert trainings == fits, "a training that this test cannot make short"
    exec(compile(short, "snippet", "exec"), names)


def pages_with(*languages: str) -> list[str]:
    return [
        name
        for name, page in zip(NAMES, PAGES, strict=True)
        if any(one.language in languages and one.note != LONG for one in fences(page.read_text()))
    ]


@pytest.mark.parametrize("name", pages_with("sh", "python"))
def test_what_a_page_prints_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in fences((ROOT / name).read_text("utf-8")):
        try:
            if block.language == "sh" and block.note != LONG:
                run_shell(block.text)
            elif block.language == "python":
                run_python(block.text, names)
        except BaseException as error:
            raise AssertionError(f"{name}, block of line {block.line}: {error}") from error
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("name", NAMES)
def test_every_command_a_page_names_can_be_typed(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    blocks = list(fences(text))
    assert {one.language for one in blocks} <= {"sh", "python", "text"}
    assert {one.note for one in blocks} <= {"", LONG}
    printed = [line for one in blocks if one.language == "sh" for line in typed(one.text)]
    prose = re.sub(r"^```(?s:.*?)^```$", "", text, flags=re.MULTILINE)
    assert not re.findall(r"^ {4}\S*(?:cfuica|python|make) ", prose, re.MULTILINE), "use ```sh"
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose)]
    programs = r"(?:\.venv/bin/)?(?:cfuica|make|python) |benchmarks/\w+\.py"
    printed += [span for span in spans if re.match(programs, span)]
    for command in printed:
        try:
            check_typable(f"python {command}" if command.startswith("bench") else command)
        except (AssertionError, ValueError) as error:
            raise AssertionError(f"{name}: {command}: {error}") from error


@pytest.mark.parametrize("name", NAMES)
def test_every_file_a_page_links_to_exists(name: str) -> None:
    page = ROOT / name
    text = page.read_text("utf-8")
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        target, _, anchor = link.partition("#")
        if "://" in link:
            continue
        file = page.parent / target if target else page
        assert file.exists(), link
        titles = re.findall(r"^#+ (.*)$", file.read_text("utf-8"), re.MULTILINE) if anchor else []
        slugs = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
        assert not anchor or anchor in slugs, link


def test_every_name_in_the_architecture_exists() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    sources = sorted((ROOT / "src" / "cfuica").rglob("*.py"))
    code = "\n".join(path.read_text("utf-8") for path in sources)
    for span in set(re.findall(r"`([^`\n]+)`", text)):
        if re.fullmatch(r"[\w/]+\.py", span):
            places = (ROOT / "src" / "cfuica" / span, ROOT / span)
            assert any(place.is_file() for place in places), f"there is no file {span}"
        elif re.fullmatch(r"[\w/]+/", span):
            places = (ROOT / "src" / "cfuica" / span, ROOT / span)
            assert any(place.is_dir() for place in places), f"there is no folder {span}"
        elif re.fullmatch(r"[A-Za-z_]\w*(\.\w+)*", span):
            for part in span.split("."):
                assert re.search(rf"\b{part}\b", code), f"the code has no {span}"


def test_the_baselines_that_find_similar_ones_are_listed() -> None:
    text = (ROOT / "docs" / "using.md").read_text("utf-8")
    row = next(line for line in text.splitlines() if line.startswith("| `finds_similar`"))
    both, items = (set(re.findall(r"`(\w+)`", cell)) for cell in row.split("|")[-2].split(";"))
    for listed, axes in ((both, ("users", "items")), (items, ("items",))):
        own = {name for name in baselines.__all__ if getattr(baselines, name).finds_similar == axes}
        assert listed == own


@pytest.mark.parametrize("name", [name for name in NAMES if name != "docs/lab-notes.md"])
def test_words_are_those_of_the_field(name: str) -> None:
    text = (ROOT / name).read_text("utf-8").replace('the paper\'s "behaviour"', "")
    words = r"\b(strangers?|newcomers?|visitors?|behaviou?rs?|keepers?|size_power|bridges?)\b"
    assert not re.findall(words, text, re.IGNORECASE)


def test_a_wrong_command_is_noticed() -> None:
    for wrong in (
        "cfuica trian demo --out X",
        "cfuica train demo --out X --epochs 3",
        "cfuica train demo --out X --set members=1",
        "cfuica data fetch ml-1m",
        ".venv/bin/python benchmarks/strangers.py ml-1m",
        ".venv/bin/python benchmarks/search.py ml-1m memory=false",
        ".venv/bin/python benchmarks/live.py --strangers 128",
        "make everything",
    ):
        with pytest.raises(AssertionError):
            check_typable(wrong)
    with pytest.raises(AssertionError, match="demo2"):
        run_shell("cfuica train demo2 --out X")
    with pytest.raises(NameError):
        run_python("print(modle)", {})
