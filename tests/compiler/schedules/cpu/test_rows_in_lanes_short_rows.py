from __future__ import annotations

import numpy as np
import pytest

from noyau.codegen.c import printer as c_printer
from noyau.compiler.lowering.nest import lower
from noyau.compiler.schedules.cpu.rows_in_lanes import (
    BLOCK,
    CELLS,
    COSTLY_CELLS,
    COSTLY_TURNED_CELLS,
    MAP_CELLS,
    SIDE_BY_SIDE,
    TURNED_CELLS,
    short_rows,
)
from noyau.compiler.schedules.cpu.strategy_choice import Options, schedule
from noyau.dtypes import DType
from noyau.ir.dims import Dim, shape_of
from noyau.ir.graph import Map, View
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Alloc, Axis, Call, Const, Index, Loop
from noyau.ir.walk import every_expression, every_statement
from noyau.toolchain.c import compiler as c_compiler
from noyau.toolchain.c.library import Native
from tests.compiler.schedules.groups import (
    assert_keeps,
    flat,
    gathered,
    in_order,
    inputs_of,
    log_softmax,
    loops,
    lowered,
    reduced,
    residual_rms_norm,
    rotary,
    transposed,
)
from tests.jobs.check.groups import F32, Group, layer_norm, rms_norm, softmax
from tests.judged import Judge


def scaled(rows="rows", columns="n", dtype=F32):
    """A matrix times a vector of its columns, and another one added."""
    g = Group()
    x, w, v = g.input("x", dtype, rows, columns), g.input("w", dtype, columns), g.input("v", dtype, columns)
    shape = (rows, columns)
    product = g.map("multiply", x, g.expand(w, shape))
    backwards = g.add(View((Dim.of("#1"),)), [v], dtype, shape)
    return g.graph(g.map("add", product, backwards))


def by_rows():
    """A matrix times a number for each row."""
    g = Group()
    x, s = g.input("x", F32, "rows", "n"), g.input("s", F32, "rows")
    return g.graph(g.map("multiply", x, g.add(View((Dim.of("#0"),)), [s], F32, ("rows", "n"))))


ROWS = {
    "softmax": softmax(),
    "log_softmax": log_softmax(),
    "log_softmax_f64": log_softmax(dtype=DType.F64),
    "rms_norm": rms_norm(),
    "residual_rms_norm_bf16": residual_rms_norm(dtype=DType.BF16),
    "layer_norm": layer_norm(),
    "argmax": reduced("argmax", "rows", "n", axes=(1,)),
    "variance": reduced("variance", "rows", "n", axes=(1,)),
    "max": reduced("max", "rows", "n", axes=(1,)),
    "looked_up": gathered(),
    "two_axes": reduced("sum", "a", "rows", "n", axes=(2,), after="exp"),
}
MAPS = {"scaled": scaled(), "scaled_f16": scaled(dtype=DType.F16), "by_rows": by_rows()}


def short(graph, **options):
    """The kernel of a graph with the launch for short rows alone, whatever the sizes."""
    made = flat(graph)
    launch = short_rows(made, **options)
    assert launch is not None
    return check(type(made)(made.name, made.buffers, made.binding, (type(launch)(launch.body),), made.guards))


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("name", ROWS)
def test_rows_side_by_side_compute_what_rows_do(name, kept):
    rest = {"a": 2, "b": 1, "s": 3, "words": 4}
    sizes = [{**rest, "rows": rows, "n": n} for rows, n in ((3, 5), (33, 2), (32, 1), (1, 0), (0, 4))]
    assert_keeps(ROWS[name], short(ROWS[name], kept=kept), *sizes)


@pytest.mark.parametrize("name", MAPS)
def test_maps_of_short_rows_compute_what_maps_do(name):
    sizes = [{"rows": rows, "n": n} for rows, n in ((3, 5), (BLOCK + 17, 2), (1, 0), (0, 4), (16, 7))]
    assert_keeps(MAPS[name], short(MAPS[name]), *sizes)


def test_both_launches_have_their_sizes_in_the_interpreter():
    for graph in (softmax(), scaled()):
        sizes = [{"rows": rows, "n": n} for rows, n in ((33, 3), (3, 3), (2, 66), (32, 64))]
        made = check(schedule(lowered(graph)))
        assert len(made.launches) == 2
        assert_keeps(graph, made, *sizes)


@pytest.mark.parametrize(
    ("graph", "most"),
    [
        (rms_norm(), TURNED_CELLS),
        (rms_norm(dtype=DType.F64), CELLS),
        (softmax(), COSTLY_TURNED_CELLS),
        (log_softmax(dtype=DType.F64), COSTLY_CELLS),
        (scaled(), MAP_CELLS),
        (by_rows(), CELLS),
    ],
)
def test_it_is_asked_how_long_rows_are_and_how_many(graph, most):
    def at_most(left, right):
        return Call("less_equal", (Index(Dim.of(left)), Index(Dim.of(right))), DType.BOOL)

    long, few = schedule(lowered(graph)).launches
    assert few.when == Call("logical_and", (at_most("n", most), at_most(SIDE_BY_SIDE, "rows")), DType.BOOL)
    assert long.when == Call("logical_not", (few.when,), DType.BOOL)


def test_rows_that_are_known_to_be_short_have_one_launch():
    for graph in (softmax(columns=7), rms_norm(columns=7), scaled(columns=3)):
        (launch,) = schedule(lowered(graph)).launches
        assert launch.when is None
        assert_keeps(graph, schedule(lowered(graph)), {"rows": 3}, {"rows": 33})


@pytest.mark.parametrize(
    "graph",
    [
        softmax(columns=COSTLY_TURNED_CELLS + 1),
        softmax(rows=SIDE_BY_SIDE - 1),
        softmax(rows=0),
        scaled(rows=0),
        reduced("sum", "n", axes=(0,)),
        rotary(),
        transposed(0, 2, 1),
    ],
)
def test_what_has_no_short_rows(graph):
    assert [launch.when for launch in schedule(lowered(graph)).launches if launch.when] == []


def masked():
    """softmax(x + mask)."""
    g = Group()
    x, mask = g.input("x", F32, "rows", "n"), g.input("mask", F32, "rows", "n")
    e = g.map("exp", g.map("add", x, mask))
    g.map("divide", e, g.expand(g.reduce("sum", e), ("rows", "n")))
    return g.graph()


def test_rows_of_words_go_through_memory_with_their_axes_exchanged():
    """What is read of both arrays and what is written; of the last rows too, which fill no tile."""
    graph = masked()
    made = schedule(lowered(graph))
    assert f"({COSTLY_TURNED_CELLS})" in str(made.launches[1].when)
    text = c_printer.source(made)
    assert text.count("        noyau_turn(&") == 3
    assert "for (int64_t i0 = 0; i0 < 32; ++i0) {" in text  # in all lanes: states stay in registers
    native = Native(c_compiler.compile_library([text]), "kernel_kernel")
    for rows, n in ((32, 1), (33, 7), (63, 8), (64, 16), (100, 49), (41, 127), (32, 130), (0, 4)):
        inputs = inputs_of(graph, {"rows": rows, "n": n})
        (got,) = native(*in_order(made, inputs))
        assert Judge(graph, inputs).wrong(graph.outputs[0], got) is None, (rows, n)


def test_what_each_row_asks_lies_in_words():
    """gcc makes no wide vectors of bools beside floats."""
    g = Group()
    x = g.input("x", F32, "rows", "n")
    total = g.reduce("sum", x)
    asked = g.add(Map("less"), [total, g.reduce("max", x)], DType.BOOL, shape_of(["rows", 1]))
    spread = g.add(View((Dim.of("#0"), Dim.of(0))), [asked], DType.BOOL, ("rows", "n"))
    g.add(Map("where"), [spread, g.map("exp", x), x], F32, ("rows", "n"))
    text = c_printer.source(short(g.graph()))
    assert "bool" not in text.split("_0(const noyau_call")[1].split("NOYAU_OK")[0].replace("(bool)", "")


def test_where_it_is_not_asked_for():
    made = schedule(lowered(softmax()), Options(short=False))
    assert [launch.when for launch in made.launches] == [None]


def test_what_all_rows_have_alike_is_repeated_in_memory():
    made = short(scaled())
    memory = [s for s in every_statement(made.launches[0].body) if isinstance(s, Alloc)]
    assert [(s.name, str(s.shape[0])) for s in memory] == [("w.rows", "16*n"), ("v.rows1", "16*n")]
    assert loops(made, Axis.THREADS) == ["#i0t"]
    assert "y[" not in c_printer.source(made).split("w_rows[cell_of_rows]")[0].split("for (")[-1]


def test_a_value_that_each_row_has_is_kept_for_the_passes_after_it():
    text = c_printer.source(short(rms_norm()))
    assert text.count("noyau_sqrt_f32(") == 2  # its definition, and once a row
    assert "_cell[i0]" in text


@pytest.mark.parametrize(
    ("name", "n"), [("softmax", 7), ("rms_norm", 7), ("scaled", 7), ("by_rows", 3), ("layer_norm", 15)]
)
def test_numbers_in_c_at_either_side_of_the_question(name, n):
    graph = {**ROWS, **MAPS}[name]
    made = schedule(lower(graph, "kernel"))
    native = Native(
        c_compiler.compile_library([c_printer.source(made)], c_compiler.CompilerOptions(export=True, extra=("-O1",))),
        "kernel_kernel",
    )
    for rows, length in ((31, n), (32, n), (33, n), (1000, n), (40, 70)):
        inputs = inputs_of(graph, {"rows": rows, "n": length}, seed=rows)
        judge = Judge(graph, inputs)
        for pieces in (1, 3):
            got = native.call_guarded(*in_order(made, inputs), pieces=pieces)
            assert [judge.wrong(name, array) for name, array in zip(graph.outputs, got, strict=True)] == [None] * len(
                got
            )


def test_bits_do_not_depend_on_how_rows_are_cut():
    made = schedule(lower(softmax(), "kernel"))
    native = Native(
        c_compiler.compile_library([c_printer.source(made)], c_compiler.CompilerOptions(export=True, extra=("-O1",))),
        "kernel_kernel",
    )
    x = np.random.default_rng(0).standard_normal((100, 9), np.float32)
    whole = native(x)[0].tobytes()
    assert all(native(x, pieces=pieces)[0].tobytes() == whole for pieces in (2, 3, 50))


@pytest.mark.parametrize("cells", ["n", 24])
def test_shares_of_a_sum_are_products_with_its_inverse_which_each_lane_has_once(cells):
    """A loop over the lanes has a sum in each: the compiler finds no inverse that it could compute before."""
    few = schedule(lowered(softmax("rows", cells))).launches[-1]
    calls = [each for each in every_expression(few.body) if isinstance(each, Call) and each.function == "divide"]
    (inverse,) = set(calls)
    assert inverse.operands[0] == Const(1.0, F32)
    around = [s for s in every_statement(few.body) if isinstance(s, Loop) and inverse in set(every_expression(s.body))]
    assert around and Dim.of(cells) not in [loop.extent for loop in around]


def test_a_quotient_that_is_no_share_stays_one():
    g = Group()
    x = g.input("x", F32, "rows", "n")
    quotients = g.map("divide", x, g.expand(g.reduce("sum", x), ("rows", "n")))
    few = schedule(lowered(g.graph(quotients))).launches[-1]
    calls = [each for each in every_expression(few.body) if isinstance(each, Call)]
    assert sum(each.function == "divide" for each in calls) == 1
    assert all(each.operands[0] != Const(1.0, F32) for each in calls if each.function == "divide")
