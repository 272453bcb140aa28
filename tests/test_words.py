"""One word, one meaning: the private words of old stay out (docs/architecture.md has the glossary).

The list is closed. Identifiers are looked at in the package; help texts and documents are looked at
as text. The paper may be quoted, and lab notes keep their wording.
"""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(path for path in sorted((ROOT / "docs").glob("*.md")) if path.name != "lab-notes.md"),
]
# As words of an identifier: split at underscores and capitals.
PRIVATE = {
    "behaviour", "behaviours", "deed", "deeds", "stranger", "strangers", "newcomer", "newcomers",
    "nobody", "visitor", "person", "told", "knowledge", "listener", "listeners", "everyone",
    "keeper", "keeping", "predictor", "corrected", "correcting", "believed", "welcome", "deepen",
    "deepened", "bridge", "bridges", "gain", "gains", "slope", "slopes", "cost", "costs",
    "kept", "known", "about", "remembers", "absent",
    "axes", "spans", "activations", "somebody", "answerer",
}  # fmt: skip
# Compounds of ordinary words.
PRIVATE_NAMES = {"log_times", "size_power", "take_in", "about_items", "kept_inputs"}
# Charts have axes.
EXCEPT = {"charts": {"axes"}}
# As text, where a reader of the field would be lost.
PHRASES = (
    r"behaviours?", r"deeds", r"strangers?", r"newcomers?", r"visitors?", r"size power",
    r"somebody who is not stored", r"asked about", r"speak together", r"the known\b(?! )",
    r"listener", r"keeper", r"slopes?", r"the bridge",
)  # fmt: skip


def words_of(name: str) -> set[str]:
    return set(re.findall(r"[a-z]+", re.sub(r"([A-Z])", r"_\1", name).lower()))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_identifiers_have_the_words_of_the_field(path: Path) -> None:
    text = io.StringIO(path.read_text("utf-8"))
    names = {
        token.string
        for token in tokenize.generate_tokens(text.readline)
        if token.type == tokenize.NAME
    }
    forbidden = PRIVATE - EXCEPT.get(path.stem, set())
    private = {name for name in names if words_of(name) & forbidden or name in PRIVATE_NAMES}
    assert not private
    assert not words_of(path.stem) & PRIVATE


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_documents_have_the_words_of_the_field(path: Path) -> None:
    quoted = re.sub(r'"[^"\n]*"|“[^”]*”', "", path.read_text("utf-8"))
    found = re.findall(rf"\b(?:{'|'.join(PHRASES)})\b", quoted, flags=re.IGNORECASE)
    assert not found


def test_help_and_settings_have_the_words_of_the_field() -> None:
    texts = [path.read_text("utf-8") for path in (ROOT / "src" / "cfuica" / "cli").glob("*.py")]
    texts.append((ROOT / "src" / "cfuica" / "settings.py").read_text("utf-8"))
    for text in texts:
        assert not re.findall(rf"\b(?:{'|'.join(PHRASES)})\b", text, flags=re.IGNORECASE)
