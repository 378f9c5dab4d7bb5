from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from noyau.compiler.schedules.cpu.strategy_choice import Options, nan_apart, schedule
from noyau.compiler.schedules.cpu.transposes import reads_along
from noyau.compiler.schedules.gpu.strategies import on_gpu
from noyau.compiler.schedules.primitives import flatten, stride_of
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, indices, shape_of
from noyau.ir.graph import Select, View
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Alloc, Axis, Fold, Let, Loop, Role
from noyau.ir.walk import every_expression, every_statement, loads_of
from tests.compiler.schedules.groups import (
    assert_keeps,
    concatenated,
    flat,
    gathered,
    log_softmax,
    loops,
    lowered,
    padded,
    reduced,
    residual_rms_norm,
    rotary,
    scanned,
    transposed,
)
from tests.jobs.check.groups import F32, Group, embedding, layer_norm, quantise, rms_norm, softmax, swiglu


def mixed():
    """A reduction of everything, and of rows, and a map, all from one input."""
    g = Group()
    x = g.input("x", F32, "rows", "n")
    largest = g.reduce("max", g.reduce("max", g.map("abs", x)), axis=0)
    scaled = g.map("divide", x, g.expand(largest, ("rows", "n")))
    total = g.reduce("sum", g.map("exp", scaled))
    return g.graph(scaled, total)


GRAPHS = {
    "softmax": softmax(),
    "log_softmax": log_softmax(),
    "layer_norm": layer_norm(),
    "rms_norm": rms_norm(),
    "residual": residual_rms_norm(),
    "swiglu": swiglu(),
    "quantise": quantise(),
    "embedding": embedding(),
    "gathered": gathered(),
    "transposed": transposed(2, 1, 0),
    "rotary": rotary(),
    "padded": padded(),
    "rows one after the other": concatenated(0),
    "rows side by side": concatenated(1),
    "scan": scanned("sum", "rows", "n", axis=0),
    "columns": reduced("sum", "rows", "n"),
    "argmax of columns": reduced("argmax", "rows", "n"),
    "full": reduced("variance", "rows", "n", axes=(0, 1)),
    "mixed": mixed(),
}
SIZES = [{"rows": 3, "n": n, "a": 2, "b": 3, "c": 4, "s": 2, "words": 4} for n in (5, 1, 34)]


@pytest.mark.parametrize("options", [(1, True), (16, False), (32, True), (64, False)], ids=str)
@pytest.mark.parametrize("name", GRAPHS)
def test_the_chosen_strategy_keeps_what_a_kernel_computes(name, options):
    lanes, kept = options
    assert_keeps(GRAPHS[name], schedule(lowered(GRAPHS[name]), Options(lanes, kept)), *SIZES)


@pytest.mark.parametrize(
    ("name", "launches", "threads"),
    [
        ("softmax", 2, ["#i0", "#i0t"]),
        ("swiglu", 1, ["#i1w"]),
        ("transposed", 3, ["#i1", "#i2t"] * 3),
        ("columns", 2, ["#block_of_v1_2", "#i0t", "#i0t"]),
        ("full", 2, ["#block_of_v1_2"]),
        ("rows one after the other", 2, ["#i1w", "#i1w"]),
        ("scan", 1, ["#i1t"]),
    ],
)
def test_what_is_chosen(name, launches, threads):
    made = check(schedule(lowered(GRAPHS[name])))
    assert len(made.launches) == launches
    assert loops(made, Axis.THREADS) == threads


def test_every_launch_of_a_mixed_kernel_uses_threads_or_is_short():
    made = check(schedule(lowered(mixed())))
    assert len(made.launches) == 6  # of which two pairs are one, for long rows and for short ones
    assert any(name.startswith("#block_of") for name in loops(made, Axis.THREADS))
    assert made.of(Role.SCRATCH)


def test_the_same_kernel_gives_the_same_schedule():
    for graph in GRAPHS.values():
        assert schedule(lowered(graph)) == schedule(lowered(graph))


def test_folds_of_floats_note_nan_apart_and_others_do_not():
    for dtype, wanted in ((F32, "max_apart"), (DType.F16, "max_apart"), (DType.I32, "max"), (DType.BOOL, "max")):
        made = nan_apart(flatten(lowered(reduced("max", "rows", "n", axes=(1,), dtype=dtype))))
        (fold,) = [expr for expr in every_expression(made.launches[0].body) if isinstance(expr, Fold)]
        assert fold.monoid == wanted


def test_strides():
    made = flat(transposed(1, 0, shape=("a", "b")))
    (load,) = loads_of(made.launches[0].body)
    assert [stride_of(load, name) for name in ("#i0", "#i1", "#i9")] == [Dim.of(1), Dim.of("b"), Dim.of(0)]
    assert reads_along(made.launches[0].body) == ("#i0", "#i1")


def test_a_broadcast_is_no_transpose():
    g = Group()
    x, y = g.input("x", F32, "a"), g.input("y", F32, "a", "b")
    g.map("add", g.add(View((indices(2)[0],)), [x], F32, ("a", "b")), y)
    assert reads_along(flat(g.graph()).launches[0].body) is None


def test_options_say_how_many_lanes():
    for lanes in (8, 16):
        made = schedule(lowered(softmax()), Options(lanes=lanes))
        names = [loop for loop in loops(made) if loop.startswith("#lane")]
        assert names.count(names[0]) == 2 + 1 + lanes.bit_length() - 2  # empty, strip, tail, halves
    assert replace(Options(), lanes=8) == Options(8, True)


def images_side_by_side():
    """Images of one channel and of three, side by side."""
    g, shape = Group(), ("b", 1, "h", "w")
    x, y = g.input("x", F32, *shape), g.input("y", F32, "b", 3, "h", "w")
    parts = [x, g.map("exp", y)]
    g.map("negative", g.add(Select(1, shape_of((0, 1))), parts, F32, ("b", 4, "h", "w")))
    return g.graph()


def test_images_side_by_side_are_done_one_part_after_the_other():
    """A loop of one round carries no state from round to round; each part has threads, and lanes along its rows."""
    made = schedule(lowered(images_side_by_side()), Options(short=False))
    assert len(made.launches) == 2
    assert set(loops(made, Axis.LANES)) == {"#i3", "#cell_of_tile"}
    assert "#i0" in loops(made, Axis.THREADS)
    assert_keeps(images_side_by_side(), made, {"b": 2, "h": 3, "w": 5}, {"b": 1, "h": 0, "w": 2})


def test_a_row_before_others_is_normed_once_each():
    """A class token before the rows of a batch, then a norm: no fold stands within the loop over a row's cells."""
    g, shape = Group(), ("b", 17, 40)
    token, x = g.input("token", F32, 1, 40), g.input("x", F32, "b", 16, 40)
    wide = g.add(View(indices(3)[1:]), [token], F32, ("b", 1, 40))
    whole = g.add(Select(1, shape_of((0, 1))), [wide, x], F32, shape)
    square = g.mean(g.map("multiply", whole, whole), 40)
    g.map("multiply", whole, g.expand(g.map("rsqrt", square), shape))
    made = schedule(lowered(g.graph()), Options())
    cells = [s for launch in made.launches for s in every_statement(launch.body) if isinstance(s, Loop)]
    innermost = [loop for loop in cells if loop.var == "#i2"]
    assert innermost
    assert not any(isinstance(s, Loop) for loop in innermost for s in loop.body)
    assert all(loop.axis is Axis.LANES for loop in innermost)
    assert_keeps(g.graph(), made, {"b": 2})


def own_names(kernel):
    """Of what a kernel keeps values in: its buffers, its memory, its Lets."""
    inside = [s for launch in kernel.launches for s in every_statement(launch.body)]
    return {buffer.name for buffer in kernel.buffers} | {s.name for s in inside if isinstance(s, Let | Alloc)}


@pytest.mark.parametrize("strategy", [schedule, partial(schedule, options=Options(kept=False)), on_gpu])
@pytest.mark.parametrize("name", GRAPHS)
def test_what_a_schedule_makes_has_a_name_that_no_value_of_a_graph_may_have(name, strategy):
    """Inputs called x_sum, kept_x or x_2_lanes are none of a schedule's own memory: that has dots, and indices a #."""
    kernel = lowered(GRAPHS[name])
    try:
        made = own_names(strategy(kernel)) - own_names(kernel)
    except UnsupportedError:
        pytest.skip("no strategy")
    assert {each for each in made if "." not in each and not each.startswith("#")} == set()
