"""The documents speak of what is there: paths, layers, numbers of lines."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.small_models import twice, written
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


def test_every_extra_is_asked_for_by_the_name_of_the_distribution():
    """Another project has the name of the package on the index."""
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    texts = {name: (ROOT / name).read_text("utf-8", "replace") for name in files if (ROOT / name).is_file()}
    other = re.compile(r"pip install [^\n]*?(?<![\w./-])noyau(?:\\?\[|['\" ]*$)", re.MULTILINE)
    assert sum("noyau-kernels[" in text for text in texts.values()) > 20
    assert [name for name, text in texts.items() if other.search(text)] == []


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


def walks() -> dict[str, list[tuple[str, str, bool]]]:
    """The walks of the architecture: file, function, and whether another process passes it."""
    text = (DOCS / "architecture.md").read_text(encoding="utf-8").partition("## Three walks")[2].partition("\n## ")[0]
    blocks = [block.strip().splitlines() for block in text.split("```")[1::2]]
    stops = [[re.match(r"(\S+)\s+(\w+)( \*)?", line) for line in block] for block in blocks]
    parsed = [[(stop[1], stop[2], bool(stop[3])) for stop in block if stop] for block in stops]
    assert [len(block) for block in blocks] == [len(block) for block in parsed]
    return dict(zip(("optimize", "op", "check"), parsed, strict=True))


@pytest.mark.parametrize("name", ["optimize", "op", "check"])
def test_a_walk_is_short_and_names_what_is_there(name):
    stops = walks()[name]
    files = [file for file, _, _ in stops]
    assert len(stops) <= 40
    assert sum(file in files[:at] and files[at - 1] != file for at, file in enumerate(files)) <= 5
    for file, function, _ in stops:
        assert f"def {function}(" in (ROOT / "noyau" / file).read_text(encoding="utf-8"), (file, function)


TRITON = """import triton
import triton.language as tl

import noyau


@noyau.op("f32[n] -> f32[n]")
def double(x):
    return x + x


@double.kernel(launch=lambda n: (-(-n // 16),), constants={"BLOCK": 16})
@triton.jit
def double_triton(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2 + 1, mask=at < n)
"""


@pytest.mark.parametrize(
    "name", ["op", *(pytest.param(each, marks=pytest.mark.long) for each in ("optimize", "check"))]
)
def test_a_walk_is_the_one_that_is_gone(name, tmp_path):
    argument = {"op": lambda: "", "optimize": lambda: written(twice(), tmp_path), "check": lambda: tmp_path / "ops.py"}
    (tmp_path / "ops.py").write_text(TRITON, encoding="utf-8")
    # An empty cache, for what is remembered is not walked; a check builds what it needs from any.
    place = {"PYTHONPATH": str(ROOT)} | ({} if name == "check" else {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    inherited = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.walks", name, str(argument[name]()), str(tmp_path / "passed")]
    subprocess.run(command, cwd=ROOT, env=inherited | place, capture_output=True, check=True, timeout=200)
    passed = iter((tmp_path / "passed").read_text(encoding="utf-8").splitlines())
    missed = [f"{file} {function}" for file, function, is_elsewhere in walks()[name] if not is_elsewhere]
    assert [stop for stop in missed if stop not in passed] == []
