"""What is said shorter, and what is said longer."""

from __future__ import annotations

from noyau.codegen.statements import LONG, count_allocated, is_only_stored, one_by_one, otherwise, size_of, steps_of
from noyau.dtypes import DType
from noyau.ir.dims import Dim
from noyau.ir.loops import Alloc, Call, Const, If, Index, Let, Space, Store, Var
from tests.nests import ONE, call, load, store
from tests.nodes import F32

A, B = Var("a", F32), Var("b", F32)
SUM = call("add", A, B)


def cell(name):
    return Alloc(name, F32, store("", ONE, 1).index, Space.REGISTER)


def test_calls_that_occur_twice_and_long_ones_are_steps_each_after_those_in_it():
    product = call("multiply", SUM, SUM)
    assert steps_of([product]) == [SUM]
    assert steps_of([product, call("negative", product)]) == [SUM, product]
    assert steps_of([SUM]) == []
    long = SUM
    while size_of(long) < LONG:
        long = call("exp", long)
    assert steps_of([long]) == []
    assert steps_of([call("exp", long)]) == [long]


def test_an_assignment_waits_where_a_later_value_reads_what_it_changes():
    x, y = load("x", 0), load("y", 0)
    assert one_by_one(["x", "y"], [A, B])
    assert one_by_one(["x", "y"], [y, B])
    assert not one_by_one(["x", "y"], [A, call("add", x, B)])


def test_a_value_that_is_stored_at_once_and_read_by_nothing_else_needs_no_name():
    let, kept = Let("a", SUM), store("y", A, 0)
    assert is_only_stored(let, [kept])
    assert not is_only_stored(let, [kept, store("z", call("exp", A), 0)])
    assert not is_only_stored(let, [store("y", B, 0)])
    assert not is_only_stored(let, [store("y", A, 0, merge="sum")])
    assert not is_only_stored(let, [Let("c", A)])


def test_memory_of_one_cell_that_is_set_at_once_is_a_variable_with_a_value():
    both = Store(("s", "t"), store("", ONE, 0).index, (A, B))
    assert count_allocated([cell("s"), cell("t"), both]) == 2
    assert count_allocated([cell("s"), store("s", A, 0)]) == 1
    assert count_allocated([cell("t"), cell("s"), both]) == 0
    assert count_allocated([cell("s"), store("s", A, 0, merge="sum")]) == 0
    assert count_allocated([cell("s")]) == 0
    assert count_allocated([store("s", A, 0)]) == 0
    several = Alloc("s", F32, store("", ONE, 4).index, Space.REGISTER)
    assert count_allocated([several, store("s", A, 0)]) == 0


def test_one_of_two_blocks():
    large = Call("less_equal", (Const(4, DType.I64), Index(Dim.of("n"))), DType.BOOL)
    opposite = If(Call("logical_not", (large,), DType.BOOL), (store("y", ONE, 0),))
    assert otherwise(If(large, ()), opposite) == opposite.body
    assert otherwise(If(large, ()), If(large, opposite.body)) == ()
    reads = Call("less", (load("x", 0), ONE), DType.BOOL)
    assert otherwise(If(reads, ()), If(Call("logical_not", (reads,), DType.BOOL), opposite.body)) == ()
