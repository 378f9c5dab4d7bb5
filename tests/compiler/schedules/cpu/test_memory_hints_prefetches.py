from __future__ import annotations

import pytest

from noyau.codegen.c import printer as c_printer
from noyau.compiler.lowering.nest import lower
from noyau.compiler.schedules.cpu.memory_hints import fetch, insert_prefetches, next_rows
from noyau.compiler.schedules.cpu.strategy_choice import Options, schedule
from noyau.compiler.schedules.primitives import is_costly
from noyau.dtypes import DType
from noyau.ir.dims import Dim, shape_of
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Axis, Loop, Prefetch, Role
from noyau.ir.walk import every_statement, on_threads
from tests.compiler.schedules.groups import assert_keeps, flat, gathered, log_softmax, lowered, rotary, transposed
from tests.jobs.check.groups import F32, Group, layer_norm, rms_norm, softmax, swiglu

PLAIN = Options(lanes=32, around_bytes=0)
SIZES = [{"rows": 3, "n": n} for n in (0, 1, 31, 32, 70)]


def scheduled(graph):
    return check(schedule(lowered(graph), PLAIN))


def fetched(kernel):
    return [s for launch in kernel.launches for s in every_statement(launch.body) if isinstance(s, Prefetch)]


def rows_of(kernel):
    inputs = {buffer.name: buffer for buffer in kernel.of(Role.INPUT)}
    return {row.buffer.name: row for row in next_rows(kernel.launches[0].body, inputs)}


@pytest.mark.parametrize("dtype", [F32, DType.F16, DType.F64])
@pytest.mark.parametrize("graph", [softmax, log_softmax])
def test_a_pass_that_computes_fetches_the_next_row(graph, dtype):
    made = scheduled(graph(dtype=dtype))
    lines = 32 * dtype.bytes // 64  # of a strip of 32 cells
    assert {s.buffer for s in fetched(made)} == {"x"}
    assert {s.lines for s in fetched(made)} == {lines}
    assert_keeps(graph(dtype=dtype), made, *SIZES)


@pytest.mark.parametrize("graph", [rms_norm(), swiglu(), rotary(), transposed(1, 0, shape=("a", "b"))])
def test_others_do_not(graph):
    assert fetched(scheduled(graph)) == []


def softmax_of_largest(rows, columns):
    """Of what a loop within each strip computes: the largest of the middle axis."""
    g = Group()
    largest = g.map("tanh", g.reduce("max", g.input("x", F32, "batch", rows, columns), 1))
    e = g.map("exp", g.map("subtract", largest, g.expand(g.reduce("max", largest), ("batch", 1, columns))))
    g.map("divide", e, g.expand(g.reduce("sum", e), ("batch", 1, columns)))
    return g.graph()


@pytest.mark.parametrize(("rows", "columns"), [("rows", "n"), (6, 6), (3, 70)])
def test_what_a_loop_within_a_strip_reads_is_not_fetched(rows, columns):
    made = scheduled(softmax_of_largest(rows, columns))
    assert fetched(made) == []
    assert_keeps(softmax_of_largest(rows, columns), made, {"batch": 3, "rows": 4, "n": 35})


def test_a_kernel_without_threads_stays():
    g = Group()
    g.map("exp", g.input("x", F32))
    made = flat(g.graph())
    assert insert_prefetches(made) == made


def test_the_place_is_a_row_further():
    made = scheduled(softmax(rows=4, columns=64))
    text = c_printer.source(made)
    assert "NOYAU_PREFETCH(&x[i0 * 64 + r2 * 32 + 64]);" in text
    assert "NOYAU_PREFETCH(&x[i0 * 64 + r2 * 32 + 80]);" in text


@pytest.mark.parametrize("dtype", [F32, DType.F16, DType.F64])
@pytest.mark.parametrize(("lanes", "rests"), [(16, True), (32, True), (32, False)])
def test_the_last_of_several_folds_fetches_the_next_row(dtype, lanes, rests):
    """The first one waits for what nobody has fetched yet; the pass that writes leaves memory what is written."""
    graph = layer_norm(dtype=dtype)
    made = check(schedule(lowered(graph), Options(lanes=lanes, around_bytes=0, rests=rests)))
    (mean, spread) = [loop for loop in body_of(made) if isinstance(loop, Loop) and "block" in loop.var]
    assert not [s for s in every_statement((mean,)) if isinstance(s, Prefetch)]
    lines = [s.lines for s in every_statement((spread,)) if isinstance(s, Prefetch)]
    assert lines == [-(-lanes * dtype.bytes // 64)]
    assert {s.buffer for s in fetched(made)} == {"x"}
    assert_keeps(graph, made, *SIZES, {"rows": 2, "n": 600})


def body_of(kernel):
    return on_threads(kernel.launches[0].body)[2]


def test_lines_go_before_strips_that_gcc_unrolls():
    """A block is fetched at once where its strips are of 16 cells: beside a hint gcc makes no vectors of those."""
    text = c_printer.source(schedule(lowered(layer_norm()), Options(lanes=16)))
    assert "for (int64_t r2p = 0; r2p < 32; ++r2p) NOYAU_PREFETCH(&x[(i0 + 1) * n + block * 512 + r2p * 16]);" in text
    text = c_printer.source(schedule(lowered(layer_norm()), Options(lanes=32)))
    assert "        NOYAU_PREFETCH(&x[(i0 + 1) * n + block * 512 + r2 * 32 + 16]);\n" in text


def test_a_fold_without_blocks_fetches_nothing_at_once():
    """Its row may be any long, and nobody would take in so many lines."""
    g = Group()
    x = g.input("x", DType.I32, "rows", "n")
    first = g.expand(g.reduce("sum", x), ("rows", "n"))
    g.reduce("sum", g.map("multiply", g.map("subtract", x, first), x))
    assert fetched(schedule(lowered(g.graph()), Options(lanes=16))) == []
    assert fetched(schedule(lowered(g.graph()), Options(lanes=32))) != []


def test_rows_that_follow_one_another():
    rows = rows_of(scheduled(rms_norm()))
    assert set(rows) == {"x"}
    assert rows["x"].length == Dim.of("n")
    assert rows["x"].start == ((Dim.of("#i0") + 1) * "n",)


def test_rows_that_are_looked_up_are_not_known():
    assert "table" not in rows_of(scheduled(gathered()))


def test_what_a_pass_has_fetched_is_not_fetched_again():
    assert rows_of(scheduled(softmax())) == rows_of(scheduled(layer_norm())) == {}


def test_lines_of_the_rows_that_are_as_long_as_the_loop():
    rows = rows_of(scheduled(rms_norm()))
    assert not rows_of(scheduled(swiglu())), "a row that is passed over but once"
    right, wrong = (Loop("#i1", Dim.of(extent), Axis.LANES, ()) for extent in ("n", "m"))
    (made,) = fetch(rows.values(), right, Dim.of(0), 128)
    assert isinstance(made, Loop)
    assert made.extent == Dim.of(8)
    assert fetch(rows.values(), wrong, Dim.of(0), 128) == ()


def test_threads_and_what_they_run():
    _, loops, body = on_threads(scheduled(softmax()).launches[0].body)
    assert [loop.var for loop in loops] == ["#i0"]
    assert body
    assert on_threads(()) == ((), [], ())


def test_what_takes_longer_than_memory():
    def loop(function):
        g = Group()
        g.map(function, g.input("x", F32, "rows", "n"))
        (made,) = flat(g.graph()).launches[0].body
        return made.body[0]

    assert [name for name in ("negative", "sqrt", "exp", "tanh") if is_costly(loop(name).body)] == ["exp", "tanh"]


def test_rows_that_have_a_stride():
    text = c_printer.source(check(schedule(lower(softmax(), "kernel", {"x": "inner"}), PLAIN)))
    assert "NOYAU_PREFETCH(&x[(i0 + 1) * x_stride0 + block * 512 + r2 * 32 + 16]);" in text
    text = c_printer.source(check(schedule(lower(layer_norm(), "kernel", {"x": "inner"}), PLAIN)))
    assert "NOYAU_PREFETCH(&x[(i0 + 1) * x_stride0 + block * 512 + r2 * 32 + 16]);" in text
    rows = rows_of(schedule(lower(rms_norm(), "kernel", {"x": "inner"}), PLAIN))
    assert (rows["x"].length, rows["x"].start) == (Dim.of("n"), shape_of([Dim.of("#i0") + 1, 0]))
    (made,) = fetch(rows.values(), Loop("#i1", Dim.of("n"), Axis.LANES, ()), Dim.of("#t") * 128, 128)
    at = shape_of([Dim.of("#i0") + 1, Dim.of("#t") * 128 + Dim.of("#i1p") * 16])
    assert made == Loop("#i1p", Dim.of(8), Axis.SERIAL, (Prefetch("x", at),))


def test_rows_whose_cells_lie_apart_are_not_fetched():
    for graph in (softmax(), rms_norm(), layer_norm()):
        made = check(schedule(lower(graph, "kernel", {"x": "strided"})))
        assert fetched(made) == []
