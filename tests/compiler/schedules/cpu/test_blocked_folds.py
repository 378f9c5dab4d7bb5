from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from noyau.compiler.schedules.cpu.blocked_folds import BLOCK, full
from noyau.compiler.schedules.cpu.strategy_choice import Options, schedule
from noyau.dtypes import DType
from noyau.ir.dims import Dim
from noyau.ir.graph import Reduce
from noyau.ir.loop_interpreter import run
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Axis, Launch, Loop, Role
from tests.batching import build_many
from tests.compiler.schedules.groups import assert_keeps, flat, in_order, inputs_of, loops, lowered, reduced
from tests.jobs.check.groups import F32, Group
from tests.judged import Judge

MONOIDS = ("sum", "prod", "max", "min", "argmax", "argmin", "variance", "logsumexp")
SIZES = (0, 1, 65535, 65536, 65537, 3 * 65536 + 5)


def in_blocks(graph, block, lanes=4):
    made, rest = full(flat(graph), lanes=lanes, block=block)
    assert rest == ()
    return check(made)


@pytest.mark.parametrize("monoid", MONOIDS)
def test_blocks_of_eight(monoid):
    graph = reduced(monoid, "n", after="negative")
    some = [{"n": n} for n in (1, 7, 8, 9, 29)]
    empty = [{"n": 0}] if monoid in ("sum", "prod", "max", "min") else []
    assert_keeps(graph, in_blocks(graph, 8), *some, *empty)


@pytest.mark.parametrize("axes", [(0, 1), (0, 2), (0, 1, 2)])
def test_several_axes(axes):
    shape = ("a", "n", "b")[: 3 if 2 in axes else 2]
    if axes == (0, 2):
        shape = ("a", 1, "n")
    for monoid in ("sum", "argmax"):
        graph = reduced(monoid, *shape, axes=axes)
        assert_keeps(graph, in_blocks(graph, 8), *({"a": 3, "b": 2, "n": n} for n in (1, 5, 9)))


@pytest.fixture(scope="module")
def natives():
    """Every monoid over all of a vector, in C, with the blocks that it has."""
    dtypes = dict.fromkeys(MONOIDS, (F32, DType.F64, DType.BF16)) | {"sum": (F32, DType.F16, DType.I32)}
    graphs = {(monoid, dtype): reduced(monoid, "n", dtype=dtype) for monoid in MONOIDS for dtype in dtypes[monoid]}
    kernels = [
        replace(schedule(lowered(graph), Options()), name=f"{monoid}_{dtype.value}")
        for (monoid, dtype), graph in graphs.items()
    ]
    built = build_many([check(made) for made in kernels])
    return {key: (graphs[key], made, native) for key, made, native in zip(graphs, kernels, built, strict=True)}


@pytest.mark.parametrize("count", SIZES)
def test_sizes_around_the_block(natives, count):
    """The bits are the same in however many pieces the launches run."""
    for (monoid, _), (graph, made, native) in natives.items():
        if count == 0 and monoid in ("argmax", "argmin", "variance", "logsumexp"):
            continue
        inputs = inputs_of(graph, {"n": count}, seed=count % 97)
        if monoid == "prod":
            inputs = {name: np.exp2(np.sign(x.astype(np.float32))).astype(x.dtype) for name, x in inputs.items()}
        judge, arrays = Judge(graph, inputs), in_order(made, inputs)
        got = native.call_guarded(*arrays)
        assert judge.wrong(graph.outputs[0], got[0]) is None, (monoid, count)
        again = native.call_guarded(*arrays, pieces=3, order=lambda pieces: reversed(range(pieces)))
        assert got[0].tobytes() == again[0].tobytes()


def test_two_launches_and_one_state_a_block():
    made = in_blocks(reduced("argmax", "n"), BLOCK)
    assert len(made.launches) == 2
    assert [buffer.shape for buffer in made.of(Role.SCRATCH)] == [((Dim.of("n") + (BLOCK - 1)) // BLOCK,)] * 2
    assert loops(made, Axis.THREADS) == [made.launches[0].body[0].var]


def softmax_of_all():
    g = Group()
    x = g.input("x", F32, "n")
    e = g.map("exp", g.map("subtract", x, g.expand(g.reduce("max", x), ("n",))))
    g.map("divide", e, g.expand(g.reduce("sum", e), ("n",)))
    return g.graph()


def test_what_follows_finds_the_result_in_scratch():
    graph = softmax_of_all()
    first, rest = full(flat(graph), lanes=4, block=8)
    second, rest = full(replace(first, launches=(Launch(rest),)), lanes=4, block=8)
    launches = (*first.launches, *second.launches, Launch(rest))
    made = check(replace(second, launches=launches))
    assert len(made.launches) == 5
    assert_keeps(graph, made, {"n": 1}, {"n": 8}, {"n": 30})
    scheduled = check(schedule(lowered(graph)))
    assert len(scheduled.launches) == 5
    assert [axis for launch in scheduled.launches[::2] for axis in [launch.body[-1].axis]] == [Axis.THREADS] * 3
    assert_keeps(graph, scheduled, {"n": 0}, {"n": 1}, {"n": 30})


def test_loops_before_the_fold_come_after_it():
    """An output that is stored first does not keep a fold from its own launches."""
    g = Group()
    x = g.input("x", F32, "n")
    y = g.map("exp", x)
    total = g.reduce("sum", x, axis=0)
    z = g.map("add", g.map("negative", x), g.expand(total, ("n",)))
    graph = g.graph(y, z)
    made = check(schedule(lowered(graph)))
    assert_keeps(graph, made, {"n": 0}, {"n": 5})


def test_a_small_known_row_is_one_launch():
    assert len(schedule(lowered(reduced("sum", 100))).launches) == 1
    assert len(schedule(lowered(reduced("sum", BLOCK + 1))).launches) == 2


@pytest.mark.parametrize("dtype", [F32, DType.F64])
@pytest.mark.parametrize("fill", [1.0, 0.1, None])
def test_long_sums_stay_near_the_truth(natives, fill, dtype):
    """2^24 ones and more, in full and as one row: float32 is at most 8 times as far off as NumPy, or half an ulp."""
    count = 1 << 24
    x = np.full(count, fill) if fill else np.random.default_rng(0).random(count)
    x = x.astype(dtype.numpy)
    row = replace(schedule(lowered(reduced("sum", "rows", "n", axes=(1,), dtype=dtype))), name="row")
    whole = replace(schedule(lowered(reduced("sum", "n", dtype=dtype))), name="whole")
    truth = np.sum(x.astype(np.longdouble))
    numpy_s = abs(float((np.sum(x) - truth) / truth))
    allowed = max(8 * numpy_s, 2.0**-24) if dtype is F32 else 1e-12
    for native, array in zip(build_many([row, whole]), (x[None], x), strict=True):
        got = np.longdouble(np.ravel(native(array)[0])[0])
        assert abs(float((got - truth) / truth)) <= allowed


def test_bits_do_not_depend_on_the_order_of_blocks():
    made = in_blocks(reduced("sum", "n"), 8)
    x = np.random.default_rng(0).standard_normal(50).astype(np.float32)
    assert len({run(made, [x], seed=seed)[0].tobytes() for seed in range(6)}) == 1


def mean_of_rows(*axes):
    """A mean over rows of logsumexp(row), or of softmax itself where the mean is over columns too."""
    g = Group()
    x = g.input("x", F32, "rows", "n")
    e = g.map("exp", g.map("subtract", x, g.expand(g.reduce("max", x), ("rows", "n"))))
    total = g.reduce("sum", e)
    if axes == (0,):
        g.reduce("sum", g.map("log", total), axis=0)
        return g.graph()
    shares = g.map("divide", e, g.expand(total, ("rows", "n")))
    return g.graph(g.add(Reduce("sum", axes), [shares], F32, ()))


@pytest.mark.parametrize("axes", [(0,), (0, 1)])
def test_values_that_take_folds_of_their_own_are_rows_first(axes):
    """One thread would fold all rows of a block otherwise, one cell after the other."""
    graph = mean_of_rows(*axes)
    made = check(schedule(lowered(graph)))
    scratch = [buffer.shape for buffer in made.of(Role.SCRATCH)]
    assert scratch[0] == ((Dim.of("rows"),) if axes == (0,) else (Dim.of("rows"), Dim.of("n")))
    rows, whole = made.launches[0], made.launches[-2]
    assert [loop.axis for loop in rows.body if isinstance(loop, Loop)] == [Axis.THREADS]
    assert not any(isinstance(s, Loop) and s.axis is Axis.THREADS for s in whole.body[0].body)
    sizes = [(rows, n) for rows in (1, 5, 33) for n in (1, 7)]
    assert_keeps(graph, made, *({"rows": rows, "n": n} for rows, n in [*sizes, (3, 65)]))
