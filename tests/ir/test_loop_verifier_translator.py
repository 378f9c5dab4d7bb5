from __future__ import annotations

import numpy as np
import pytest

from noyau.errors import GraphError
from noyau.ir.dims import Dim, shape_of
from noyau.ir.loop_interpreter import run
from noyau.ir.loops import Alloc, Const, Fold, If, Let, Space, Store, Var
from tests.nests import ONE, ROW, X8, N, call, kernel, less, load, loop, store
from tests.nodes import BOOL, F32, F64, I32


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (store("y", Var("a", F32), 0), "no Let here binds a as f32"),
        (loop("#i", "n", Let("a", ONE), Let("b", Var("a", F64))), "no Let here binds a as f64"),
        (store("y", load("x", ROW), 0), "no loop here, and no input, binds #i"),
        (store("z", ONE, 0), "there is no memory z here"),
        (store("x", ONE, 0), "a Store into the input x"),
        (store("y", Const(1, I32), 0), "a Store of i32 into y, which is f32"),
        (Let("a", load("x", 0, dtype=F64)), "a Load of f64 from x, which is f32"),
        (store("y", load("x", 0, where=less(0, N)), 0), "a masked Load of x needs a bool and another f32"),
        (store("y", load("x", 0, 1), 0), None),
        (store("y", call("add", ONE, Const(1, I32)), 0), "add cannot take f32, i32"),
        (Let("a", call("add", ONE, ONE, dtype=F64)), "add gives f32, not f64"),
        (store("y", call("plus", ONE, ONE), 0), "plus is not in the operator table"),
        (Let("a", Fold("sum", (), (), Const(True, BOOL), BOOL)), "sum of bool does not give bool"),
        (store("y", Fold("argmax", (), (), ONE, F32), 0), "argmax of f32 does not give f32"),
        (If(ONE, ()), "an If needs a bool, not f32"),
        (Let("#at", ONE), "the index #at is f32, not i64"),
        (Alloc("r", F32, shape_of(["n"]), Space.REGISTER), "r lies in registers, but its size is not known now"),
        (Alloc("r", F32, shape_of(["n"]), Space.BLOCK), "r lies with the lanes of a block, but its size is not known"),
        (Store(("y",), (Dim.of(0),), (ONE,), "argmax"), "a Store of 1 values into 1 buffers, of 2"),
        (Store(("y",), (Dim.of(0),), (ONE, ONE)), "a Store of 2 values into 1 buffers, of 1"),
    ],
)
def test_kernels_that_break_the_rules(body, message):
    made = kernel(body)
    if message is None:
        made = kernel(body, inputs=[("x", F32, ["n", 2, 2])])
        message = "x of rank 3 with 2 indices"
    x = np.zeros((2, 2, 2) if message.startswith("x of") else 8, np.float32)
    with pytest.raises(GraphError, match=message):
        run(made, [x])


def test_names_are_gone_at_the_end_of_their_block():
    body = (loop("#i", "n", Let("a", load("x", ROW)), store("y", Var("a", F32), ROW)), store("y", Var("a", F32), 0))
    with pytest.raises(GraphError, match="no Let here binds a"):
        run(kernel(*body), [X8])
    body = (loop("#i", 2, Alloc("m", F32, shape_of([1]), Space.REGISTER)), store("y", load("m", 0), 0))
    with pytest.raises(GraphError, match="there is no memory m here"):
        run(kernel(*body), [X8])
