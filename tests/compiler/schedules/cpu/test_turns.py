from __future__ import annotations

import pytest

from noyau.codegen.c import printer as c_printer
from noyau.compiler.schedules.cpu.strategy_choice import schedule
from noyau.compiler.schedules.cpu.transposes import reads_along
from noyau.compiler.schedules.cpu.turns import MOST, TILE, turn
from noyau.dtypes import DType
from noyau.ir.dims import Dim
from noyau.ir.graph import View
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Alloc, Axis
from noyau.ir.walk import every_statement
from noyau.toolchain.c.compiler import compile_library
from noyau.toolchain.c.library import Native
from tests.compiler.schedules.groups import (
    assert_keeps,
    flat,
    gathered,
    in_order,
    inputs_of,
    loops,
    lowered,
    transposed,
)
from tests.jobs.check.groups import F32, Group
from tests.judged import Judge

SIZES = [{"a": a, "b": b, "c": c_printer} for a, b, c_printer in ((17, 35, 2), (2, 18, 33), (0, 3, 2), (33, 1, 17))]
ORDERS = [(1, 0), (0, 2, 1), (2, 0, 1), (2, 1, 0), (0, 3, 1, 2)]


def added(inputs=2, first="x"):
    """Matrices and the transposes of others, added."""
    g = Group()
    total = g.input(first, F32, "a", "b")
    for number in range(inputs):
        y = g.input(f"y{number}", F32, "b", "a")
        total = g.map("add", total, g.add(View((Dim.of("#1"), Dim.of("#0"))), [y], F32, ("a", "b")))
    return g.graph()


def turned(graph):
    made = flat(graph)
    found = reads_along(made.launches[0].body)
    assert found is not None
    return turn(made, along=found[0], across=found[1])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", [F32, DType.F16, DType.BF16, DType.BOOL])
def test_tiles_and_what_is_left_of_them(order, dtype):
    after = "logical_not" if dtype is DType.BOOL else "negative"
    graph = transposed(*order, shape=("a", "b", "c", 2)[: len(order)], dtype=dtype, after=after)
    assert_keeps(graph, schedule(lowered(graph)), *(SIZES if dtype is F32 else SIZES[:1]))


def test_an_input_may_be_called_as_turned_tiles_are_in_texts():
    graph = added(1, first="y0_turned")
    assert_keeps(graph, turned(graph), {"a": 35, "b": 33})


def test_several_inputs_are_turned_side_by_side():
    graph = added()
    made = schedule(lowered(graph))
    memory = {s.name for each in made.launches for s in every_statement(each.body) if isinstance(s, Alloc)}
    assert len([name for name in memory if ".turned" in name]) == 2
    assert_keeps(graph, made, *SIZES[:3])
    assert turned(added(MOST + 1)) is None


def test_blocks_of_tiles_are_on_threads_and_a_launch_for_each_end():
    made = check(turned(transposed(1, 0, shape=("a", "b"))))
    assert len(made.launches) == 3
    assert loops(made, Axis.THREADS) == ["#i1t", "#i1t", "#i1t"]
    assert len(check(turned(transposed(1, 0, shape=(4 * TILE, 5 * TILE)))).launches) == 1


def test_short_axes_and_what_is_looked_up_stay_as_they_are():
    assert turned(transposed(1, 0, shape=("a", TILE - 1))) is None
    made = flat(gathered())
    assert turn(made, along="#i0", across="#i2") is None
    assert turn(flat(transposed(1, 0, shape=("a", "b"))), along="#i9", across="#i1") is None


@pytest.mark.parametrize("dtype", [DType.F16, DType.F64, DType.BOOL])
def test_cells_of_other_widths_are_turned_by_loops(dtype):
    after = "logical_not" if dtype is DType.BOOL else "negative"
    text = c_printer.source(schedule(lowered(transposed(1, 0, shape=("a", "b"), dtype=dtype, after=after))))
    assert "x_turned[" in text and "noyau_turn(" not in text


def test_what_is_turned_goes_from_there_around_the_caches_while_the_next_block_is_fetched():
    text = c_printer.source(schedule(lowered(transposed(1, 0, shape=("a", "b"), after="identity"))))
    assert "_tile[" not in text and text.count(", &x_turned[i0 * 64], (size_t)i1_count * sizeof(*x_turned));") == 1
    assert "NOYAU_PREFETCH(&x[" in text


def test_the_text_computes_the_same():
    graph = added(1)
    text = c_printer.source(schedule(lowered(graph)))
    assert "noyau_turn(&v_y0_turned[" in text
    native = Native(compile_library([text]), "kernel_kernel")
    for sizes in ({"a": 1, "b": 3}, {"a": 16, "b": 16}, {"a": 85, "b": 146}):
        inputs = inputs_of(graph, sizes)
        (got,) = native(*in_order(schedule(lowered(graph)), inputs))
        assert Judge(graph, inputs).wrong(graph.outputs[0], got) is None, sizes
