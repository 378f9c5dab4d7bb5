"""examples/defects/host.py: each warning by its line, silence for each mended twin."""

from __future__ import annotations

import re

import pytest

from noyau.scripts.running import check_script
from tests.defects import FOLDER

pytest.importorskip("numba")


def test_each_defect_of_the_host_is_told_by_its_line():
    path = FOLDER / "host.py"
    lines = path.read_text(encoding="utf-8").splitlines()
    marked = {number for number, line in enumerate(lines, 1) if re.search(r"# defect: launch$", line)}
    other = {number for number, line in enumerate(lines, 1) if line.endswith("# other")}
    found = check_script(path)
    assert found.ok
    assert {(each.kind, each.severity) for each in found.findings} == {("launch", "warning")}
    assert sorted(int(each.place.rpartition(":")[2]) for each in found.findings) == sorted(marked)
    assert {int(each.other_place.rpartition(":")[2]) for each in found.findings if each.other_place} == other
