from __future__ import annotations

import ast

import pytest

from noyau.errors import FindingKind
from noyau.sanitizer.lint.diagnostics import Diagnostic, dotted_name


def test_a_remark_is_a_warning_with_both_lines(tmp_path):
    path = tmp_path / "script.py"
    path.write_text("launch()\nclock()  # noyau: allow(launch) meant\n")
    remark = Diagnostic(FindingKind.LAUNCH, str(path), 1, "it does not wait", "wait", other_line=2)
    finding = remark.finding("script.py", "add", "python")
    assert (finding.severity, finding.kind, finding.place) == ("warning", "launch", f"{path}:1")
    assert finding.other_place == f"{path}:2"
    assert str(finding) == "launch: it does not wait; wait"
    assert finding.id.startswith("script.py[add]:launch:")
    assert not remark.is_allowed
    assert Diagnostic(FindingKind.LAUNCH, str(path), 2, "", "").is_allowed
    assert not Diagnostic(FindingKind.PRECISION, str(path), 2, "", "").is_allowed


@pytest.mark.parametrize(("text", "name"), [("a.b.c", "a.b.c"), ("a", "a"), ("f().b", ""), ("a[0].b", "")])
def test_dotted_names(text, name):
    assert dotted_name(ast.parse(text, mode="eval").body) == name
