from __future__ import annotations

from dataclasses import replace

import pytest

from noyau.errors import GraphError
from noyau.ir.dims import Dim, shape_of
from noyau.ir.loop_verifier import check
from noyau.ir.loops import (
    Alloc,
    Axis,
    Const,
    Fold,
    If,
    Kernel,
    Launch,
    Let,
    Loop,
    Role,
    Space,
    Store,
    Tile,
    TilePolicy,
    Var,
)
from noyau.ir.sizes import Binding
from tests.nests import COL, COPY, ONE, ROW, N, call, kernel, less, load, loop, store
from tests.nodes import F32, F64, I32, I64

ROWS = loop("#i", "n", store("y", load("x", ROW), ROW), axis=Axis.THREADS)
STATES = tuple(Alloc(name, dtype, shape_of([1]), Space.REGISTER) for name, dtype in (("best", F32), ("at", I64)))


def test_a_kernel_that_is_well_formed_is_given_back():
    for made in (kernel(COPY), kernel(ROWS), kernel(Let("a", load("x", 0)), loop("#j", 1, ROWS, axis=Axis.THREADS))):
        assert check(made) is made


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ((store("y", Var("a", F32), 0),), "no Let here binds a as f32"),
        ((store("x", ONE, 0),), "a Store into the input x"),
        ((loop("#i", "n", ROWS),), "the loop over #i on threads is not outermost"),
        ((loop("#j", "n", loop("#i", "n", ROWS.body[0], axis=Axis.THREADS)),), "the loop over #i on threads is not"),
        ((ROWS, store("y", ONE, 0)), "the loop over #i on threads is not outermost, at the end of its block"),
        ((If(less(0, N), (ROWS,)),), "the loop over #i on threads is not outermost"),
        (
            (loop("#j", "n", Loop("#i", COL + 1, Axis.THREADS, ROWS.body), axis=Axis.THREADS),),
            "how often #i runs on threads depends on another loop",
        ),
        ((Let("a", ONE), Let("a", ONE), COPY), "a is bound where it has a meaning already"),
        ((Let("x", ONE), COPY), "x is bound where it has a meaning already"),
        ((loop("#i", "n", loop("#i", "n", store("y", ONE, ROW))),), "#i is bound where it has a meaning already"),
        ((loop("#i", "n", Let("a", Fold("sum", (("#i", N),), (), ONE, F32)), COPY.body[0]),), "#i is bound where"),
        ((Let("a", Fold("sum", (("#r", N),), (Let("a", ONE), Let("a", ONE)), ONE, F32)), COPY), "a is bound where"),
        ((*STATES, Store(("best", "at"), (Dim.of(0),), (ONE, Const(1, I64)), "argmax"), COPY), None),
        ((*STATES, Store(("at", "best"), (Dim.of(0),), (Const(1, I64), ONE), "argmax"), COPY), "i64, f32 is no state"),
        ((store("y", ONE, 0, merge="any"),), "f32 is no state of any"),
        ((Let("a", load("x", 0)),), "nothing is stored in the output y"),
    ],
)
def test_kernels_that_break_the_rules(body, message):
    made = kernel(*body)
    if message is None:
        assert check(made) is made
        return
    with pytest.raises(GraphError, match=message):
        check(made)


def strided(*strides, bound=("s",), **changed):
    """A kernel that copies x, which has these strides; `bound` are bound by x."""
    made = kernel(loop("#i", "n", store("y", load("x", ROW), ROW)), outputs=(("y", F32, ["n"]),))
    own = tuple(Binding(name, 0, 1, Dim.of(0), 1) for name in bound)
    x = replace(made.buffers[0], strides=shape_of(strides), **changed)
    return replace(made, buffers=(x, *made.buffers[1:]), binding=(*made.binding, *own))


def test_what_strides_must_be():
    assert check(strided("s"))
    with pytest.raises(GraphError, match="x of rank 1 has 2 strides"):
        check(strided("s", 1))
    with pytest.raises(GraphError, match="the stride s of x is bound by no input"):
        check(strided("s", bound=()))
    y = replace(strided("s").buffers[1], strides=shape_of(["s"]))
    with pytest.raises(GraphError, match="y, which is no input, has strides"):
        check(replace(strided("s"), buffers=(strided("s").buffers[0], y)))
    with pytest.raises(GraphError, match="x of rank 2 with 1 indices"):
        check(strided("s", 1, shape=shape_of(["n", 4])))


def test_siblings_may_use_one_name():
    inner = (Let("a", load("x", ROW)), store("y", Var("a", F32), ROW))
    check(kernel(loop("#i", "n", *inner), loop("#i", "n", *inner)))


def test_buffers_have_names_and_an_order_of_their_own():
    made = kernel(COPY)
    twice = replace(made, buffers=(made.buffers[0], replace(made.buffers[1], name="x")))
    with pytest.raises(GraphError, match="k: two buffers are called x"):
        check(replace(twice, launches=(Launch(()),)))
    turned = Kernel("k", made.buffers[::-1], made.binding, made.launches)
    with pytest.raises(GraphError, match="not in the order inputs, outputs, scratch"):
        check(turned)
    scratch = replace(made.buffers[1], name="z", role=Role.SCRATCH)
    assert check(replace(made, buffers=(*made.buffers, scratch))).buffers[-1] == scratch


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (call("add", ONE, Const(1.0, F64)), "add cannot take f32, f64"),
        (call("add", ONE, ONE, dtype=I32), "a Store of i32 into y"),
        (call("add", call("add", ONE, ONE, dtype=I32), Const(1, I32)), "add gives f32, not i32"),
        (Var("a", F64), "a Store of f64 into y"),
    ],
)
def test_dtypes_of_expressions_agree(wrong, message):
    with pytest.raises(GraphError, match=message):
        check(kernel(loop("#i", "n", Let("a", ONE), store("y", wrong, ROW))))


def test_unknown_monoids_are_named():
    with pytest.raises((GraphError, KeyError), match="median"):
        check(kernel(store("y", ONE, 0, merge="median")))


def test_tiles_are_declared_by_their_launch():
    tile, other = Tile("BLOCK", TilePolicy.FIXED, 4), Tile("BLOCK", TilePolicy.COVERING, 8)
    body = (replace(COPY, axis=Axis.LANES, tile=tile),)
    made = kernel(*body)

    def declaring(*tiles):
        return replace(made, launches=(Launch(body, None, tiles),))

    assert check(declaring(tile))
    with pytest.raises(GraphError, match="k: its launch does not declare the tile BLOCK"):
        check(made)
    with pytest.raises(GraphError, match="k: its launch does not declare the tile BLOCK"):
        check(declaring(other))
    with pytest.raises(GraphError, match="k: two tiles of a launch are called BLOCK"):
        check(declaring(tile, other))
