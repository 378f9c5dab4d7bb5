from __future__ import annotations

import pytest
from rich.text import Text

from noyau.jobs.report.text import TableRow, beginnings, shorten, table

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
    rows = [TableRow("(2 more)", ("", "5 us")), TableRow("Add", ("1", "3 us"))]
    assert lines(30, rows, "T") == ["T         nodes  time", "(2 more)         5 us", "Add           1  3 us"]
    assert lines(16, rows, "T") == ["T", "(2 more)", "    time 5 us", "Add", "    nodes 1,", "    time 3 us"]
    assert lines(30, rows[:1], "T") == ["T         time", "(2 more)  5 us"]


def test_columns_that_may_go_do_so_one_after_the_other_where_a_line_is_too_long():
    row = TableRow("a_kernel_with_a_long_name", (Text("FASTER", "green"), "12 us", "81%"))
    heads = ("verdict", "time", "floor")
    for width, left in ((60, heads), (42, ("verdict", "time")), (35, ("verdict",))):
        head, line = (each.plain for each in table("T", heads, [row], width, ("floor", "time"), 25))
        assert head.split() == ["T", *left] and line.startswith("a_kernel_with_a_long_name")
    assert [span.style for each in table("T", heads, [row], 60) for span in each.spans if span.style] == [
        "dim",
        "dim",
        "dim",
        "green",
    ]


def test_names_are_cut_to_a_beginning_that_no_other_name_has():
    names = ["sum_rsqrt_1_aa", "sum_rsqrt_10_bb", "less_equal_and_where_2_cc", "plain"]
    assert beginnings(names, 36) == ["sum_rsqrt_1_aa", "sum_rsqrt_10", "less_equal_and_where_2", "plain"]
    assert beginnings(names, 8) == ["sum_rsqrt_1_aa", "sum_rsqrt_10", "less_equ", "plain"]
    assert beginnings(["same", "same"], 9) == ["same", "same"]


def test_a_short_name_is_kept():
    assert shorten("abc", 3) == "abc"
    assert shorten("abcdefgh", 6) == "ab..gh"
