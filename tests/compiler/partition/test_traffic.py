"""The bytes that a group must move, at some sizes."""

from __future__ import annotations

import pytest

from noyau.compiler.partition.traffic import Traffic, traffic
from noyau.ir.dims import Dim
from noyau.ir.graph import Gather, Iota, Lookup, Map, Reduce, Scan, Select
from tests.compiler.partition.test_costs import softmax
from tests.nodes import F32, I64, at, given, graph, value, view

SIZES = {"b": 3, "n": 8}


def test_each_input_and_output_once():
    found = traffic(softmax(), SIZES)
    assert found == Traffic(4 * 24, 4 * 24)
    assert found.bytes == 2 * 4 * 24


def test_what_a_reduction_reads_counts_though_it_writes_little():
    made = graph("y", given("x", F32, "b", "n"), value("y", Reduce("sum", (1,)), "x", F32, "b"))
    assert traffic(made, SIZES) == Traffic(4 * 24, 4 * 3)


def test_a_slice_reads_its_part_alone():
    made = graph("y", given("x", F32, "b", "n"), value("y", view(at(0), at(1) + 2), "x", F32, "b", 3))
    assert traffic(made, SIZES) == Traffic(4 * 9, 4 * 9)


def test_a_slice_that_is_expanded_reads_its_part_alone():
    made = graph("y", given("x", F32, "b", "n"), value("y", view(at(0), Dim.of(0)), "x", F32, "b", "n"))
    assert traffic(made, SIZES) == Traffic(4 * 3, 4 * 24)


def test_what_no_output_needs_is_not_read():
    made = graph("y", given("x", F32, "n"), given("z", F32, "n"), value("y", Map("exp"), "x", F32, "n"))
    assert traffic(made, SIZES) == Traffic(4 * 8, 4 * 8)


def test_an_input_that_is_read_twice_counts_once():
    made = graph("y", given("x", F32, "n"), value("y", Map("add"), "x x", F32, "n"))
    assert traffic(made, SIZES) == Traffic(4 * 8, 4 * 8)


def test_an_output_counts_once_though_it_is_read_again():
    made = graph(
        "e y", given("x", F32, "n"), value("e", Map("exp"), "x", F32, "n"), value("y", Map("exp"), "e", F32, "n")
    )
    assert traffic(made, SIZES) == Traffic(4 * 8, 2 * 4 * 8)


@pytest.mark.parametrize(("repeated", "rows"), [(False, 8), (True, 1)])
def test_a_table_is_read_where_it_is_looked_up(repeated, rows):
    made = graph(
        "y",
        given("table", F32, 1000, 5),
        given("ids", I64, "n"),
        value("y", Gather((Lookup(1, (at(0),)), at(1))), "table ids", F32, "n", 5),
    )
    assert traffic(made, SIZES, repeated=repeated) == Traffic(4 * 5 * rows + 8 * 8, 4 * 40)


def test_a_small_table_is_read_once():
    made = graph(
        "y",
        given("table", F32, 2, 5),
        given("ids", I64, "n"),
        value("y", Gather((Lookup(1, (at(0),)), at(1))), "table ids", F32, "n", 5),
    )
    assert traffic(made, SIZES) == Traffic(4 * 10 + 8 * 8, 4 * 40)


def test_pieces_are_read_whole():
    made = graph(
        "y",
        given("x", F32, "n"),
        given("z", F32, 4),
        value("y", Select(0, (Dim.of(0), Dim.of("n"))), "x z", F32, Dim.of("n") + 4),
    )
    assert traffic(made, SIZES) == Traffic(4 * 12, 4 * 12)


def test_what_is_counted_up_is_not_read():
    made = graph(
        "y", given("x", F32, "n"), value("i", Iota(at(0)), "", I64, "n"), value("y", Map("cast"), "i", F32, "n")
    )
    assert traffic(made, SIZES) == Traffic(0, 4 * 8)


def test_a_running_sum_reads_all():
    made = graph("y", given("x", F32, "n"), value("y", Scan("sum", 0), "x", F32, "n"))
    assert traffic(made, SIZES) == Traffic(4 * 8, 4 * 8)


def test_nothing_moves_where_there_is_nothing():
    assert traffic(softmax(), {"b": 0, "n": 8}) == Traffic(0, 0)
