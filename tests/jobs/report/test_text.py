from __future__ import annotations

import pytest
from rich.text import Text

from noyau.jobs.report.text import hanging, print_lines, spell_bytes


def lines(*arguments: object, **named: str) -> list[str]:
    return [line.plain for line in hanging(*arguments, **named)]


def test_lines_hang_from_the_first():
    assert lines("one two three four", 12, "- ") == ["- one two", "  three four"]
    assert lines("one two three four", 12, "", "    ") == ["one two", "    three", "    four"]


def test_no_line_ends_in_spaces_or_is_too_wide():
    for width in range(10, 60):
        found = lines("a few words and one_that_is_very_long_indeed_and_has_to_be_cut  ", width, "  ")
        assert all(len(line) <= width and line == line.rstrip() for line in found)
        assert "".join("".join(found).split()) == "afewwordsandone_that_is_very_long_indeed_and_has_to_be_cut"


def test_the_head_is_not_styled():
    (line,) = hanging("text", 40, "head ", style="red")
    assert [(span.start, span.style) for span in line.spans] == [(5, "red")]
    (line,) = hanging(Text("text", style="bold"), 40)
    assert line.plain == "text"


@pytest.mark.parametrize("text", ["[red]x[/red]", "[/]", "[link=a]b"])
def test_markup_is_text(text):
    assert lines(text, 40) == [text]


REPORT = """\
sums: race: iteration 1 writes out[0], written by iteration 0 on the same line
   --> a_folder_of_some_length/sums_by_columns.py:20
 20 |             out[j] += a[i, j] * weights[i]
    = mend: give each cell one iteration: loop over the cells instead\x1b[2J
"""


def test_in_a_terminal_a_report_goes_on_below_but_for_lines_of_source(monkeypatch, capsys):
    for name, value in (("TTY_COMPATIBLE", "1"), ("COLUMNS", "40"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    print_lines(REPORT)
    head, *source = capsys.readouterr().out.split("   -->")
    assert head.splitlines() == [
        "sums: race: iteration 1 writes",
        "    out[0], written by iteration 0 on",
        "    the same line",
    ]
    assert source[0].splitlines() == [
        " a_folder_of_some_length/sums_by_columns.py:20",
        " 20 |             out[j] += a[i, j] * weights[i]",
        "    = mend: give each cell one",
        "        iteration: loop over the cells",
        "        instead?[2J",
    ]


def test_elsewhere_the_lines_stay_whole(capsys):
    print_lines(REPORT)
    assert capsys.readouterr().out == REPORT.replace("\x1b", "?")


def test_bytes_in_words():
    assert [spell_bytes(each) for each in (0, 1023, 1 << 10, 3 << 19, 5 << 30)] == [
        "0 B",
        "1023 B",
        "1 KiB",
        "1.5 MiB",
        "5 GiB",
    ]
