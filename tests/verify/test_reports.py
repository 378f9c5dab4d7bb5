"""Reports as a notebook shows them."""

from __future__ import annotations

import linecache
from html.parser import HTMLParser

import pytest

from noyau.errors import FindingKind
from noyau.verify.findings import Finding
from noyau.verify.reports import FINDINGS, LINES, html_of

UPDATE = "/folder/k.py"


@pytest.fixture(autouse=True)
def source(monkeypatch):
    lines = ["def k(out):\n", "    out[0] += 1\n"]
    monkeypatch.setitem(linecache.cache, UPDATE, (1, None, lines, UPDATE))


class Texts(HTMLParser):
    """What a page shows line by line, where a tag is left open, and what is folded away."""

    def __init__(self, page):
        super().__init__()
        self.lines, self.folded, self.open = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag in ("div", "pre", "summary"):
            self.lines.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.lines[-1] += data
        if "details" in self.open and "summary" not in self.open:
            self.folded.append(data)


def race(message="two write", severity="error", **more):
    parts = "op", "k", "numba_cuda", FindingKind.RACE, f"{UPDATE}:2", "n = 2", message
    return Finding(*parts, severity=severity, digest="d", **more)


def test_a_finding_has_its_line_its_drawing_and_the_line_mended():
    finding = race(mend="use cuda.atomic", drawing=("one  two",), change="cuda.atomic.add(out, 0, 1)")
    page = Texts(html_of([("op[k]", [finding])], ["op[k]: watched"]))
    assert not page.open
    assert [each for each in page.lines if each] == [
        "race in op[k], with n = 2",
        "two write",
        f"  --> {UPDATE}:2\n 2 |     out[0] += 1\n   : one  two",
        "To mend it: use cuda.atomic",
        "- out[0] += 1\n+ cuda.atomic.add(out, 0, 1)",
        "op[k]: watched",
    ]


def test_a_wrong_value_has_no_line():
    finding = Finding("op", "k", "c", FindingKind.WRONG_VALUE, f"{UPDATE}:2", "n = 2", "wrong at out[0]", (0,))
    page = Texts(html_of([("op[k]", [finding])], []))
    remedy = "To mend it: look at how that cell is computed at these sizes"
    assert [each for each in page.lines if each] == ["wrong-value in op[k]", "wrong at out[0]", remedy]


def test_errors_come_first_and_what_is_too_much_is_folded():
    findings = [race("a warning", "warning"), *(race(f"error {at}") for at in range(FINDINGS + 1))]
    page = Texts(html_of([("op[k]", findings)], [f"line {at}" for at in range(LINES + 2)]))
    said = "\n".join(page.lines)
    assert said.index("error 3") < said.index("and 2 lines more") < said.index("line 6")
    assert said.index("and 2 findings more") < said.index("warning: race in op[k]")
    assert {f"error {FINDINGS}", "a warning", f"line {LINES}"} < set(page.folded)
    assert not {f"error {FINDINGS - 1}", "line 0"} & set(page.folded)


def test_names_and_texts_are_no_html():
    evil = "<script>alert('&')</script>"
    finding = race(evil, mend=evil, change=evil, drawing=(evil,))
    page = html_of([(evil, [finding])], [evil])
    assert "<script" not in page
    assert Texts(page).lines.count(evil) == 2
