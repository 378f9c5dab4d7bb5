"""docs/defects.md is what the examples are: each is there with its kind and its twin, and none is left out."""

from __future__ import annotations

import re

import pytest

from tests.defects import FOLDER
from tests.defects_table import LANGUAGES, REASONS, ROWS, document, kind_of

DOCUMENT = FOLDER.parents[1] / "docs" / "defects.md"
NAMED = sorted({each for row in ROWS for cell in row.cells.values() if cell not in REASONS for each in cell.split()})
_DEFINED = re.compile(
    r"^(?:@.*\n)*(?:def |void |extern \"C\" void |__global__ void |__attribute__.* void )(\w+)\(", re.MULTILINE
)


def functions(file):
    return _DEFINED.findall((FOLDER / file).read_text(encoding="utf-8"))


@pytest.mark.parametrize("example", NAMED)
def test_an_example_has_a_kind_and_a_mended_twin(example):
    file, name = example.split("::")
    assert kind_of(example)
    twins = [each for each in functions(file) if each.endswith("_mended") and name.startswith(each[: -len("_mended")])]
    assert name in functions(file) and twins


def with_a_defect(text):
    """The functions that a line calls a defect, or their name broken."""
    found = list(_DEFINED.finditer(text))
    bodies = zip(found, [*(each.start() for each in found[1:]), len(text)], strict=True)
    return {each[1] for each, end in bodies if each[1].endswith("_broken") or "defect: " in text[each.start() : end]}


def test_no_example_is_left_out():
    assert "total_in_one_cell" in with_a_defect((FOLDER / "prange.py").read_text(encoding="utf-8"))
    for path in sorted(each for each in FOLDER.iterdir() if each.is_file()):
        broken = with_a_defect(path.read_text(encoding="utf-8"))
        assert broken == {name for name in broken if f"{path.name}::{name}" in NAMED}, path.name


def test_each_language_has_an_example_or_a_reason():
    used = {cell for row in ROWS for cell in row.cells.values()}
    assert all(row.cells.keys() == LANGUAGES.keys() for row in ROWS)
    assert {cell for cell in used if len(cell) == 1} == REASONS.keys()


def test_the_document_is_the_table():
    again = "run: python -m tests.defects_table > docs/defects.md"
    assert DOCUMENT.read_text(encoding="utf-8").splitlines() == list(document()), again


def test_an_example_without_a_defect_is_none():
    with pytest.raises(KeyError):
        kind_of("openmp.c::total_mended")
