from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import GraphError, InputError
from noyau.ir.dims import Dim, maximum, shape_of
from noyau.ir.loop_interpreter import run
from noyau.ir.loops import (
    Alloc,
    Axis,
    Call,
    CellsToAlignment,
    Const,
    Fold,
    Guard,
    If,
    Index,
    Launch,
    Let,
    Load,
    Prefetch,
    Require,
    Space,
    Store,
    Tile,
    TilePolicy,
    Var,
)
from noyau.ir.sizes import Binding
from tests.nests import COL, COPY, ONE, ONE_CELL, ROW, X8, N, call, kernel, less, load, loop, store
from tests.nodes import BF16, BOOL, F16, F32, I8, I32, I64

# Values and types.


@pytest.mark.parametrize("axis", Axis)
def test_a_map(axis):
    body = loop("#i", "n", Let("a", load("x", ROW)), store("y", call("add", Var("a", F32), ONE), ROW), axis=axis)
    assert run(kernel(body), [X8])[0].tolist() == (X8 + 1).tolist()


@pytest.mark.parametrize(("start", "step", "cells"), [(0, 3, [0, 3, 6]), (2, 1, [2, 3, 4, 5, 6, 7]), (5, 2, [5, 7])])
def test_a_loop_with_steps(start, step, cells):
    zero = loop("#i", "n", store("y", Const(0.0, F32), ROW))
    every = replace(loop("#i", "n", store("y", ONE, ROW)), start=Dim.of(start), step=step)
    assert np.flatnonzero(run(kernel(zero, every), [X8])[0]).tolist() == cells


def test_a_loop_with_steps_has_an_order():
    every = replace(loop("#i", "n", store("y", ONE, ROW), axis=Axis.LANES), step=2)
    with pytest.raises(GraphError, match="the loop over #i has steps, but no order"):
        run(kernel(every), [X8])


@pytest.mark.parametrize("seed", range(4))
def test_vectors_begin_at_multiples_of_their_size_wherever_memory_begins(seed):
    """One seed has all memory begin with a vector; another one each array some cells after one."""
    places = (CellsToAlignment(4, "x", (Dim.of(3),), Dim.of("n")), CellsToAlignment(4, "x", (Dim.of(4),), Dim.of("n")))
    most = CellsToAlignment(4, "x", (Dim.of(1),), Dim.of(0))
    stores = [store("y", Call("cast", (place,), F32), at) for at, place in enumerate((*places, most))]
    rest = loop("#i", Dim.of("n") - 3, store("y", ONE, Dim.of("#i") + 3))
    first, after, none, *_ = run(kernel(*stores, rest), [X8], seed=seed)[0]
    assert (first - after) % 4 == 1
    assert none == 0


def test_integers_wrap_around_in_their_dtype():
    body = loop("#i", "n", store("y", call("multiply", load("x", ROW, dtype=I8), Const(100, I8), dtype=I8), ROW))
    made = kernel(body, inputs=[("x", I8, ["n"])], outputs=[("y", I8, ["n"])])
    assert run(made, [np.int8([1, 2, 3])])[0].tolist() == [100, -56, 44]


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_halves_load_as_float32_and_are_rounded_once(dtype):
    eps = float(ml_dtypes.finfo(dtype.numpy).eps)
    sums = call("subtract", call("add", load("x", ROW), Const(eps / 2, F32)), load("x", ROW))
    body = loop("#i", "n", store("y", sums, ROW), store("z", call("add", load("x", ROW), Const(eps / 2, F32)), ROW))
    made = kernel(body, inputs=[("x", dtype, ["n"])], outputs=[("y", dtype, ["n"]), ("z", dtype, ["n"])])
    y, z = run(made, [np.array([1.0], dtype.numpy)])
    assert y.dtype == z.dtype == dtype.numpy
    assert (float(y[0]), float(z[0])) == (eps / 2, 1.0)


def test_casts():
    body = loop(
        "#i",
        "n",
        store("y", call("cast", load("x", ROW), dtype=I32), ROW),
        store("z", call("cast", load("x", ROW), dtype=BOOL), ROW),
        store("w", call("cast", Index(ROW - 1), dtype=F32), ROW),
    )
    made = kernel(body, outputs=[("y", I32, ["n"]), ("z", BOOL, ["n"]), ("w", F32, ["n"])])
    y, z, w = run(made, [np.float32([1.9, -1.9, 0.0])])
    assert (y.tolist(), z.tolist(), w.tolist()) == ([1, -1, 0], [True, True, False], [-1, 0, 1])


def test_float32_is_computed_in_float32():
    body = loop(
        "#i", "n", store("y", call("subtract", call("add", load("x", ROW), Const(1e8, F32)), Const(1e8, F32)), ROW)
    )
    assert run(kernel(body), [np.float32([1.0])])[0][0] == 0
    assert run(kernel(COPY), [X8])[0].dtype == np.float32


def test_indices_divide_and_take_the_larger():
    index = (COL - 5) // 2 + maximum(COL, 3) * 10 + (COL - 5) % 3 * 100
    made = kernel(loop("#j", 8, store("y", Index(index), COL)), inputs=(), outputs=[("y", I64, [8])])
    assert run(made, [])[0].tolist() == [(j - 5) // 2 + max(j, 3) * 10 + (j - 5) % 3 * 100 for j in range(8)]


# Memory.


def test_a_lone_index_counts_elements():
    body = loop("#i", 6, store("y", load("x", ROW), 1 - ROW // 3, ROW % 3))
    made = kernel(body, inputs=[("x", F32, [2, 3])], outputs=[("y", F32, [2, 3])])
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert run(made, [x])[0].tolist() == x[::-1].tolist()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (loop("#i", N + 1, store("y", load("x", ROW), ROW)), "x[8] is outside [8]"),
        (loop("#i", "n", store("y", load("x", ROW - 1), ROW)), "x[-1] is outside [8]"),
        (loop("#i", "n", store("y", load("x", ROW), ROW + 1)), "y[8] is outside [8]"),
        (loop("#i", "n", store("y", load("x", ROW), ROW - 1)), "y[-1] is outside [8]"),
        (loop("#i", N - 2, store("y", load("x", ROW), ROW + 1)), "y[0] is never written"),
        (loop("#i", "n", store("y", load("y", ROW), ROW)), "y[0] is read before it is set"),
        (
            loop("#i", "n", store("y", call("add", load("x", ROW // (N - 8)), ONE), ROW)),
            "k divides by a size that is 0",
        ),
    ],
)
def test_what_a_kernel_must_not_touch(body, message):
    with pytest.raises(GraphError, match=f"^{message}".replace("[", r"\[").replace("]", r"\]")):
        run(kernel(body), [X8])


def test_an_index_outside_one_axis_is_found_though_inside_the_buffer():
    body = loop("#i", 2, loop("#j", 3, store("y", load("x", ROW, COL + 1), ROW, COL)))
    made = kernel(body, inputs=[("x", F32, [2, 3])], outputs=[("y", F32, [2, 3])])
    with pytest.raises(GraphError, match=r"x\[0, 3\] is outside \[2, 3\]"):
        run(made, [np.zeros((2, 3), np.float32)])


def test_memory_arrives_unset():
    body = loop("#i", "n", Alloc("kept", F32, shape_of([2]), Space.REGISTER), store("y", load("kept", 1), ROW))
    with pytest.raises(GraphError, match=r"kept\[1\] is read before it is set"):
        run(kernel(body), [X8])


def test_memory_of_a_thread_is_each_thread_s_own():
    body = (
        Alloc("kept", F32, shape_of(["n"]), Space.THREAD),
        loop(
            "#i",
            "n",
            If(call("equal", Index(ROW), Index(Dim.of(0)), dtype=BOOL), (store("kept", ONE, 0),)),
            store("y", load("kept", 0), ROW),
            axis=Axis.THREADS,
        ),
    )
    with pytest.raises(GraphError, match=r"kept\[0\] is read before it is set"):
        run(kernel(*body), [X8])


def _with(tile, *body, **ends):
    return replace(kernel(**ends), launches=(Launch(body, None, (tile,)),))


def test_a_tile_has_as_many_cells_as_are_left_at_most():
    """Whoever launches a kernel chooses the sizes of its tiles."""
    tile = Tile("BLOCK", TilePolicy.FIXED, 4)
    at = Dim.of("#t") * tile.size + ROW
    cells = replace(loop("#i", N - Dim.of("#t") * tile.size, store("y", load("x", at), at)), tile=tile)
    made = _with(tile, loop("#t", (N + tile.size - 1) // tile.size, cells, axis=Axis.THREADS))
    for size in (1, 3, 8, 16):
        assert run(made, [X8], sizes={str(tile.size): size})[0].tolist() == X8.tolist()
    total = Fold("sum", (("#r", N),), (), load("x", Dim.of("#r")), F32, tile=tile)
    made = _with(tile, Let("s", total), store("y", Var("s", F32), 0), outputs=ONE_CELL)
    assert run(made, [X8], sizes={str(tile.size): 3})[0].tolist() == [3]
    with pytest.raises(InputError, match=r"the size \$BLOCK does not follow from the inputs"):
        run(made, [X8])


def test_scratch_carries_from_launch_to_launch():
    launches = [
        (loop("#i", "n", store("s", call("negative", load("x", ROW)), ROW), axis=Axis.THREADS),),
        (loop("#i", "n", store("y", load("s", N - 1 - ROW), ROW), axis=Axis.THREADS),),
    ]
    assert run(kernel(launches=launches, scratch=[("s", F32, ["n"])]), [X8])[0].tolist() == (-X8[::-1]).tolist()
    with pytest.raises(GraphError, match=r"s\[\d\] is read before it is set"):
        run(kernel(launches=launches[::-1], scratch=[("s", F32, ["n"])]), [X8])


def test_masked_loads_touch_nothing():
    body = loop("#i", "n", store("y", load("x", ROW - 2, where=less(1, ROW), other=Const(-5.0, F32)), ROW))
    assert run(kernel(body), [X8])[0].tolist() == [-5, -5, *X8[:-2]]


def test_if_and_require():
    body = loop("#i", "n", store("y", ONE, ROW), If(less(5, ROW), (store("y", Const(2.0, F32), ROW),)))
    assert run(kernel(body), [X8])[0].tolist() == [1] * 6 + [2] * 2


def gathered():
    body = loop(
        "#i",
        "m",
        Let("#at", call("cast", load("k", ROW, dtype=I32), dtype=I64)),
        Require(Dim.of("#at"), N),
        store("y", load("x", Dim.of("#at")), ROW),
    )
    return kernel(body, inputs=[("x", F32, ["n"]), ("k", I32, ["m"])], outputs=[("y", F32, ["m"])])


def test_a_value_as_an_index():
    assert run(gathered(), [X8, np.int32([7, 0, 7])])[0].tolist() == [7, 0, 7]
    for bad in (8, -1):
        with pytest.raises(InputError, match=rf"k: index out of bounds: {bad} is not in \[0, 8\)"):
            run(gathered(), [X8, np.int32([0, bad])])


# Folds and merges.


def test_a_fold_over_several_loops_has_flat_positions():
    x = np.array([[1, 5, 2], [5, 0, 1]], np.float32)
    loops = (("#i", Dim.of(2)), ("#j", Dim.of(3)))
    for monoid, want in [("argmax", 1), ("argmin", 4)]:
        fold = Fold(monoid, loops, (Let("a", load("x", ROW, COL)),), Var("a", F32), I64)
        made = kernel(store("y", fold), inputs=[("x", F32, [2, 3])], outputs=[("y", I64, [])])
        assert run(made, [x])[0] == want


def test_a_fold_that_says_its_positions():
    fold = Fold("argmax", (("#i", N),), (), load("x", ROW), I64, at=ROW * 2 + 100)
    made = kernel(store("y", fold), outputs=[("y", I64, [])])
    assert run(made, [X8])[0] == 114


def test_a_fold_of_a_half_is_float32_until_it_is_stored():
    fold = Fold("sum", (("#i", N),), (), load("x", ROW), F32)
    made = kernel(store("y", fold), inputs=[("x", F16, ["n"])], outputs=[("y", F32, [])])
    assert run(made, [np.float16([2048, 1, 1])])[0] == 2050


def test_folds_within_folds_and_of_nothing():
    inner = Fold("max", (("#j", Dim.of(3)),), (Let("a", load("x", ROW, COL)),), Var("a", F32), F32)
    outer = Fold("sum", (("#i", N),), (Let("top", inner),), Var("top", F32), F32)
    made = kernel(store("y", outer), inputs=[("x", F32, ["n", 3])], outputs=[("y", F32, [])])
    x = np.float32([[1, 2, 0], [5, 4, 3]])
    assert run(made, [x])[0] == 7
    assert run(made, [x[:0]])[0] == 0


def test_merged_stores_join_states():
    empty = Store(("best", "where"), (), (Const(-np.inf, F32), Const(2**63 - 1, I64)))
    merge = Store(("best", "where"), (), (load("x", ROW), Index(ROW)), "argmax")
    made = kernel(empty, loop("#i", "n", merge), outputs=[("best", F32, []), ("where", I64, [])])
    assert [array.item() for array in run(made, [np.float32([3, 9, 9, 1])])] == [9, 1]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ([], "k takes 1 inputs, not 0"),
        ([X8.astype(np.float64)], r"x is f32 of rank 1, not float64 of \(8,\)"),
        ([X8.reshape(2, 4)], r"x is f32 of rank 1, not float32 of \(2, 4\)"),
    ],
)
def test_inputs_that_do_not_fit(arrays, message):
    with pytest.raises(InputError, match=message):
        run(kernel(COPY), arrays)


def test_shapes_that_do_not_agree():
    made = kernel(COPY, inputs=[("x", F32, ["n"]), ("w", F32, [N * 2])])
    with pytest.raises(InputError, match=r"w has shape \(8,\), which does not fit where n=8"):
        run(made, [X8, X8])


def test_sizes_that_are_given():
    body = loop("#i", "n", store("y", Index(ROW), ROW))
    made = kernel(body, inputs=(), outputs=[("y", I64, ["n"])])
    assert run(made, [], sizes={"n": 3})[0].tolist() == [0, 1, 2]
    with pytest.raises(InputError, match="k: the size n does not follow from the inputs; give it in `sizes`"):
        run(made, [])


def test_names_of_a_model_never_reach_the_text():
    hostile = "x'); import os; ('"
    body = loop("#i", hostile, store("y", Load(hostile, (ROW,), F32), ROW))
    made = kernel(body, inputs=[(hostile, F32, [hostile])], outputs=[("y", F32, [hostile])])
    assert run(made, [X8])[0].tolist() == X8.tolist()


def test_every_dtype_comes_back_as_it_is():
    for dtype in DType:
        if dtype is not DType.OTHER:
            cells = loop("#i", "n", store("y", load("x", ROW, dtype=dtype.compute), ROW))
            made = kernel(cells, inputs=[("x", dtype, ["n"])], outputs=[("y", dtype, ["n"])])
            x = np.array([0, 1, 1], dtype.numpy)
            got = run(made, [x])[0]
            assert got.dtype == x.dtype
            assert got.tolist() == x.tolist()
            assert run(made, [x[:0]])[0].shape == (0,)


def test_sizes_obey_the_guards():
    """Unless no cell is at stake; what divides by 0 obeys none."""
    n = Dim.of("n")
    made = kernel(loop("#i", "n", store("y", load("x", ROW), ROW)))
    for guard, fine in ((Guard(n, n, n - 1), [0]), (Guard(Dim.of(1), n, Dim.of(2)), [0, 1, 2])):
        for count in range(4):
            one, x = replace(made, guards=(guard,)), np.zeros(count, np.float32)
            if count in fine:
                assert run(one, [x])[0].shape == (count,)
            else:
                with pytest.raises(InputError, match=r"needs n <= "):
                    run(one, [x])
    with pytest.raises(InputError):
        run(replace(made, guards=(Guard(Dim.of(1), Dim.of(8) // n, Dim.of(9)),)), [np.zeros(0, np.float32)])


def test_a_prefetch_does_nothing_wherever_it_points():
    body = loop("#i", "n", Prefetch("x", (ROW + 5,)), store("y", load("x", ROW), ROW), axis=Axis.LANES)
    assert run(kernel(body), [X8])[0].tolist() == X8.tolist()
    with pytest.raises(GraphError, match="nowhere"):
        run(kernel(loop("#i", "n", Prefetch("nowhere", (ROW,)), store("y", load("x", ROW), ROW))), [X8])


def test_strides_are_sizes_too():
    """A kernel may ask for the stride of an input: what lies after its extents."""
    made = kernel(
        store("y", Const(0.0, F32), 0),
        store("z", Index(Dim.of("s") - "t"), 0),
        inputs=[("x", F32, ["n", "m"])],
        outputs=[("y", F32, [1]), ("z", I64, [1])],
    )
    own = tuple(Binding(name, 0, axis, Dim.of(0), 1) for name, axis in (("s", 2), ("t", 3)))
    made = replace(made, binding=(*made.binding, *own))
    x = np.zeros((6, 8), np.float32)
    for array, want in (
        (x, 7),
        (x[::-2], -17),
        (x.T, -7),
        (x[:, ::3], 5),
        (x[:1], -1),
        (np.broadcast_to(x[0], x.shape), -1),
    ):
        assert run(made, [array])[1] == want
    fields = np.zeros(3, [("a", "f4"), ("b", "i1")])["a"][:, None]
    with pytest.raises(InputError, match=r"an array of strides \(5, 0\) in bytes has cells of 4 bytes; copy it first"):
        run(made, [np.broadcast_to(fields, (3, 2))])


def test_a_launch_runs_where_its_condition_holds():
    ones, twos = (loop("#i", "n", store("y", Const(value, F32), ROW)) for value in (1.0, 2.0))
    few = less(N, 4)
    launches = (Launch((ones,), call("logical_not", few, dtype=BOOL)), Launch((twos,), few))
    made = replace(kernel(ones), launches=launches)
    assert [run(made, [X8[:n]])[0].tolist() for n in (3, 4)] == [[2.0] * 3, [1.0] * 4]
    with pytest.raises(GraphError, match="an If needs a bool, not f32"):
        run(replace(made, launches=(Launch((ones,), ONE),)), [X8])
