"""What a runtime asks a kernel before it runs: as compiled C, asked through the table of the ABI."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from noyau.codegen.c import printer as c_printer
from noyau.codegen.c.interface import item_bytes
from noyau.errors import InputError
from noyau.ir.dims import Dim, maximum, shape_of
from noyau.ir.loops import Call, Guard, Index, Kernel, Role
from noyau.ir.operators import OPERATORS
from noyau.ir.walk import extent_of
from tests.batching import build_many
from tests.codegen.kernels import GOLDEN, MORE, kernel_of
from tests.nests import kernel, load, store
from tests.nodes import F32

N, M = Dim.of("n"), Dim.of("m")
NAMES = sorted({**GOLDEN, **MORE})
SIZES = ({}, dict.fromkeys("rows n a b c s words".split(), 1), {"rows": 3, "n": 70, "a": 5, "b": 2, "c": 33, "s": 7})


def named(made, name, guards=()):
    return Kernel(name, made.buffers, made.binding, made.launches, guards)


def linear(name, *shapes, guards=()):
    """A kernel of inputs of these shapes that does nothing."""
    inputs = [(f"x{at}", F32, shape) for at, shape in enumerate(shapes)]
    return named(kernel(inputs=inputs, outputs=(("y", F32, [1]),)), name, guards)


def asked(native, function, sizes, number):
    given = (ctypes.c_int64 * max(1, len(sizes)))(*sizes)
    return getattr(native._kernel, function)(given, number)


@pytest.fixture(scope="module")
def natives():
    return dict(zip(NAMES, build_many([kernel_of(name) for name in NAMES]), strict=True))


def holds(condition, sizes):
    """A condition of sizes."""
    match condition:
        case None:
            return True
        case Index(dim):
            return dim.evaluate(sizes)
        case Call(function, operands):
            return OPERATORS[function].evaluate(*(holds(operand, sizes) for operand in operands))


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_tells_what_its_ir_says(natives, name):
    """Counts, dtypes, ranks; and of any sizes: extents, bytes, the shapes of its outputs."""
    made, native = kernel_of(name), natives[name]
    ends = [*made.of(Role.INPUT), *made.of(Role.OUTPUT)]
    assert (native.inputs, native.outputs) == (len(made.of(Role.INPUT)), len(made.of(Role.OUTPUT)))
    assert (native.scratch, native.launches) == (len(made.of(Role.SCRATCH)), len(made.launches))
    assert native.dtypes == tuple(buffer.dtype for buffer in ends)
    assert native.ranks == tuple(len(buffer.shape) for buffer in ends)
    for wanted in SIZES:
        sizes = {binding.size: wanted.get(binding.size, 0) for binding in made.binding}
        given = list(sizes.values())
        for at, launch in enumerate(made.launches):
            asked_for = extent_of(launch).evaluate(sizes) if holds(launch.when, sizes) else 0
            assert asked(native, "extent", given, at) == asked_for
            assert asked(native, "item_bytes", given, at) == item_bytes(made, launch).evaluate(sizes) > 0
        for at, buffer in enumerate(made.of(Role.SCRATCH)):
            cells = np.prod([int(dim.evaluate(sizes)) for dim in buffer.shape])
            assert asked(native, "scratch_bytes", given, at) == cells * buffer.dtype.bytes
        shapes = native._shapes((ctypes.c_int64 * max(1, len(given)))(*given))
        assert shapes == [tuple(int(dim.evaluate(sizes)) for dim in buffer.shape) for buffer in made.of(Role.OUTPUT)]


def test_what_there_is_not_is_nothing(natives):
    """A launch, an output or a scratch buffer beyond the last."""
    native = natives["full_sum"]
    assert [asked(native, function, [5], 9) for function in ("extent", "item_bytes", "scratch_bytes")] == [0, 0, 0]
    dims = (ctypes.c_int64 * 2)(7, 7)
    native._kernel.shape((ctypes.c_int64 * 1)(5), 9, dims)
    assert list(dims) == [7, 7]


CASES = {
    "same": (linear("same", ["n", 4], ["n"]), [(3, 4), (3,)], [((3, 5), (3,), 1), ((3, 4), (2,), 2)]),
    "twice": (linear("twice", [N * 2]), [(6,)], [((5,), 1)]),
    "more": (linear("more", [N + 2]), [(2,)], [((1,), 1)]),
    "mixed": (linear("mixed", ["n"], [M * 3 + "n"]), [(4,), (10,)], [((4,), (9,), 2), ((4,), (1,), 2)]),
    "product": (linear("product", ["n"], ["m"], [N * M]), [(2,), (3,), (6,)], [((2,), (3,), (5,), 3)]),
    "quotient": (linear("quotient", ["n"], [N // 2]), [(5,), (2,)], [((5,), (3,), 2)]),
    "largest": (linear("largest", ["n"], ["m"], [maximum(N, M)]), [(2,), (3,), (3,)], [((2,), (3,), (2,), 3)]),
    "divided": (linear("divided", ["n"], ["m"], [N // M]), [(7,), (2,), (3,)], [((7,), (2,), (4,), 3)]),
    "scalar": (linear("scalar", [], [1]), [(), (1,)], [((), (2,), 2)]),
    "guarded": (
        linear("guarded", ["n"], ["m"], guards=(Guard(M, N, M),)),
        [(2,), (3,)],
        [((4,), (3,), 2)],
    ),
    "always": (
        linear("always", ["n"], ["m"], guards=(Guard(Dim.of(1), N * 2 - 1, M),)),
        [(2,), (3,)],
        [((2,), (2,), 2)],
    ),
}


@pytest.fixture(scope="module")
def bound():
    return dict(zip(CASES, build_many([made for made, _, _ in CASES.values()]), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_shapes_that_fit_are_taken_and_others_refused_by_the_input(bound, name):
    _, right, wrong = CASES[name]
    bound[name](*(np.zeros(shape, np.float32) for shape in right))
    for *shapes, number in wrong:
        with pytest.raises(InputError, match=rf"{name}: the shape of input {number - 1} does not fit"):
            bound[name](*(np.zeros(shape, np.float32) for shape in shapes))


def test_a_guard_holds_where_it_asks_of_no_cells(bound):
    bound["guarded"](np.zeros(4, np.float32), np.zeros(0, np.float32))


def test_a_kernel_without_sizes_or_scratch_compiles_alone():
    made = kernel(store("y", load("x", 0), 0), inputs=(("x", F32, shape_of([1])),), outputs=(("y", F32, [1]),))
    (native,) = build_many([named(made, "alone")])
    (got,) = native(np.float32([3]))
    assert got.tolist() == [3]
    assert "(void)sizes;" in c_printer.source(named(made, "alone"))


def test_a_launch_that_does_not_run_has_no_items():
    text = c_printer.source(kernel_of("log_softmax_kept"))
    short = "(n <= 127) & (32 <= rows)"
    assert f"/* Items: rows where !({short}). */" in text
    assert f"case 0: return (!({short})) ? rows : 0;" in text
    assert f"case 1: return ({short}) ? (rows + 31) / 32 : 0;" in text
