"""What C text says shorter."""

from __future__ import annotations

from dataclasses import replace

from noyau.codegen.c.idioms import is_in_registers, starts_at_zero
from noyau.ir.dims import Dim, shape_of
from noyau.ir.loops import Alloc, Axis, Const, Space
from tests.nests import ONE, ROW, load, loop, store
from tests.nodes import F32


def test_memory_that_a_loop_sets_to_zero():
    memory = Alloc("sums", F32, shape_of((32,)), Space.REGISTER)
    zeros = loop("#i", 32, store("sums", Const(0.0, F32), ROW), axis=Axis.LANES)
    assert starts_at_zero(memory, zeros)
    others = [
        replace(zeros, extent=Dim.of(31)),
        loop("#i", 32, store("sums", Const(-0.0, F32), ROW)),
        loop("#i", 32, store("sums", ONE, ROW)),
        loop("#i", 32, store("other", Const(0.0, F32), ROW)),
        loop("#i", 32, store("sums", Const(0.0, F32), ROW + 1)),
        store("sums", Const(0.0, F32), 0),
    ]
    assert not any(starts_at_zero(memory, other) for other in others)
    assert not starts_at_zero(
        Alloc("sums", F32, shape_of((1,)), Space.REGISTER), loop("#i", 1, store("sums", Const(0.0, F32), ROW))
    )


def test_a_loop_over_registers_that_needs_no_pragma():
    """One that reads what others hold does: lanes that are merged by halves."""
    registers = {"sums": Alloc("sums", F32, shape_of((32,)), Space.REGISTER)}
    strip = loop("#i", 32, store("sums", load("x", ROW), ROW, merge="sum"))
    halves = loop("#i", 16, store("sums", load("sums", ROW + 16), ROW, merge="sum"))
    assert is_in_registers(strip, registers)
    assert not is_in_registers(halves, registers)
    assert is_in_registers(replace(halves, extent=Dim.of(4)), registers)
    assert not is_in_registers(replace(strip, extent=Dim.of("n")), registers)
    assert not is_in_registers(loop("#i", 32, store("y", ONE, ROW)), registers)
