from __future__ import annotations

import numpy as np
import pytest

from noyau.codegen.c import printer as c_printer
from noyau.compiler.schedules.cpu.memory_hints import TILE, write_nontemporal
from noyau.compiler.schedules.cpu.strategy_choice import Options, schedule
from noyau.compiler.schedules.primitives import minimum
from noyau.dtypes import DType
from noyau.ir.dims import Dim
from noyau.ir.loop_verifier import check
from noyau.ir.loops import (
    Alloc,
    Axis,
    Buffer,
    If,
    Index,
    Kernel,
    Launch,
    Let,
    Load,
    Loop,
    Prefetch,
    Role,
    Store,
    StreamStore,
)
from noyau.ir.walk import every_statement
from noyau.toolchain.c.compiler import compile_library
from noyau.toolchain.c.library import Native
from tests.compiler.schedules.groups import (
    assert_keeps,
    in_order,
    inputs_of,
    loops,
    lowered,
    padded,
    residual_rms_norm,
    rotary,
    transposed,
)
from tests.jobs.check.groups import F32, Group, layer_norm, rms_norm, softmax, swiglu
from tests.judged import Judge

SIZES = [{"rows": 3, "n": n, "b": 2, "s": 2} for n in (5, 0, 1, TILE, TILE + 7, 2 * TILE - 1)]


def added(dtype=F32, columns="n"):
    g = Group()
    x, y = (g.input(name, dtype, "rows", columns) for name in "xy")
    g.map("add", x, y)
    return g.graph()


GRAPHS = {
    "added": added(),
    "added of a known length": added(columns=2 * TILE + 1),
    "added f16": added(DType.F16),
    "added i8": added(DType.I8),
    "norm": rms_norm(),
    "norm bf16": rms_norm(dtype=DType.BF16),
    "two outputs": residual_rms_norm(),
    "softmax": softmax(),
    "rotary": rotary(half=16),
    "padded": padded(),
}


def around(kernel):
    """The stores that go around the caches."""
    return [s for s in statements(kernel) if isinstance(s, StreamStore)]


def statements(kernel):
    return [s for launch in kernel.launches for s in every_statement(launch.body)]


@pytest.mark.parametrize(
    ("name", "least_bytes"), [*((name, 4096) for name in GRAPHS), ("added", 1), ("norm", 1), ("softmax", 1 << 22)]
)
def test_the_same_cells_on_either_side_of_the_size(name, least_bytes):
    made = schedule(lowered(GRAPHS[name]), Options(around_bytes=least_bytes))
    assert around(made)
    assert_keeps(GRAPHS[name], made, *SIZES)


@pytest.mark.parametrize("shift", [0, 1, 16])
@pytest.mark.parametrize("name", GRAPHS)
def test_in_c_wherever_the_output_begins(name, shift):
    """Rows of odd lengths begin at every place of a line; whatever the alignment, every cell is there."""
    graph = GRAPHS[name]
    made = schedule(lowered(graph), Options(around_bytes=1))
    native = Native(compile_library([c_printer.source(made)]), "kernel_kernel")
    for sizes in SIZES:
        inputs = inputs_of(graph, sizes)
        judge = Judge(graph, inputs)
        given = in_order(made, inputs)
        out = [shifted(array, shift) for array in native(*given)]
        native(*given, out=out)
        wrong = [judge.wrong(name, array) for name, array in zip(graph.outputs, out, strict=True)]
        assert wrong == [None] * len(out), sizes
        native.call_guarded(*given, pieces=3)


def shifted(array, cells):
    """Memory of the same shape that begins so many cells after a line of a cache, poisoned."""
    room = np.full(array.size + cells + 64, 7, array.dtype)
    start = (-room.ctypes.data % 64) // array.itemsize + cells
    return room[start : start + array.size].reshape(array.shape)


def test_a_size_that_is_not_known_is_looked_at_as_it_runs():
    made = check(schedule(lowered(added()), Options(around_bytes=4096, lines=False)))
    assert [type(s) for s in statements(made) if isinstance(s, If)] == [If, If]
    text = c_printer.source(made)
    assert "if (4096LL <= (n * rows * 4)) {" in text
    assert "} else {" in text


def test_a_size_that_is_known_needs_no_question():
    g = Group()
    x = g.input("x", F32, 64, 2048)
    g.map("negative", x)
    options = (Options(around_bytes=size, lines=False) for size in (64 * 2048 * 4, 1 << 22))
    large, small = (schedule(lowered(g.graph()), each) for each in options)
    assert around(large)
    assert not around(small)
    assert not any(isinstance(s, If) for kernel in (large, small) for s in statements(kernel))


def test_never():
    made = schedule(lowered(added()), Options(around_bytes=0))
    assert not around(made)
    assert "noyau_write_around" not in c_printer.source(made)


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(swiglu(), id="what computes more than it writes"),
        pytest.param(transposed(1, 0, shape=("a", "b")), id="tiles of a transpose"),
        pytest.param(rotary(half=4), id="runs shorter than a line"),
    ],
)
def test_what_does_not_pay(graph):
    assert not around(schedule(lowered(graph), Options(around_bytes=1)))


def test_a_flat_loop_on_threads_is_cut_in_tiles():
    made = check(schedule(lowered(added()), Options(around_bytes=1)))
    assert loops(made, Axis.THREADS) == ["#i1w"]
    assert loops(made, Axis.LANES)[0] == "#i1"
    assert around(made)


@pytest.mark.parametrize(("sizes", "goes_around"), [((TILE, TILE), True), ((2 * TILE, TILE), False)])
def test_a_length_whose_name_is_another_s_too_is_not_known(sizes, goes_around):
    """Two loops in scopes of their own, each over a length of this name: no stage may be shorter than its loop."""

    def piece(var, size):
        length, place = minimum(Dim.of(size), Dim.of("n") - Dim.of(var) * size), Dim.of(var) * size + Dim.of("#i")
        copy = Store(("y",), (place,), (Load("x", (place,), F32),))
        lanes = Loop("#i", Dim.of("#length"), Axis.LANES, (copy,))
        rounds = (Dim.of("n") + (size - 1)) // size
        return Loop(var, rounds, Axis.SERIAL, (Let("#length", Index(length)), lanes))

    buffers = tuple(
        Buffer(*each) for each in (("x", F32, (Dim.of("n"),), Role.INPUT), ("y", F32, (Dim.of("n"),), Role.OUTPUT))
    )
    pieces = tuple(piece(var, size) for var, size in zip(("#a", "#b"), sizes, strict=True))
    made = write_nontemporal(Kernel("twice", buffers, (), (Launch(pieces),)), 1)
    assert bool(around(made)) == goes_around


def test_a_tile_for_each_output():
    made = schedule(lowered(residual_rms_norm()), Options(around_bytes=1))
    tiles = [s.name for s in statements(made) if isinstance(s, Alloc) and s.name.endswith(".tile")]
    assert len(tiles) == len(set(tiles)) == 2
    assert c_printer.source(made).count("noyau_write_around(&") == 2


def test_other_threads_are_told_after_the_last_store():
    text = c_printer.source(schedule(lowered(added()), Options(around_bytes=1)))
    assert text.index("noyau_write_around(&") < text.index("    noyau_written_around();\n    return NOYAU_OK;")


def test_scratch_is_read_again_soon():
    """What one launch leaves for the next stays in the caches."""
    g = Group()
    g.reduce("sum", g.input("x", F32, "rows", "n"))
    made = schedule(lowered(g.graph()), Options(around_bytes=1))
    assert all(s.buffers[0] in {b.name for b in made.buffers if b.role.name == "OUTPUT"} for s in around(made))


def fetched_while_writing(graph):
    made = schedule(lowered(graph), Options(around_bytes=1))
    writing = tuple(s for s in statements(made) if isinstance(s, If))
    return {s.buffer for s in every_statement(writing) if isinstance(s, Prefetch)}


def test_the_next_row_is_fetched_while_this_one_is_written():
    """Unless a fold has fetched it."""
    assert fetched_while_writing(rms_norm()) == {"x"}
    assert fetched_while_writing(layer_norm()) == set()
