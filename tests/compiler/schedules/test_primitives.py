from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from noyau.compiler.lowering.nest import lower
from noyau.compiler.schedules.cpu.strategies import keep_rows
from noyau.compiler.schedules.primitives import (
    bind,
    bind_all,
    carries,
    chain,
    coalesce,
    drop_unused,
    flatten,
    keep,
    minimum,
    nest,
    quotients_outside,
    reindex,
    reorder,
    sink,
    sizes_outside,
    stride_of,
    tile_loop,
    widen,
    with_bodies,
)
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, shape_of
from noyau.ir.loop_interpreter import run
from noyau.ir.loop_verifier import check
from noyau.ir.loops import (
    Alloc,
    Axis,
    Buffer,
    Call,
    Const,
    Fold,
    If,
    Index,
    Kernel,
    Launch,
    Let,
    Load,
    Loop,
    Role,
    Space,
    Store,
    Var,
)
from noyau.ir.walk import every_expression, every_statement, loads_of, memory_of
from tests.compiler.schedules.groups import (
    assert_keeps,
    concatenated,
    gathered,
    log_softmax,
    lowered,
    padded,
    reduced,
    rotary,
    scanned,
    transposed,
)
from tests.jobs.check.groups import Group, embedding, layer_norm, quantise, rms_norm, softmax, swiglu
from tests.nests import COL, COPY, F32, ONE, ROW, N, call, kernel, less, load, loop, store

SIZES = {"rows": 3, "n": 5, "a": 2, "b": 3, "c": 4, "s": 2, "words": 4}
GRAPHS = {
    "softmax": softmax(),
    "log_softmax": log_softmax(),
    "layer_norm": layer_norm(),
    "rms_norm": rms_norm(),
    "swiglu": swiglu(),
    "quantise": quantise(),
    "embedding": embedding(),
    "transposed": transposed(2, 1, 0),
    "rotary": rotary(),
    "padded": padded(),
    "concatenated": concatenated(1),
    "gathered": gathered(),
    "scanned": scanned("sum", "rows", "n", axis=1),
    "columns": reduced("sum", "a", "b", "n", axes=(0, 1)),
    "full": reduced("sum", "rows", "n", axes=(0, 1)),
}
STEPS = {
    "flatten": lambda made: made,
    "coalesce": lambda made: with_bodies(made, coalesce),
    "sink": lambda made: with_bodies(made, sink),
    "bind": lambda made: with_bodies(made, lambda body: bind_all(body)),
    "widen": lambda made: with_bodies(made, widen),
    "all": lambda made: with_bodies(made, lambda body: widen(bind(sink(coalesce(body)), 1))),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("graph", GRAPHS)
def test_a_step_keeps_what_a_kernel_computes(graph, step):
    made = STEPS[step](flatten(lowered(GRAPHS[graph])))
    assert_keeps(GRAPHS[graph], made, SIZES, SIZES | {"n": 0}, SIZES | {"n": 1, "rows": 1})


def test_flat_indices_are_offsets():
    made = kernel(
        loop("#i", "n", loop("#j", 3, If(less(ROW, 2), (store("y", load("x", COL, ROW), ROW, COL),)))),
        inputs=[("x", F32, [3, "n"])],
        outputs=[("y", F32, ["n", 3])],
    )
    inner = flatten(made).launches[0].body[0].body[0].body[0].body[0]
    assert inner.index == (ROW * 3 + COL,)
    assert inner.values[0].index == (COL * N + ROW,)


def test_memory_of_a_launch_is_not_flattened():
    body = (Alloc("m", F32, shape_of([1]), Space.REGISTER), store("m", ONE, 0), store("y", load("m", 0), 0))
    made = kernel(*body, outputs=[("y", F32, [1])])
    assert flatten(made) == made


def test_reindex_reaches_into_folds():
    fold = Fold("sum", (("#r", N),), (store("m", load("x", Dim.of("#r")), "#r"),), load("m", "#r"), F32)
    (let,) = reindex((Let("a", fold),), lambda name, index: (index[0] + 1,) if name == "m" else index)
    assert let.value.body[0].index == (Dim.of("#r") + 1,)
    assert let.value.body[0].values[0].index == (Dim.of("#r"),)
    assert let.value.value.index == (Dim.of("#r") + 1,)


def test_loops_that_read_and_write_in_order_become_one():
    (flat,) = with_bodies(flatten(lowered(swiglu())), coalesce).launches[0].body
    assert flat.extent == Dim.of("rows") * N
    assert len(chain((flat,))[0]) == 1


def test_loops_that_stride_stay_two():
    (made,) = with_bodies(flatten(lowered(transposed(1, 0, shape=("a", "b")))), coalesce).launches[0].body
    assert len(chain((made,))[0]) == 2


def test_loops_of_a_fold_become_one():
    made = with_bodies(flatten(lowered(GRAPHS["full"])), coalesce)
    (fold,) = [expr for expr in every_expression(made.launches[0].body) if isinstance(expr, Fold)]
    assert [extent for _, extent in fold.loops] == [Dim.of("rows") * N]


def test_lets_sink_but_folds_and_looked_up_indices_stay():
    inner = loop("#j", 3, store("y", Var("a", F32), ROW))
    cheap = (Let("a", load("x", ROW)), inner)
    assert sink(cheap) == (replace(inner, body=(cheap[0], *inner.body)),)
    fold = (Let("a", Fold("sum", (("#r", N),), (), load("x", "#r"), F32)), inner)
    assert sink(fold) == fold
    looked_up = (Let("#at", Index(Dim.of(0))), inner)
    assert sink(looked_up) == looked_up


def test_bind_stops_at_a_loop_whose_extent_depends_on_another():
    body = (loop("#i", "n", Loop("#j", ROW + 1, Axis.SERIAL, (store("y", ONE, ROW),))),)
    (outer,) = bind(body, 2)
    assert outer.axis is Axis.THREADS
    assert outer.body[0].axis is Axis.SERIAL


def test_chains_come_apart_and_together():
    body = (loop("#i", "n", loop("#j", 3, store("y", ONE, ROW), store("y", ONE, COL))),)
    loops, inner = chain(body)
    assert [each.var for each in loops] == ["#i", "#j"]
    assert len(inner) == 2
    assert nest(loops, inner) == body


@pytest.mark.parametrize("order", [("#i0", "#i1", "#i2"), ("#i2", "#i0", "#i1"), ("#i1", "#i2", "#i0")])
def test_loops_in_another_order(order):
    graph = transposed(1, 2, 0)
    made = with_bodies(flatten(lowered(graph)), lambda body: reorder(body, order))
    assert [each.var for each in chain(made.launches[0].body)[0]] == list(order)
    assert_keeps(graph, made, SIZES)


def test_loops_that_cannot_change_places():
    body = (loop("#i", "n", Loop("#j", ROW + 1, Axis.SERIAL, (store("y", ONE, ROW),))),)
    with pytest.raises(UnsupportedError, match="the loop over #j has to stay where it is"):
        reorder(body, ("#j", "#i"))
    with pytest.raises(UnsupportedError, match="the loops #i, #j cannot be put in the order #i, #k"):
        reorder(body, ("#i", "#k"))
    carried = (loop("#i", "n", loop("#j", "n", store("m", load("x", COL), ROW, merge="sum"))),)
    with pytest.raises(UnsupportedError, match="the loop over #j has to stay where it is"):
        reorder(carried, ("#j", "#i"))


def test_a_loop_that_carries_a_state_is_no_lane():
    merging = loop("#i", "n", store("m", load("x", ROW), 0, merge="sum"))
    assert carries(merging)
    assert widen((merging,)) == (merging,)
    assert not carries(COPY)
    assert widen((COPY,))[0].axis is Axis.LANES
    own = loop("#i", "n", Alloc("m", F32, shape_of([1]), Space.REGISTER), store("m", load("x", ROW), 0))
    assert not carries(own)
    outer = loop("#j", 2, merging)
    assert carries(outer)
    assert not carries(loop("#j", 1, merging))  # there is no next round


@pytest.mark.parametrize(("extent", "size"), [("n", 3), ("n", 8), ("n", 1), (8, 4), (8, 3)])
def test_of_tiles_the_last_one_is_shorter(extent, size):
    made = kernel(loop("#i", extent, store("y", call("negative", load("x", ROW)), ROW)))
    tiles, length, tile = tile_loop(made.launches[0].body[0], size, "#it", "#ii", "#count")
    cut = check(with_bodies(made, lambda body: (replace(tiles, body=(*length, tile)),)))
    for n in (8,) if extent == 8 else (0, 1, 7, 8, 9):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(run(cut, [x])[0], -x)
    if extent == 8 and size == 4:
        assert tile.extent == Dim.of(4) and not length


def test_minimum():
    assert minimum(N, N + 1) == N
    assert minimum(Dim.of(3), Dim.of(2)) == Dim.of(2)
    assert [minimum(N, Dim.of(3)).evaluate({"n": n}) for n in (0, 3, 4)] == [0, 3, 3]


def kept_softmax():
    made = flatten(lowered(softmax()))
    (row,) = made.launches[0].body
    fold = [s for s in row.body if isinstance(s, Let) and isinstance(s.value, Fold)][-1]
    let = next(s for s in fold.value.body if getattr(s.value, "function", "") == "exp")
    body = (Alloc("kept", let.value.dtype, (N,), Space.THREAD), *keep(row.body, frozenset({let.origin[0]}), "kept"))
    return made, replace(made, launches=(Launch((replace(row, body=body),)),))


def test_what_is_kept_is_not_computed_again():
    before, after = kept_softmax()
    assert_keeps(softmax(), after, SIZES, SIZES | {"n": 0})
    exps = [
        sum(getattr(expr, "function", "") == "exp" for expr in every_expression(made.launches[0].body))
        for made in (before, after)
    ]
    assert exps == [2, 1]
    loads = [expr.buffer for expr in every_expression(after.launches[0].body) if isinstance(expr, Load)]
    assert loads.count("kept") == 1
    assert loads.count("x") == 2  # the last loop reads the row no more


def test_what_the_first_fold_computes_is_kept_for_the_second():
    """The mean and the spread of exp(x), and what is written, need it once a cell."""
    g, shape = Group(), ("rows", "n")
    e = g.map("exp", g.input("x", F32, *shape))
    less = g.map("subtract", e, g.expand(g.mean(e, "n"), shape))
    g.map("divide", less, g.expand(g.mean(g.map("multiply", less, less), "n"), shape))
    made = with_bodies(lowered(g.graph()), lambda body: bind_all(sink(body)))
    after = with_bodies(made, keep_rows)
    functions = [getattr(expr, "function", "") for expr in every_expression(after.launches[0].body)]
    assert functions.count("exp") == 1
    assert_keeps(g.graph(), after, {"rows": 2, "n": 5}, {"rows": 1, "n": 0})


def test_sizes_become_floats_before_lanes():
    size = Let("size", Call("cast", (Index(Dim.of("n")),), F32))
    moved = Let("moved", Call("cast", (Index(ROW),), F32))
    lanes = Loop("#i", N, Axis.LANES, (size, moved, store("y", Var("size", F32), ROW)))
    assert sizes_outside((lanes, lanes)) == (size, *(replace(lanes, body=lanes.body[1:]),) * 2)
    outer = Loop("#j", N, Axis.SERIAL, (size, store("y", Var("size", F32), ROW)))
    assert sizes_outside((outer,)) == (outer,)


def quantized(*, function: str = "divide", twice: bool = False) -> Kernel:
    """Cells over a scale that follows from one cell, in a loop; with `twice` the name has another value elsewhere."""
    scale = Let("scale", Call(function, (load("s", 0), Const(255.0, F32)), F32))
    inner = (scale, store("y", Call("multiply", (load("x", ROW), Var("scale", F32)), F32), ROW))
    other = (Let("scale", load("x", ROW)), store("y", Var("scale", F32), ROW))
    body = (Loop("#i", N, Axis.THREADS, inner), *([Loop("#i", N, Axis.SERIAL, other)] * twice))
    ends = (("x", Role.INPUT, (N,)), ("s", Role.INPUT, shape_of([1])), ("y", Role.OUTPUT, (N,)))
    return Kernel("k", tuple(Buffer(name, F32, shape, role) for name, role, shape in ends), (), (Launch(body),))


def test_quotients_of_single_cells_leave_all_loops():
    kernel = quantized()
    (launch,) = kernel.launches
    (loop,) = launch.body
    scale, stored = loop.body
    assert quotients_outside(kernel).launches[0].body == (scale, replace(loop, body=(stored,)))
    for other in (quantized(function="multiply"), quantized(twice=True)):
        assert quotients_outside(other) == other
    own = replace(kernel, buffers=tuple(replace(b, shape=shape_of([1])) for b in kernel.buffers))
    moved = replace(loop, body=(Let("scale", Call("divide", (load("y", 0), load("s", 0)), F32)), stored))
    written = replace(own, launches=(replace(launch, body=(moved,)),))
    assert quotients_outside(written) == written  # the loop stores what it would read


def test_nothing_is_kept_of_a_row_without_folds():
    body = lowered(swiglu()).launches[0].body
    assert keep(body, frozenset({"v2"}), "kept") == body


def test_what_nothing_reads_is_dropped():
    body = (
        Alloc("m", F32, shape_of([1]), Space.REGISTER),
        Alloc("unused", F32, shape_of([1]), Space.REGISTER),
        Let("#at", Index(Dim.of(0))),
        Let("#nowhere", Index(Dim.of(0))),
        Let("a", load("x", "#at")),
        Let("b", Var("a", F32)),
        Let("c", Var("a", F32)),
        store("m", Var("c", F32), 0),
        store("y", load("m", 0), 0),
    )
    names = [getattr(statement, "name", "") for statement in drop_unused(body)]
    assert names == ["m", "#at", "a", "c", "", ""]
    assert memory_of(body) == {"x", "m", "y"}


def test_extents_count_as_uses():
    body = (Let("#at", Index(Dim.of(2))), Loop("#i", Dim.of("#at"), Axis.SERIAL, (store("y", ONE, ROW),)))
    assert drop_unused(body) == body
    stores = [s for s in every_statement(body) if isinstance(s, Store)]
    assert DType.F32 is stores[0].values[0].dtype


def test_strides_that_nobody_knows_yet():
    """Of a buffer with strides, the last axis counts as the one whose cells lie side by side."""
    access = load("x", Dim.of("#b") * 2, ROW + COL, COL * 3)
    steps = [stride_of(access, variable) for variable in ("#b", "#i", "#j", "#k")]
    assert steps == [Dim.of("stride 0") * 2, Dim.of("stride 1"), Dim.of("stride 1") + 3, Dim.of(0)]


def test_an_index_into_a_buffer_with_strides_stays():
    made = flatten(lower(transposed(1, 0, shape=("a", "b")), "kernel", {"x": "strided"}))
    (read,) = loads_of(made.launches[0].body)
    assert [str(dim) for dim in read.index] == ["#i1", "#i0"]
    assert check(made)
