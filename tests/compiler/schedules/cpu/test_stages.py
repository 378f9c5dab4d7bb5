from __future__ import annotations

import numpy as np
import pytest

from noyau.codegen.c import printer as c_printer
from noyau.compiler.schedules.cpu.stages import TILE, in_stages, stages_of
from noyau.compiler.schedules.cpu.strategy_choice import Options, schedule
from noyau.dtypes import DType
from noyau.ir.dims import Dim, indices
from noyau.ir.graph import Scan, View
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Alloc, Loop
from noyau.ir.walk import every_statement
from noyau.toolchain.c.compiler import compile_library
from noyau.toolchain.c.library import Native
from tests.compiler.schedules.groups import assert_keeps, gathered, in_order, inputs_of, loops, lowered
from tests.jobs.check.groups import F32, Group, swiglu
from tests.judged import Judge

SIZES = [{"rows": 2, "n": n, "words": 4, "b": 2, "s": 2} for n in (0, 1, TILE, TILE + 3, 2 * TILE + 5)]


def bias_gelu(dtype=F32, columns="n"):
    g = Group()
    x, bias = g.input("x", dtype, "rows", columns), g.input("bias", dtype, columns)
    moved = g.map("add", x, g.expand(bias, ("rows", columns)))
    cube = g.map("multiply", moved, g.map("multiply", moved, moved))
    inner = g.map("add", moved, g.map("multiply", cube, g.full(0.044715, moved)))
    curve = g.map("tanh", g.map("multiply", inner, g.full(0.7978845608, moved)))
    half = g.map("multiply", moved, g.full(0.5, moved))
    g.map("multiply", half, g.map("add", curve, g.full(1, moved)))
    return g.graph()


def test_what_two_stores_write_side_by_side_is_no_stage():
    """The halves of an enlarged row go to memory in one vector."""
    g = Group()
    b, i = indices(2)
    x = g.input("x", F32, "rows", "n")
    wide = g.add(View((b, i // 2)), [g.map("tanh", x)], F32, ("rows", Dim.of("n") * 2))
    g.map("exp", wide)
    made = schedule(lowered(g.graph()))
    assert not any(isinstance(s, Alloc) and s.name.endswith(".stage") for s in every_statement(made.launches[0].body))
    assert_keeps(g.graph(), made, {"rows": 2, "n": 70})


def two_dear():
    """exp(x) sin(y), both of which are outputs too."""
    g = Group()
    x, y = (g.input(name, F32, "rows", "n") for name in "xy")
    e, s = g.map("exp", x), g.map("sin", y)
    return g.graph(e, s, g.map("multiply", e, s))


GRAPHS = {
    "bias and gelu": bias_gelu(),
    "of a known length": bias_gelu(columns=3 * TILE + 1),
    "f16": bias_gelu(DType.F16),
    "f64": bias_gelu(DType.F64),
    "two dear functions": two_dear(),
}


def memory(kernel):
    return [s.name for each in kernel.launches for s in every_statement(each.body) if isinstance(s, Alloc)]


def staged(graph):
    """Whether a schedule of a graph has loops over tiles that go through stages."""
    return any(name.endswith("g") for name in loops(check(schedule(lowered(graph)))))


@pytest.mark.parametrize("name", GRAPHS)
def test_stages_compute_what_cells_do(name):
    assert staged(GRAPHS[name])
    assert_keeps(GRAPHS[name], schedule(lowered(GRAPHS[name])), *SIZES)


def test_a_tile_goes_through_one_stage_after_the_other_and_keeps_only_what_is_computed():
    made = schedule(lowered(bias_gelu()), Options(stages=True, short=False, around_bytes=0))
    (tiles,) = [s for s in every_statement(made.launches[0].body) if isinstance(s, Loop) and s.var.endswith("g")]
    assert [type(s).__name__ for s in tiles.body] == ["Let", "Alloc", "Alloc", "Loop", "Loop"]
    assert len([name for name in memory(made) if name.endswith(".stage")]) == 2


def test_a_dear_function_at_once_and_one_alone_are_no_stages():
    assert not staged(swiglu())
    assert staged(bias_gelu())
    assert not stages_of((), "i", set(), deep=True)


def test_short_loops_and_cells_of_bfloat16_stay_as_they_are():
    assert not staged(bias_gelu(columns=2 * TILE - 1))
    assert not staged(bias_gelu(DType.BF16))


@pytest.mark.parametrize("reverse", [False, True])
def test_what_a_stage_stores_in_is_not_loaded_again_after_it(reverse):
    """The sum of the rows before, which each row is added to, is narrowed twice."""
    g = Group()
    wide = g.map("cast", g.input("x", DType.F16, "rows", "n"), dtype=F32)
    before = g.add(Scan("sum", 0, True, reverse), [wide], F32, ("rows", "n"))
    halves = [g.map("cast", g.map("multiply", before, g.full(by, before)), dtype=DType.F16) for by in (0.5, 3)]
    graph = g.graph(*halves, g.map("subtract", before, wide))
    kernel = schedule(lowered(graph))
    assert any(isinstance(s, Alloc) and s.name.endswith(".stage") for s in every_statement(kernel.launches[0].body))
    assert_keeps(graph, kernel, *({"rows": 3, "n": n} for n in (1, 9, TILE + 3)))


def test_what_is_looked_up_stays_as_it_is():
    kernel = schedule(lowered(gathered()), Options())
    assert in_stages(kernel) == kernel


def test_stages_are_a_wish():
    assert not any(name.endswith("g") for name in loops(schedule(lowered(bias_gelu()), Options())))


def test_the_text_computes_the_same(tmp_path):
    graph = bias_gelu()
    kernel = schedule(lowered(graph))
    native = Native(compile_library([c_printer.source(kernel)]), "kernel_kernel")
    for columns in (1, TILE, 5 * TILE + 3):
        inputs = inputs_of(graph, {"rows": 3, "n": columns})
        inputs["x"] = np.where(np.arange(columns) % 7 == 3, np.float32(-np.inf), 8 * inputs["x"])
        with np.errstate(invalid="ignore"):
            judge = Judge(graph, inputs)
        (got,) = native(*in_order(kernel, inputs))
        assert judge.wrong(graph.outputs[0], got) is None


@pytest.mark.parametrize("dtype", [F32, DType.F64])
@pytest.mark.parametrize("function", ["sin", "cos", "tan"])
def test_a_tile_of_near_angles_calls_no_library_and_one_with_a_far_angle_is_as_right(function, dtype):
    g = Group()
    g.map(function, g.input("x", dtype, "n"))
    made = schedule(lowered(g.graph()))
    assert any(name.endswith(".far") for name in memory(check(made)))
    assert_keeps(g.graph(), made, {"n": 2 * TILE + 5})
    x = np.linspace(-900, 900, 5 * TILE + 3).astype(dtype.numpy)
    far = x.copy()
    far[TILE : 3 * TILE : TILE] = 1e22, np.inf
    native = Native(compile_library([c_printer.source(made)]), "kernel_kernel")
    with np.errstate(invalid="ignore"):
        truth = [getattr(np, function)(each.astype(np.longdouble)) for each in (x, far)]
    near_result, far_result = (native(each)[0] for each in (x, far))
    np.testing.assert_allclose(near_result, truth[0].astype(dtype.numpy), rtol=8 * np.finfo(dtype.numpy).eps)
    np.testing.assert_allclose(far_result, truth[1].astype(dtype.numpy), rtol=8 * np.finfo(dtype.numpy).eps)
    same = x == far
    assert np.array_equal(near_result[same], far_result[same])  # whatever else is in the tile


def test_a_sum_over_a_tile_with_a_far_angle_has_each_cell_once():
    """The lanes of a row of float16 go in stages too, and add to what they store."""
    g = Group()
    angles = g.map("cast", g.input("x", DType.F16, "rows", "n"), dtype=F32)
    made = schedule(lowered(g.graph(g.reduce("sum", g.map("sin", angles)))))
    assert any(name.endswith(".far") for name in memory(check(made)))
    native = Native(compile_library([c_printer.source(made)]), "kernel_kernel")
    for rows, cells in ((2, 10), (2, 700), (40, 10)):
        x = np.full((rows, cells), 0.5, np.float16)
        x[:, ::16] = 20000
        np.testing.assert_allclose(native(x)[0], np.sin(x.astype(np.float64)).sum(-1, keepdims=True), rtol=1e-5)
