"""Launches of language numba: loops of every kind, statements, memory; what is refused, and in which words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from noyau.codegen.numba import printer as numba_printer
from noyau.compiler.passes.normal_form import normalise
from noyau.errors import InputError
from noyau.ir.dims import Dim, product
from noyau.ir.loops import Alloc, Axis, Const, If, Index, Let, MergeLanes, Prefetch, Require, Role, Space, Store, Var
from tests.codegen.numba_kernels import build, of
from tests.compiler.autodiff.numeric import traced
from tests.nests import COPY, ONE, ROW, X8, call, kernel, less, load, loop, store
from tests.nodes import F32, F64, I64

THREADS, LANES = Axis.THREADS, Axis.LANES
ONE_OUT = (("y", F32, [1]),)


def body_of(*statements, **ends):
    """The text of a kernel's only launch."""
    text = numba_printer.together([kernel(*statements, **ends)])
    return text[text.index("def k_0(") : text.index("@numba.njit(parallel")]


def register(name, cells=1, dtype=F32, space=Space.REGISTER):
    return Alloc(name, dtype, (Dim.of(cells),), space)


@pytest.mark.parametrize("axis", [Axis.SERIAL, LANES, THREADS])
def test_a_loop_of_every_kind(axis):
    made = of(kernel(loop("#i", "n", store("y", call("add", load("x", ROW), ONE), ROW), axis=axis)))
    for count in (0, 1, 33):
        x = np.arange(count, dtype=np.float32)
        assert made.call_guarded(x)[0].tolist() == (x + 1).tolist()


def test_loops_on_threads_are_counted_as_one():
    """Three of them, in pieces that begin anywhere and run in any order, with a loop of no rounds among them or not."""
    at = (Dim.of("#a") * "m" + Dim.of("#b")) * 3 + Dim.of("#c")
    nest = loop("#a", "n", loop("#b", "m", loop("#c", 3, store("y", Index(at), at), axis=THREADS), axis=THREADS))
    nest = loop("#a", "n", *nest.body, axis=THREADS)
    made = of(
        kernel(nest, inputs=(("x", F32, ["n"]), ("z", F32, ["m"])), outputs=(("y", I64, [product(["n", "m", 3])]),))
    )
    for n, m in ((4, 5), (1, 1), (0, 3), (3, 0)):
        for pieces in (1, 5, 100):
            arrays = np.zeros(n, np.float32), np.zeros(m, np.float32)
            (got,) = made.call_guarded(*arrays, pieces=pieces, order=lambda count: range(count)[::-1])
            assert got.tolist() == list(range(n * m * 3))


def test_what_stands_before_the_loops_on_threads_is_there_in_each_piece():
    inside = loop("#i", "n", store("y", call("add", load("x", ROW), Var("top", F32)), ROW), axis=THREADS)
    made = of(kernel(Let("top", load("x", 0)), inside))
    assert made.call_guarded(X8 + 1, pieces=4)[0].tolist() == (X8 + 2).tolist()


def test_conditions_and_memory():
    """An If, its opposite as an else, memory of several cells that is taken once, and of one, which is a variable."""
    late = less(2, ROW)
    body = (
        register("seen"),
        store("seen", Const(0.0, F32), 0),
        register("pair", 2),
        store("pair", load("x", ROW), 1),
        If(late, (store("seen", load("pair", 1), 0),)),
        If(call("logical_not", late), (store("seen", ONE, 0),)),
        store("y", load("seen", 0), ROW),
    )
    text = body_of(loop("#i", "n", *body, axis=THREADS))
    assert "    pair = noyau_cells(2, f32)\n    for i in range(begin, end):\n" in text
    assert "        else:\n            seen = f32(1.0)\n" in text
    made = of(kernel(loop("#i", "n", *body, axis=THREADS)))
    assert made.call_guarded(X8)[0].tolist() == [1, 1, 1, 3, 4, 5, 6, 7]


def test_what_is_required_ends_the_kernel():
    at = Let("#at", load("k", ROW, dtype=I64))
    inside = (at, Require(Dim.of("#at"), Dim.of("m")), store("y", load("x", Dim.of("#at")), ROW))
    ends = {"inputs": (("x", F32, ["m"]), ("k", I64, ["n"])), "outputs": (("y", F32, ["n"]),)}
    made = of(kernel(loop("#i", "n", *inside, axis=THREADS), **ends))
    assert made.call_guarded(X8, np.array([7, 0]))[0].tolist() == [7, 0]
    for wrong in (8, -1, 2**62):
        with pytest.raises(InputError, match="k: an index is outside the axis that it looks into"):
            made(X8, np.array([0, wrong]))


def test_a_hint_is_a_call_where_the_array_is_packed():
    body = loop("#i", "n", Prefetch("x", (ROW + 8,)), store("y", load("x", ROW), ROW))
    assert body_of(body).replace("        noyau_fetch(x, i + 8, 1)\n", "") == body_of(COPY)
    assert of(kernel(body)).call_guarded(X8)[0].tolist() == X8.tolist()
    (x, *others), made = kernel(body).buffers, kernel(body)
    strided = replace(made, buffers=(replace(x, strides=(Dim.of("step"),)), *others))
    assert "noyau_fetch" not in numba_printer.together([strided])


@pytest.mark.parametrize(("lanes", "wanted"), [(4, "s[0] += s[1]"), (16, "noyau_merge_add_f32(s, 16)")])
def test_many_lanes_are_merged_in_one_word(lanes, wanted):
    fill = loop("#i", lanes, store("s", load("x", ROW), ROW))
    merge = MergeLanes("sum", ("s",), (F32,), lanes, "#lane")
    made = (register("s", lanes), fill, merge, store("y", load("s", 0), 0))
    assert wanted in body_of(*made, outputs=ONE_OUT)
    x = np.arange(lanes, dtype=np.float32)
    assert of(kernel(*made, outputs=ONE_OUT)).call_guarded(x)[0].tolist() == [x.sum()]


def test_lanes_without_a_word_are_merged_in_a_loop_over_halves():
    """Each loop costs Numba time to compile."""
    names, dtypes = ("best", "at"), (F32, I64)
    merge = MergeLanes("argmax", names, dtypes, 8, "#lane")
    fill = loop("#i", 8, store("best", load("x", ROW), ROW), store("at", Index(ROW), ROW))
    memory = [register(name, 8, dtype) for name, dtype in zip(names, dtypes, strict=True)]
    made = (*memory, fill, merge, store("y", load("at", 0, dtype=I64), 0))
    ends = {"outputs": (("y", I64, [1]),)}
    assert "while half > 0:" in body_of(*made, **ends)
    x = np.float32([1, 5, 2, 7, 7, 0, 3, 4])
    assert of(kernel(*made, **ends)).call_guarded(x)[0].tolist() == [3]


def test_variables_of_two_types_have_two_names():
    """A Python function has one scope, and Numba would make one type of both."""
    more, wide = call("add", load("x", ROW), ONE), call("cast", load("x", ROW), dtype=F64)
    narrow = call("cast", Var("w", F64))
    first = loop("#i", "n", Let("v", more, ("v", ())), *[store("y", Var("v", F32), ROW)] * 2)
    second = loop("#i", "n", Let("w", wide, ("v", ())), *[store("y", narrow, ROW)] * 2)
    text = body_of(first, second, first)
    assert text.count("        v = x[i] + f32(1.0)\n") == 2
    assert text.count("        v_2 = f64(x[i])\n") == 1


def test_states_of_several_values_change_together():
    swap = Store(("a", "b"), (Dim.of(0),), (load("b", 0), load("a", 0)))
    begin = Store(("a", "b"), (Dim.of(0),), (load("x", 0), load("x", 1)))
    made = kernel(register("a"), register("b"), begin, swap, store("y", load("a", 0), 0), outputs=ONE_OUT)
    assert of(made).call_guarded(X8)[0].tolist() == [1]


def test_a_launch_rounds_products_as_that_does_which_takes_their_maximum_off():
    """Over all of an array these are two: the greatest cell less the maximum is 0, not an ulp of something huge."""

    def less_maximum(x, y, z):
        v = x * y + z
        return v - v.max()

    shape = (33, 50)
    made = build(normalise(traced(less_maximum, shape, shape, shape, dtype=F32)), "less_maximum")
    assert len(made.kernel.launches) > 1
    rng = np.random.default_rng(0)
    for scale in np.geomspace(1e9, 1e12, 20, dtype=np.float32):
        given = {name: rng.standard_normal(shape).astype(np.float32) for name in "xyz"}
        given |= {name: given[name] * scale for name in "xz"}
        (got,) = made(*(given[buffer.name] for buffer in made.kernel.of(Role.INPUT)))
        assert got.max() == 0
