"""Cells of float16 and bools among floats: widened and narrowed a run at a time, by the processor where it can."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.codegen.c import printer as c_printer
from noyau.compiler.lowering.nest import lower
from noyau.compiler.schedules.cpu.stages import TILE
from noyau.compiler.schedules.cpu.strategy_choice import schedule
from noyau.dtypes import DType
from noyau.ir.loop_verifier import check
from noyau.toolchain.c.compiler import CompilerOptions, compile_library, level
from noyau.toolchain.c.library import Native
from tests.compiler.schedules.groups import assert_keeps, lowered
from tests.jobs.check.groups import F32, Group

LEVELS = [*(each for each in ("x86-64", "x86-64-v3") if level().startswith("x86") and each < level()), level()]
LENGTHS = (0, 1, 7, 8, 9, 15, 17, 31, 33, TILE - 1, TILE, TILE + 1, 3 * TILE + 13)


def doubled(dtype):
    """The double of each cell, in float16."""
    g = Group()
    x = g.input("x", dtype, "n")
    g.map("cast", g.map("multiply", x, g.full(2, x)), dtype=DType.F16)
    return g.graph()


def masked():
    """The double of cells where a mask is true, elsewhere -3, and the sum of each row of them."""
    g = Group()
    x, mask = g.input("x", F32, "rows", "n"), g.input("mask", DType.BOOL, "rows", "n")
    chosen = g.map("where", mask, g.map("multiply", x, g.full(2, x)), g.full(-3, x))
    return g.graph(chosen, g.reduce("sum", chosen))


def rounded():
    """Cells times a number, rounded to float16 on the way to their square."""
    g = Group()
    x = g.input("x", F32, "n")
    near = g.map("cast", g.map("cast", g.map("multiply", x, g.full(0.3, x)), dtype=DType.F16), dtype=F32)
    g.map("multiply", near, near)
    return g.graph()


GRAPHS = {"halves": doubled(DType.F16), "to halves": doubled(F32), "masked": masked(), "rounded": rounded()}


@pytest.fixture(scope="module", params=LEVELS)
def natives(request):
    kernels = {name: check(schedule(lower(graph, name.replace(" ", "_")))) for name, graph in GRAPHS.items()}
    library = compile_library(
        [c_printer.together(list(kernels.values()))], CompilerOptions(export=True, target=request.param)
    )
    return {name: Native(library, f"{kernel.name}_kernel") for name, kernel in kernels.items()}


@pytest.mark.parametrize("name", GRAPHS)
def test_the_loops_of_a_schedule_compute_the_same(name):
    assert_keeps(GRAPHS[name], schedule(lowered(GRAPHS[name])), *({"rows": 2, "n": n} for n in (1, 9, TILE + 3)))


def test_every_half_is_widened_and_narrowed(natives):
    """Denormals, infinities and NaN too; a double is right or infinite."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = halves * np.float16(2)
    (got,) = natives["halves"](halves)
    numbers = ~np.isnan(expected)
    assert np.isnan(got[~numbers]).all()
    assert (got.view(np.uint16) == expected.view(np.uint16))[numbers].all()


@pytest.mark.parametrize("count", LENGTHS)
def test_floats_become_the_nearest_halves(natives, count):
    """Halfway to the even one, for any length of what is left after whole vectors, and nothing behind it is written."""
    bits = np.random.default_rng(count).integers(0x33000000, 0x47800000, count, np.uint32)
    bits[::3] &= np.uint32(0xFFFFF000)  # halfway between two halves, or one
    floats = bits.view(np.float32)
    with np.errstate(over="ignore"):
        expected = (floats * 2).astype(np.float16)
        near = (floats * np.float32(0.3)).astype(np.float16).astype(np.float32)
    room = np.full(count + 40, 7, np.float16)
    natives["to halves"](floats, out=[room[:count]])
    assert room.tobytes() == np.concatenate([expected, np.full(40, 7, np.float16)]).tobytes()
    (squares,) = natives["rounded"](floats)
    assert squares.tobytes() == (near * near).tobytes()


@pytest.mark.parametrize("count", LENGTHS)
def test_bools_choose_among_floats(natives, count):
    rng = np.random.default_rng(count)
    cells, mask = rng.integers(-9, 9, (3, count)).astype(np.float32), rng.random((3, count)) < 0.5
    native = natives["masked"]
    chosen, sums = native(cells, mask) if native.dtypes[0] is F32 else native(mask, cells)
    expected = np.where(mask, 2 * cells, np.float32(-3))
    assert chosen.tobytes() == expected.tobytes()
    assert sums.reshape(3).tolist() == expected.sum(1).tolist()


def test_a_run_is_one_call():
    texts = {name: c_printer.source(schedule(lowered(graph))) for name, graph in GRAPHS.items()}
    for name, functions in {
        "halves": ("widen_f16", "narrow_f16"),
        "to halves": ("narrow_f16",),
        "masked": ("widen_bool",),
        "rounded": ("round_f16",),
    }.items():
        assert all(f"    noyau_{function}(" in texts[name] for function in functions), name
