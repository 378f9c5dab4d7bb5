from __future__ import annotations

from dataclasses import replace

import pytest

from noyau.compiler.schedules.cpu.blocked_folds import in_two
from noyau.compiler.schedules.cpu.folds import expand_folds
from noyau.compiler.schedules.cpu.strategies import map_
from noyau.compiler.schedules.primitives import apart, chain, coalesce, each, is_light, is_small, nest, with_bodies
from noyau.ir.dims import Dim
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Axis, Fold, Launch, Let, Role, Var
from tests.compiler.schedules.groups import assert_keeps, flat, reduced
from tests.nests import COL, F32, ONE, ROW, N, kernel, load, loop, store


def halved(graph, size, lanes=4):
    """The fold of a kernel in two launches, whatever loops stand around it."""
    made = with_bodies(flat(graph), coalesce)
    loops, body = chain(made.launches[0].body)
    two = in_two(body, loops, size, lanes)
    first = nest([*loops[:-1], two.block, *loops[-1:]], two.first)
    launches = (Launch(first), Launch(expand_folds(nest(loops, two.second), lanes)))
    return check(replace(made, buffers=(*made.buffers, *two.scratch), launches=launches))


@pytest.mark.parametrize("monoid", ["sum", "argmax", "variance", "max", "logsumexp", "prod"])
@pytest.mark.parametrize("shape", [("n",), ("a", "n"), ("n", "a"), ("a", "n", "b")])
def test_a_fold_in_two_launches(monoid, shape):
    graph = reduced(monoid, *shape, axes=(shape.index("n"),), after="negative")
    sizes = [{"a": 2, "b": 3, "n": n} for n in (1, 7, 8, 9, 20)]
    assert_keeps(graph, halved(graph, 8), *sizes)


def test_scratch_has_a_cell_for_each_block_and_each_loop():
    made = halved(reduced("argmax", "a", "n", axes=(0,)), 8)
    scratch = made.of(Role.SCRATCH)
    assert [buffer.shape for buffer in scratch] == [((Dim.of("a") + 7) // 8, N)] * 2
    assert len({buffer.name for buffer in scratch}) == 2


def test_nothing_of_nothing_is_left():
    graph = reduced("sum", "n")
    assert_keeps(graph, halved(graph, 4), {"n": 0})


def test_loops_side_by_side_are_apart():
    lets = (Let("a", load("x", 0)), Let("b", load("x", 0)))
    one, other = loop("#i", "n", store("y", Var("a", F32), ROW)), loop("#j", "n", store("z", ONE, COL))
    blocks = apart((*lets, one, other))
    assert blocks == [(lets[0], one), (other,)]
    assert apart((one,)) == [(one,)]
    whole = (store("y", ONE, 0), one, other)
    assert apart(whole) == [whole]
    fold = Let("c", Fold("sum", (("#r", N),), (), ONE, F32))
    alone = loop("#k", "n", store("w", Var("c", F32), ROW))
    assert apart((fold, one, alone)) == [(one,), (fold, alone)]
    assert apart((fold, alone, alone)) == [(fold, alone, alone)]  # it would be computed twice
    beside = store("w", ONE, 0)
    assert apart((beside, one)) == [(one,), (beside,)]


def test_a_fold_is_not_light():
    assert is_light(Let("a", load("x", 0)))
    assert not is_light(Let("a", Fold("sum", (("#r", N),), (), load("x", "#r"), F32)))
    assert not is_light(store("y", ONE, 0))


def test_each_launch_by_its_own_strategy():
    """Two loops over different rows: each is bound to threads."""
    made = kernel(
        inputs=[("x", F32, ["n"]), ("z", F32, ["b"])],
        outputs=[("y", F32, ["n"]), ("w", F32, ["b"])],
        launches=[(loop("#i", "n", store("y", load("x", ROW), ROW)), loop("#j", "b", store("w", load("z", COL), COL)))],
    )
    done = check(each(made, apart(made.launches[0].body), map_))
    assert len(done.launches) == 2
    assert all(launch.body[0].axis is Axis.THREADS for launch in done.launches)


def test_what_is_small():
    fold = Fold("sum", (("#r", Dim.of(4)), ("#s", Dim.of(5))), (), load("x", 0), F32)
    assert is_small(Let("a", fold), 20)
    assert not is_small(Let("a", fold), 19)
    assert not is_small(loop("#i", "n", store("y", ONE, ROW)), 1 << 40)
    nest = loop("#i", 4, loop("#j", 5, store("y", ONE, ROW)))
    assert is_small(nest, 20)
    assert not is_small(nest, 19)
    assert is_small(store("y", ONE, 0), 0)
