"""The documents speak of what is there: paths, layers, numbers of lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools import structure

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PATH = re.compile(r"`([a-z_0-9/]+/[a-z_0-9/]*|[a-z_0-9/]+\.(?:py|c|h|md))`")
NAMING_PATHS = ["docs/architecture.md", "docs/reading.md", "docs/maintaining.md", "CONTRIBUTING.md"]
NAMING_PATHS += [f"docs/notes/{path.name}" for path in (DOCS / "notes").glob("*.md")]


@pytest.mark.parametrize("name", NAMING_PATHS)
def test_the_files_that_a_document_names_are_there(name):
    paths = set(PATH.findall((ROOT / name).read_text(encoding="utf-8")))
    folders = (ROOT, ROOT / "noyau", ROOT / "tests", DOCS)
    paths -= {
        "command.py",
        "run.py",
        "record.py",
        "render.py",
        "noyau/a/b.py",
        "tests/a/test_b.py",
    }  # of any job, any file
    assert len(paths) > 5
    assert [each for each in sorted(paths) if not any((folder / each).exists() for folder in folders)] == []


def test_the_layers_of_the_architecture_are_those_of_the_tool():
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    table = text.partition("## The layers")[2].partition("\n## ")[0]
    assert tuple(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == structure.LAYERS


def test_documents_are_short():
    lines = {
        name: len((DOCS / name).read_text(encoding="utf-8").splitlines()) for name in ("architecture.md", "reading.md")
    }
    assert lines["architecture.md"] <= 300
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 160
    assert len((ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()) <= 30


def test_what_is_to_be_read_first_is_some_5000_lines():
    named = re.findall(r"`([a-z_0-9/]+\.py)`", (DOCS / "reading.md").read_text(encoding="utf-8"))
    first = [ROOT / "noyau" / each for each in named[: named.index("ops/op.py")]]
    assert 4500 < sum(len(each.read_text(encoding="utf-8").splitlines()) for each in first) < 5700
