"""Values at an index: where they stand, what they share, what guards them."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.compiler.lowering.nest import lower
from noyau.compiler.lowering.values import MOST_VALUES
from noyau.errors import InputError, UnsupportedError
from noyau.ir.dims import Dim, indices, maximum, shape_of
from noyau.ir.graph import Constant, Contract, Gather, Iota, Lookup, Map, Opaque, Part, Reduce, Select, View
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.loop_interpreter import run
from noyau.ir.loops import Call, Const, Fold, If, Let, Load, Loop, Require, Role
from noyau.ir.walk import every_expression, every_statement
from tests.jobs.check.groups import Group
from tests.nodes import BF16, BOOL, F16, F32, F64, I32, I64, at, given, graph, value, view

N = Dim.of("n")


def lowered(made, name="k"):
    return lower(made, name)


def statements(made):
    return list(every_statement(lowered(made).launches[0].body))


def found(made, kind):
    """Every expression of a kind in the kernel."""
    return [expr for expr in every_expression(lowered(made).launches[0].body) if isinstance(expr, kind)]


def agrees(made, **arrays):
    """Whether the kernel and the graph give the same bits."""
    kernel, want = lowered(made), evaluate(made, arrays)
    got = run(kernel, [arrays[buffer.source] for buffer in kernel.of(Role.INPUT)])
    return all(
        np.array_equal(array, want[name], equal_nan=array.dtype.kind == "f")
        for name, array in zip(made.outputs, got, strict=True)
    )


X = given("x", F32, "b", "n")
ARRAY = np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32)


def test_views_leave_nothing_but_an_index():
    made = graph(
        "y",
        X,
        value("t", view(at(1), at(0)), "x", F32, "n", "b"),
        value("f", view(N - 1 - at(0), at(1)), "t", F32, "n", "b"),
        value("y", Map("exp"), "f", F32, "n", "b"),
    )
    (load,) = found(made, Load)
    assert load.index == (Dim.of("#i1"), N - 1 - Dim.of("#i0"))
    assert load.where is None
    assert [s.name for s in statements(made) if isinstance(s, Let)] == ["x_2", "y_2"]


def test_a_value_is_computed_once_at_one_index():
    made = graph(
        "y",
        X,
        value("e", Map("exp"), "x", F32, "b", "n"),
        value("s", Map("multiply"), "e e", F32, "b", "n"),
        value("y", Map("add"), "s e", F32, "b", "n"),
    )
    assert [expr.function for expr in found(made, Call)].count("exp") == 1
    assert len(found(made, Load)) == 1


def test_values_stand_in_the_outermost_loop_that_they_need():
    made = graph(
        "y",
        X,
        given("s", F32, "b"),
        value("r", Map("rsqrt"), "s", F32, "b"),
        value("rr", view(at(0)), "r", F32, "b", "n"),
        value("y", Map("multiply"), "x rr", F32, "b", "n"),
    )
    (outer,) = lowered(made).launches[0].body
    *lets, inner = outer.body
    assert [let.value.function for let in lets if isinstance(let.value, Call)] == ["rsqrt"]
    assert isinstance(inner, Loop)


def test_casts_to_what_is_computed_in_vanish():
    x = given("x", F16, "n")
    made = graph("y", x, value("c", Map("cast"), "x", F32, "n"), value("y", Map("negative"), "c", F32, "n"))
    assert [expr.function for expr in found(made, Call)] == ["negative"]
    made = graph("y", x, value("c", Map("cast"), "x", I32, "n"), value("y", Map("negative"), "c", I32, "n"))
    assert [expr.function for expr in found(made, Call)].count("cast") == 1


@pytest.mark.parametrize("half", [F16, BF16])
def test_what_the_program_casts_to_a_half_type_is_rounded(half):
    casts = value("h", Map("cast"), "x", half, "n"), value("c", Map("cast"), "h", F32, "n")
    made = graph("y", given("x", F32, "n"), *casts, value("y", Map("negative"), "c", F32, "n"))
    numbers = np.append(np.random.default_rng(0).normal(size=40), [np.inf, np.nan, 65520, 1e-8]).astype(np.float32)
    assert agrees(made, x=numbers)
    written = graph("h", given("x", F32, "n"), casts[0])
    assert not found(written, Call) and agrees(written, x=numbers[:40])


@pytest.mark.parametrize("dtype", [F16, BF16, F64, I32, BOOL])
def test_loads_give_the_type_that_is_computed_in(dtype):
    made = graph("y", given("x", dtype, "n"), value("y", Map("identity"), "x", dtype, "n"))
    assert found(made, Load)[0].dtype is dtype.compute
    assert lowered(made)["y"].dtype is dtype
    assert agrees(made, x=np.array([0, 1, 1]).astype(dtype.numpy))


def test_numbers_and_indices():
    made = graph(
        "y",
        given("x", I64, "b", "n"),
        value("i", Iota(at(1) * 2 + "b"), "", I64, "b", "n"),
        value("c", Constant(np.int64([7])), "", I64, 1),
        value("cc", view(0), "c", I64, "b", "n"),
        value("s", Map("add"), "i cc", I64, "b", "n"),
        value("y", Map("add"), "s x", I64, "b", "n"),
    )
    assert found(made, Const) == [Const(7, I64)]
    assert agrees(made, x=np.arange(12).reshape(3, 4))


def test_a_fold_holds_what_depends_on_it_and_no_more():
    made = graph(
        "y",
        X,
        given("s", F32, "b"),
        value("e", Map("exp"), "s", F32, "b"),
        value("ee", view(at(0)), "e", F32, "b", "n"),
        value("m", Map("multiply"), "x ee", F32, "b", "n"),
        value("y", Reduce("sum", (1,)), "m", F32, "b"),
    )
    (fold,) = found(made, Fold)
    assert [let.value.function for let in fold.body if isinstance(let.value, Call)] == ["multiply"]
    assert agrees(made, x=ARRAY, s=ARRAY[:, 0])


# Pieces.


def rotated(half=2):
    return graph(
        "y",
        given("x", F32, "b", half * 2),
        value("h", view(at(0), at(1) + half), "x", F32, "b", half),
        value("m", Map("negative"), "h", F32, "b", half),
        value("l", view(at(0), at(1)), "x", F32, "b", half),
        value("y", Select(1, shape_of([0, half])), "m l", F32, "b", half * 2),
    )


def test_a_loop_is_cut_where_a_piece_ends():
    made = rotated()
    assert [str(s.extent) for s in statements(made) if isinstance(s, Loop)] == ["b", "2", "2"]
    assert not [expr for expr in found(made, Call) if expr.function == "where"]
    assert agrees(made, x=np.arange(12, dtype=np.float32).reshape(3, 4))


def test_pieces_of_symbolic_extents_are_cut_too():
    total = N + "m"
    made = graph(
        "y",
        given("a", F32, "n"),
        given("b", F32, "m"),
        value("y", Select(0, shape_of([0, "n"])), "a b", F32, total),
    )
    assert [str(s.extent) for s in statements(made) if isinstance(s, Loop)] == ["n", "m"]
    for n, m in [(3, 2), (0, 2), (3, 0), (0, 0)]:
        assert agrees(made, a=np.arange(n, dtype=np.float32), b=np.arange(m, dtype=np.float32))


def test_a_piece_that_is_only_known_as_it_runs_is_masked():
    made = graph(
        "y",
        given("a", F32, "n"),
        given("b", F32, "n"),
        value("s", Select(0, shape_of([0, "n"])), "a b", F32, N * 2),
        value("y", view(at(0) * 2), "s", F32, "n"),
    )
    loads = found(made, Load)
    assert {load.buffer for load in loads} == {"a", "b"}
    assert all(load.where is not None and load.other == Const(0, F32) for load in loads)
    assert agrees(made, a=np.float32([1, 2, 3]), b=np.float32([4, 5, 6]))


def test_pieces_of_no_extent():
    empty = value("e", view(at(0)), "x", F32, 0)
    made = graph("y", given("x", F32, "n"), empty, value("y", Select(0, shape_of([0, "n"])), "x e", F32, "n"))
    assert agrees(made, x=ARRAY[0])
    made = graph("y", given("x", F32, "n"), empty, value("y", Select(0, shape_of([0, 0])), "e e", F32, 0))
    assert agrees(made, x=ARRAY[0])


def test_a_cut_that_is_not_surely_inside_is_not_made():
    """n - 1 is below 0 where n is 0: the piece is then chosen as it runs."""
    total = N + "m"
    made = graph(
        "y",
        given("a", F32, "n"),
        given("b", F32, "m"),
        value("s", Select(0, shape_of([0, "n"])), "a b", F32, total),
        value("y", view(at(0) + 1), "s", F32, maximum(total - 1, 0)),
    )
    for n, m in [(3, 2), (0, 3), (1, 1), (0, 0)]:
        assert agrees(made, a=np.arange(n, dtype=np.float32), b=np.arange(m, dtype=np.float32) + 10)


# Lookups.


def gathered(*index, shape=("m", "n")):
    return graph("y", given("x", F32, "b", "n"), given("k", I32, "m"), value("y", Gather(index), "x k", F32, *shape))


ROWS = gathered(Lookup(1, (at(0),)), at(1))


def test_rows_are_looked_up_once_a_row():
    (outer,) = lowered(ROWS).launches[0].body
    kinds = [type(statement).__name__ for statement in outer.body]
    assert kinds == ["Let", "Let", "Require", "Loop"]
    assert agrees(ROWS, x=ARRAY, k=np.int32([2, 0, 2, 1]))


@pytest.mark.parametrize("bad", [-1, 3])
def test_an_index_outside_is_an_error(bad):
    with pytest.raises(InputError, match=f"index out of bounds: {bad}"):
        run(lowered(ROWS), [ARRAY, np.int32([0, bad])])


@pytest.mark.parametrize(("cells", "length"), [(3, 2), (3, 0), (0, 0)])
@pytest.mark.parametrize("twice", [False, True])
def test_what_is_looked_up_before_loops_over_no_cells_is_not_read(cells, length, twice):
    """The cell that the first index names, in each cell of y: where y has none, x may have none either."""
    made = graph(
        "y",
        given("x", F32, "n"),
        given("j", I64, "m"),
        *([value("k", Gather((Lookup(1, (at(0),)),)), "j j", I64, "m")] if twice else []),
        value("g", Gather((Lookup(1, (at(0),)),)), "x k" if twice else "x j", F32, "m"),
        value("y", view(0), "g", F32, "m"),
    )
    assert agrees(made, x=np.arange(cells, dtype=np.float32), j=np.arange(length)[::-1].copy())
    if length:
        with pytest.raises(InputError, match="index out of bounds: 7"):
            run(lowered(made), [np.arange(cells, dtype=np.float32), np.int64([7] * length)])


def test_an_index_of_an_index():
    made = graph(
        "y",
        X,
        given("k", I64, "m"),
        given("j", I32, "m"),
        value("kk", Gather((Lookup(1, (at(0),)),)), "k j", I64, "m"),
        value("y", Gather((Lookup(1, (at(0),)), at(1))), "x kk", F32, "m", "n"),
    )
    assert agrees(made, x=ARRAY, k=np.array([2, 0, 1]), j=np.int32([1, 1, 2]))


def padded_rows():
    """The sum of looked-up values with three ones before them: the fold sees masked lookups."""
    return graph(
        "y",
        given("x", F32, "n"),
        given("k", I64, "m"),
        value("g", Gather((Lookup(1, (at(0),)),)), "x k", F32, "m"),
        value("o", Constant(np.float32(1)), "", F32),
        value("ones", view(), "o", F32, 3),
        value("p", Select(0, shape_of([0, 3])), "ones g", F32, Dim.of("m") + 3),
        value("y", Reduce("sum", (0,)), "p", F32),
    )


def test_a_lookup_that_is_not_taken_asks_nothing():
    made = padded_rows()
    guarded = [s for s in statements(made) if isinstance(s, If)]
    assert guarded
    assert all(isinstance(s.body[0], Require) for s in guarded)
    assert agrees(made, x=ARRAY[0], k=np.array([4, 0]))
    assert agrees(made, x=ARRAY[0, :0], k=np.array([], np.int64))
    with pytest.raises(InputError):
        run(lowered(made), [ARRAY[0], np.array([5])])


def test_a_cell_that_only_an_inner_loop_makes_sure_of_is_guarded():
    """The last column, lifted out of the loop over columns: where there is none, it is not read."""
    made = graph(
        "y",
        X,
        value("l", view(at(0), N - 1), "x", F32, "b", "n"),
        value("e", Map("exp"), "l", F32, "b", "n"),
        value("y", Map("subtract"), "x e", F32, "b", "n"),
    )
    (outer,) = lowered(made).launches[0].body
    assert outer.body[0].value.where is not None
    assert agrees(made, x=ARRAY)
    assert agrees(made, x=ARRAY[:, :0])


@pytest.mark.parametrize(("cells", "length"), [(3, 2), (1, 1), (2, 0), (0, 0)])
def test_a_cell_that_another_size_makes_sure_of_is_guarded_too(cells, length):
    """The first of x, in each cell of y: where y has none, x may have none either."""
    made = graph(
        "y",
        given("x", F32, "b"),
        given("w", F32, "k"),
        value("f", view(0), "x", F32, "k"),
        value("y", Map("add"), "f w", F32, "k"),
    )
    assert agrees(made, x=np.ones(cells, np.float32), w=np.ones(length, np.float32))


def test_reductions_that_a_lookup_depends_on_come_first():
    """A column is looked up by the innermost index: it is added up once for all rows."""
    made = graph(
        "y",
        X,
        given("k", I64, 3),
        value("s", Reduce("sum", (0,)), "x", F32, "n"),
        value("w", view(at(1)), "s", F32, 7, "n"),
        value("y", Gather((at(0), Lookup(1, (at(1),)))), "w k", F32, 7, 3),
    )
    (outer,) = lowered(made).launches[0].body
    assert outer.extent == Dim.of(3)
    assert any(isinstance(s, Let) and isinstance(s.value, Fold) for s in outer.body)
    assert agrees(made, x=ARRAY, k=np.array([4, 0, 1]))


def test_a_reduction_that_would_be_rounded_in_two_orders_is_refused():
    """Sums of rows, less their largest: the largest must be 0, whatever the order in which a row is added up."""

    def sums(monoid, dtype):
        return graph(
            "y",
            given("x", dtype, "b", "n"),
            value("s", Reduce(monoid, (1,)), "x", dtype, "b"),
            value("m", Reduce("max", (0,)), "s", dtype),
            value("w", view(), "m", dtype, "b"),
            value("y", Map("subtract"), "s w", dtype, "b"),
        )

    with pytest.raises(UnsupportedError, match="s, within a reduction and outside it, would be rounded in two orders"):
        lowered(sums("sum", F32))
    assert agrees(sums("max", F32), x=ARRAY)
    assert agrees(sums("sum", I64), x=np.arange(15).reshape(3, 5))


def test_what_is_sure_to_be_there_is_not_guarded():
    made = graph(
        "y",
        X,
        given("w", F32, "n"),
        value("m", Reduce("max", (1,)), "x", F32, "b"),
        value("mm", view(at(0)), "m", F32, "b", "n"),
        value("ww", view(at(1)), "w", F32, "b", "n"),
        value("d", Map("subtract"), "x mm", F32, "b", "n"),
        value("y", Map("multiply"), "d ww", F32, "b", "n"),
    )
    assert all(load.where is None for load in found(made, Load))


def test_a_guarded_value_is_not_taken_for_one_that_is_always_there():
    """Two pieces read the last row of a: one where the other is empty."""
    made = graph(
        "y",
        given("a", F32, "n", "m"),
        given("c", F32, "k", "m"),
        value("l", view(N - 1, at(1)), "a", F32, "n", "m"),
        value("s", Select(0, shape_of([0, "n"])), "l c", F32, N + "k", "m"),
        value("y", Map("negative"), "s", F32, N + "k", "m"),
    )
    c = np.ones((2, 5), np.float32)
    assert agrees(made, a=ARRAY, c=c)
    assert agrees(made, a=ARRAY[:0], c=c)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (Contract("ij,ij->ij"), "a product is no loop of a kernel; a library runs it"),
        (Opaque("f"), "noyau does not see into it; where it came from it is run"),
        (Part(0), "noyau does not see into it; where it came from it is run"),
    ],
)
def test_what_has_no_loops_is_refused(kind, told):
    operands = "x x" if isinstance(kind, Contract) else "x"
    with pytest.raises(UnsupportedError, match=f"^y: {told}$"):
        lower(graph("y", X, value("y", kind, operands, F32, "b", "n")), "k")


def piled(rounds):
    """Each round adds a matrix to itself, moved down by a row: of one cell, each round reads two of the one before."""
    g = Group()
    u, rows = g.input("u", F32, "n", "m"), Dim.of("n")
    i, j = indices(2)
    for _ in range(rounds):
        head = g.add(View((i, j)), [u], F32, (1, "m"))
        low, high = (g.add(View((i + k, j)), [u], F32, (rows - 1, "m")) for k in (1, 0))
        u = g.add(Select(0, shape_of((0, 1))), [head, g.map("add", low, high)], F32, (rows, "m"))
    return g.graph(u)


def test_values_that_are_asked_for_again_and_again_are_bounded():
    assert lower(piled(2), "k")
    with pytest.raises(UnsupportedError, match=f"with all that it reads there are over {MOST_VALUES} values a cell"):
        lower(piled(30), "k")


def test_rows_that_lie_elsewhere_at_an_edge_are_read_at_one_place():
    """A roll along the first axis: a row knows where it lies, and no cell asks."""
    made = graph(
        "out",
        given("x", F32, "n", "m"),
        value("last", view(at(0) + N - 2, at(1)), "x", F32, 2, "m"),
        value("first", view(at(0), at(1)), "x", F32, N - 2, "m"),
        value("rolled", Select(0, (Dim.of(0), Dim.of(2))), "last first", F32, "n", "m"),
        value("out", Map("exp"), "rolled", F32, "n", "m"),
    )
    (load,) = found(made, Load)
    assert load.where is None
    (outer,) = lowered(made).launches[0].body
    assert isinstance(outer, Loop)
    assert [type(statement) for statement in outer.body] == [Let, Loop]
    calls = [expr for expr in every_expression(outer.body[1].body) if isinstance(expr, Call)]
    assert [call.function for call in calls] == ["exp"]
    assert agrees(made, x=np.arange(20, dtype=np.float32).reshape(5, 4) / 9)


def test_a_condition_is_hashed_no_more_for_many_values_than_for_few(monkeypatch):
    hashed = []

    def counted(call, own=Call.__hash__):
        hashed.append(call)
        return own(call)

    def count(values):
        chain = [value(f"e{k + 1}", Map("exp"), f"e{k}", F32, "n") for k in range(values)]
        start = value("e0", Map("exp"), "a", F32, "n")
        pieces = value("s", Select(0, shape_of([0, "n"])), f"e{values} b", F32, N * 2)
        last = value("y", view(at(0) * 2), "s", F32, "n")
        made = graph("y", given("a", F32, "n"), given("b", F32, "n"), start, *chain, pieces, last)
        hashed.clear()
        lowered(made)
        return len(hashed)

    monkeypatch.setattr(Call, "__hash__", counted)
    assert 0 < count(4) == count(40)
