"""examples/defects/host.py and host.cu: each warning by its line, silence for each mended twin."""

from __future__ import annotations

import re

import pytest

from noyau.jobs.check.script_run import check_script
from noyau.sanitizer.scripts.programs import check_program
from tests.defects import FOLDER


@pytest.mark.parametrize("name", ["host.py", "host.cu"])
def test_each_defect_of_the_host_is_told_by_its_line(name):
    path = FOLDER / name
    lines = path.read_text(encoding="utf-8").splitlines()
    marked = {number for number, line in enumerate(lines, 1) if re.search(r"(#|//) defect: launch$", line)}
    other = {number for number, line in enumerate(lines, 1) if line.endswith(("# other", "// other"))}
    found = check_program(path) if path.suffix == ".cu" else check_script(path)
    assert found.ok
    assert {(each.kind, each.severity) for each in found.findings} == {("launch", "warning")}
    assert sorted(int(each.place.rpartition(":")[2]) for each in found.findings) == sorted(marked)
    assert {int(each.other_place.rpartition(":")[2]) for each in found.findings if each.other_place} == other
