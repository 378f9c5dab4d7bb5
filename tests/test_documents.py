"""The documents speak of what is there: paths, layers, numbers of lines."""

from __future__ import annotations

import re
from pathlib import Path

from tools import structure

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


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
