"""Tiles that are written around the caches a few lines at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from noyau.codegen.c import printer as c_printer
from noyau.compiler.schedules.cpu.memory_hints import match_tile
from noyau.compiler.schedules.cpu.strategy_choice import Options, schedule
from noyau.dtypes import DType
from noyau.ir.dims import Dim, shape_of
from noyau.ir.loops import Alloc, Axis, Space, StreamStore
from tests.compiler.schedules.cpu.test_memory_hints_nontemporal_stores import added
from tests.compiler.schedules.groups import assert_keeps, lowered
from tests.jobs.check.groups import F32, Group, layer_norm, rms_norm, softmax
from tests.nests import ROW, load, loop, store

LANES = Axis.LANES
ONE_CELL = store("tile", load("x", ROW), ROW)
COPY = StreamStore("y", (Dim.of("m"),), "tile", Dim.of(0), Dim.of(256), F32)


def register(name, count):
    return Alloc(name, F32, shape_of((count,)), Space.REGISTER)


BEGINS = "== 256 && noyau_begins_line(&"


def written(graph):
    return c_printer.source(schedule(lowered(graph), Options(around_bytes=1)))


def both():
    """Two outputs."""
    g = Group()
    x = g.input("x", F32, "rows", "n")
    twice = g.map("add", x, x)
    return g.graph(twice, g.map("multiply", twice, twice))


@pytest.mark.parametrize("dtype", [F32, DType.F64, DType.I32])
def test_a_tile_of_words_goes_a_few_lines_at_a_time(dtype):
    text = written(added(dtype))
    assert BEGINS in text
    assert "_tile_lines[32];" in text


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16, DType.I8])
def test_a_tile_of_narrower_cells_goes_as_a_whole(dtype):
    text = written(added(dtype))
    assert BEGINS not in text
    assert "noyau_write_around(&" in text


def test_a_tile_beside_which_the_next_row_is_fetched_goes_as_a_whole():
    """Memory is read and written in turns there."""
    assert BEGINS not in written(rms_norm())
    assert BEGINS in written(softmax())
    assert BEGINS in written(layer_norm())


def test_two_outputs_begin_with_a_line_where_both_do():
    (line,) = [line for line in written(both()).splitlines() if BEGINS in line]
    assert line.count("noyau_begins_line(&") == 2
    assert_keeps(both(), schedule(lowered(both()), Options(around_bytes=1)), {"rows": 2, "n": 300})


def test_statements_that_are_no_tile():
    alloc, made, copied = (register("tile", 256), loop("#i", 256, ONE_CELL, axis=LANES), COPY)
    assert match_tile([alloc, made, copied])
    assert not any(map(match_tile, ([], [alloc], [alloc, made], [made, copied], [alloc, made, made])))
    assert not match_tile([alloc, replace(made, axis=Axis.SERIAL), copied])
    assert not match_tile([alloc, replace(made, extent=Dim.of(255)), copied])
    assert not match_tile([register("tile", 32), replace(made, extent=Dim.of(32)), replace(copied, extent=Dim.of(32))])
