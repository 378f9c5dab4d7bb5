"""The intrinsics of texts: what a tile writes around the caches, wherever it begins; cells that are nobody else's."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.codegen.numba import printer
from noyau.codegen.numba import printer as numba_printer
from noyau.compiler.lowering.nest import lower
from noyau.compiler.schedules.cpu.strategy_choice import schedule
from noyau.sanitizer.numba.kernel import plainly
from noyau.toolchain.numba.kernel import NumbaKernel, load
from tests.codegen.numba_kernels import compiled, kernel_of
from tests.compiler.schedules.groups import lowered, transposed
from tests.jobs.check.groups import Group
from tests.nodes import F16, F32, F64

LARGE = 1 << 20  # cells of f32: what is written around the caches


@pytest.fixture(scope="module")
def words():
    """The names of a text that writes around the caches."""
    return load(numba_printer.together([kernel_of("padded")]))[1]


@pytest.mark.parametrize("dtype", ["u1", "f2", "f4", "f8"])
def test_a_tile_goes_to_its_place_and_nowhere_else(words, dtype):
    import numba as compiler

    around, dtype = words["noyau_write_around"], np.dtype(dtype.replace("f2", "u2"))

    @compiler.njit
    def write(cells, at, tile, first, count):
        around(cells, at, tile, first, count)

    tile = np.arange(1, 300).astype(dtype)
    for at, first, count in ((0, 0, 256), (1, 3, 256), (7, 0, 255), (3, 1, 40), (16, 8, 16), (5, 0, 0), (0, 0, 1)):
        cells, wanted = np.zeros(600, dtype), np.zeros(600, dtype)
        wanted[at : at + count] = tile[first : first + count]
        write(cells, at, tile, first, count)
        assert cells.tobytes() == wanted.tobytes(), (at, count)


def test_tiles_are_turned_as_python_says_it():
    graph = transposed(1, 0, shape=("a", "b"))
    made = schedule(lowered(graph), numba_printer.SCHEDULE)
    text = numba_printer.together([made])
    assert "    noyau_turn(x_turned, i1u * 16, 64, x, " in text
    x = np.random.default_rng(0).standard_normal((85, 50), np.float32)
    (got,) = NumbaKernel(text, made)(x)
    plain, out = plainly(text), np.zeros((50, 85), np.float32)
    for number, items in enumerate((2, 6, 1)):
        plain[f"kernel_{number}"].py_func(x, out, 85, 50, 0, items)
    assert (got == -x.T).all()
    assert out.tobytes() == got.tobytes()


def test_cells_of_other_widths_are_not_turned():
    made = schedule(lowered(transposed(1, 0, shape=("a", "b"), dtype=F64)), numba_printer.SCHEDULE)
    assert "noyau_turn" not in numba_printer.together([made])


@pytest.mark.parametrize("dtype", [F16, F32, F64])
def test_large_outputs_are_right_whole_and_in_pieces(dtype):
    g = Group()
    x = g.input("x", dtype, "n")
    g.map("add", x, x, dtype=dtype)
    made = schedule(lower(g.graph(), "twice"), numba_printer.SCHEDULE)
    kernel = NumbaKernel(numba_printer.together([made]), made)
    x = np.arange(LARGE * 2 + 77).astype(np.uint8).astype(dtype.numpy)
    for got in (kernel(x), kernel(x, threads=2), kernel(x, pieces=7)):
        assert (got[0] == x + x).all()


def test_they_are_there_where_they_are_used():
    assert printer.words(set()) == ""
    assert "def noyau_cells" in printer.words({"noyau_cells"})
    assert "_place" not in printer.words({"noyau_cells"})
    both = printer.words({"noyau_fetch", "noyau_write_around"})
    assert both.count("def _place(") == 1
    assert "def noyau_written_around" in both
    assert "def noyau_flat" in printer.words({"noyau_flat"})


def test_python_stands_for_them_where_a_text_is_watched():
    scope = plainly(numba_printer.together([kernel_of("padded")]))
    out = np.zeros((2, 5), np.float32)
    scope["noyau_write_around"](out, 3, np.arange(9, dtype=np.float32), 1, 4)
    assert out.reshape(-1).tolist() == [0, 0, 0, 1, 2, 3, 4, 0, 0, 0]
    assert scope["noyau_cells"](4, np.float32).shape == (4,)
    fetching = plainly(numba_printer.together([kernel_of("residual_rms_norm")]))
    assert fetching["noyau_fetch"](out, 99, 1) is scope["noyau_written_around"]() is None
    assert plainly(numba_printer.together([kernel_of("gathered")]))["noyau_flat"](out).shape == (10,)


def test_nothing_is_asked_before_a_loop(empty_cache):
    """Of the arrays of a launch none is another's memory, and LLVM is told so. (Numba does not say of what it has
    loaded.)"""
    made = NumbaKernel(numba_printer.together([kernel_of("rotary")]), kernel_of("rotary"))
    (launch,) = made._launches
    (text,) = launch.inspect_llvm().values()
    head = next(line for line in text.splitlines() if line.startswith("define") and "rotary_0" in line)
    assert head.count(" noalias ") >= 4 + 2


def test_cells_are_not_read_from_the_heap():
    text = numba_printer.together([kernel_of("log_softmax_streamed")])
    assert "np.empty(" not in text
    assert compiled("log_softmax_streamed")(np.ones((2, 3), np.float32))[0].shape == (2, 3)
