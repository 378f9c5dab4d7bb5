from __future__ import annotations

from tools.suites import dataracebench


def test_labels_are_read_from_names(tmp_path):
    folder = tmp_path / "micro-benchmarks"
    folder.mkdir()
    for name in ("DRB001-a-yes.c", "DRB002-b-no.cpp", "DRB003-c-no.c", "notes.c", "DRB004-d.md"):
        text = "#include <polybench.h>\n" if "003" in name else "int main() {}\n"
        (folder / name).write_text(text, encoding="utf-8")
    cases = dataracebench.cases_of(tmp_path)
    assert [(each.name, each.is_defective) for each in cases] == [
        ("DRB001-a-yes.c", True),
        ("DRB002-b-no.cpp", False),
        ("DRB003-c-no.c", False),
    ]
    assert ["polybench.c" in " ".join(each.words) for each in cases] == [False, False, True]
