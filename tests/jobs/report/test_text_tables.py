from __future__ import annotations

import pytest

from noyau.jobs.report.text import TableRow, shorten, table

ROWS = [
    TableRow("MatMul", ("12", "600 us  60%")),
    TableRow("a_long_name_of_a_kernel_0_1234", ("1", "5 us   1%"), "for Mul, Add"),
]


def lines(width, rows=ROWS, title="Operator"):
    return [line.plain for line in table(title, ("nodes", "time"), rows, width)]


def test_a_row_is_a_line_where_there_is_room():
    assert lines(80) == [
        "Operator                        nodes         time",
        "MatMul                             12  600 us  60%",
        "a_long_name_of_a_kernel_0_1234      1    5 us   1%",
        "    for Mul, Add",
    ]


def test_names_lose_their_middle_first():
    assert lines(40) == [
        "Operator              nodes         time",
        "MatMul                   12  600 us  60%",
        "a_long_na..el_0_1234      1    5 us   1%",
        "    for Mul, Add",
    ]


def test_then_a_row_has_two_lines():
    assert lines(30) == [
        "Operator",
        "MatMul",
        "    nodes 12, time 600 us 60%",
        "a_long_name_of_a_kernel_0_1234",
        "    nodes 1, time 5 us 1%",
        "    for Mul, Add",
    ]


@pytest.mark.parametrize("width", range(12, 60))
def test_no_line_is_too_long(width):
    assert max(map(len, lines(width))) <= width


def test_without_rows_there_is_no_table():
    assert lines(80, []) == []


def test_cells_that_are_empty_have_no_heading():
    row = TableRow("(2 more)", ("", "5 us"))
    assert lines(30, [row], "T") == ["T         nodes  time", "(2 more)         5 us"]
    assert lines(16, [row], "T") == ["T", "(2 more)", "    time 5 us"]


def test_a_short_name_is_kept():
    assert shorten("abc", 3) == "abc"
    assert shorten("abcdefgh", 6) == "ab..gh"
