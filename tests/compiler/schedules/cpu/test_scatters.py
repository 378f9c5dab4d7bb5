from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random

import numpy as np
import pytest

from noyau.codegen.c import printer as c_printer
from noyau.compiler.lowering.nest import lower
from noyau.compiler.schedules.cpu.scatters import cells_apart, merges, scatter
from noyau.compiler.schedules.cpu.strategy_choice import schedule
from noyau.compiler.schedules.primitives import flatten
from noyau.dtypes import DType
from noyau.errors import InputError
from noyau.ir.dims import Dim, indices
from noyau.ir.graph import Lookup, Scatter
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.loop_interpreter import run
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Axis, Store, StreamStore
from noyau.ir.walk import every_statement
from noyau.toolchain.c.compiler import CompilerOptions, compile_library
from noyau.toolchain.c.library import Native
from tests.compiler.schedules.groups import (
    assert_keeps,
    flat,
    in_order,
    inputs_of,
    loops,
    lowered,
    reduced,
    scanned,
    scattered,
    scattered_cells,
    scattered_labels,
)
from tests.jobs.check.groups import F32, Group, softmax

SIZES = [{"rows": 5, "words": 3, "a": 4, "b": 6, "n": n} for n in (3, 4, 34)]
SIZES += [{"rows": 0, "words": 2, "a": 3, "b": 0, "n": 3}]
MONOIDS = ("sum", "prod", "max", "min", None)
GRAPHS = [scattered(m) for m in MONOIDS] + [scattered_cells(axis, m) for axis, m in product((0, 1), MONOIDS)]


@pytest.mark.parametrize("graph", [*GRAPHS, scattered_labels(), scattered_labels("max", DType.BF16)])
def test_the_strategy_keeps_what_a_kernel_computes(graph):
    assert_keeps(graph, schedule(lowered(graph)), *SIZES)


@pytest.mark.parametrize("graph", GRAPHS)
def test_tiles_on_threads_give_the_bits_of_one_after_the_other(graph):
    whole, inputs = flat(graph), inputs_of(graph, SIZES[2])
    copying, merging = whole.launches
    want = evaluate(graph, inputs)[graph.outputs[0]]
    for tile in (1, 8, 512):
        (shared,) = scatter(replace(whole, launches=(merging,)), lanes=8, tile=tile).launches
        (got,) = run(check(replace(whole, launches=(copying, shared))), in_order(whole, inputs), seed=tile)
        assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize(
    ("graph", "threads"),
    [(scattered(), ["#i1w", "#i1t"]), (scattered_cells(0), ["#i1w", "#i1t"]), (scattered_cells(1), ["#i1w", "#i0"])],
)
def test_what_runs_on_threads(graph, threads):
    """Columns of rows that are looked up; rows, where the place in a row is."""
    assert loops(check(schedule(lowered(graph))), Axis.THREADS) == threads


def test_single_cells_that_are_looked_up_are_merged_by_one_thread():
    graph = histogram()
    made = check(schedule(lowered(graph)))
    assert loops(made, Axis.THREADS) == ["#i0w"]
    assert_keeps(graph, made, {"bins": 3, "n": 100}, {"bins": 4, "n": 0})


def histogram():
    g = Group()
    data, ids, x = g.input("data", F32, "bins"), g.input("ids", DType.I64, "n"), g.input("x", F32, "n")
    g.add(Scatter((Lookup(1, indices(1)),), "sum"), [data, ids, x], F32, ("bins",))
    return g.graph()


def overlapping():
    """Windows that begin at places that are looked up: neighbours meet."""
    g = Group()
    own = indices(2)
    data, ids = g.input("data", F32, "n"), g.input("ids", DType.I64, "b", 2)
    places = g.add(Scatter((Lookup(1, own),), "sum"), [data, ids, g.input("x", F32, "b", 2)], F32, ("n",))
    return g.graph(places)


def test_cells_that_may_meet_are_not_shared_out():
    graph = overlapping()
    (*_, launch) = flatten(lowered(graph)).launches
    assert cells_apart(launch.body) == {"#at"}
    made = check(schedule(lowered(graph)))
    assert loops(made, Axis.THREADS) == ["#i0w"]
    assert_keeps(graph, made, {"n": 3, "b": 7})


def test_digits_of_an_offset_are_apart_and_sums_are_not():
    (*_, launch) = flatten(lowered(scattered())).launches
    assert cells_apart(launch.body) == {"#at", "#i1"}
    (store,) = [s for s in every_statement(launch.body) if isinstance(s, Store)]
    loop = next(s for s in every_statement(launch.body) if s is launch.body[0])
    assert not cells_apart((loop, Store(store.buffers, (Dim.of("#i0") + Dim.of("#i1"),), store.values)))


def test_what_merges_is_told_by_its_stores():
    told = {
        "rows": merges(flatten(lowered(scattered())).launches[1].body),
        "overwritten": merges(flatten(lowered(scattered(None))).launches[1].body),
        "copied": merges(flatten(lowered(scattered())).launches[0].body),
        "scan": merges(flatten(lowered(scanned("sum", "m", "n", axis=1))).launches[0].body),
        "softmax": merges(flatten(lowered(softmax())).launches[0].body),
        "sum": merges(flatten(lowered(reduced("sum", "n"))).launches[0].body),
    }
    assert told == {**dict.fromkeys(told, False), "rows": True, "overwritten": True}


def test_an_output_of_which_cells_are_looked_up_is_not_written_around():
    *_, merging = schedule(lowered(scattered(None))).launches
    assert not any(isinstance(s, StreamStore) for s in every_statement(merging.body))


def drawn(seed):
    """A scatter of random shape, monoid and dtype, along some of its axes; its arrays, with many equal places."""
    chosen = Random(seed)
    rank, dtype = chosen.randint(1, 3), chosen.choice((F32, DType.F64, DType.I32, DType.BF16, DType.F16))
    looked_up = [axis for axis in range(rank) if chosen.random() < 0.5] or [chosen.randrange(rank)]
    wide = chosen.randint(1, 2)  # axes of the places
    plain = [axis for axis in range(rank) if axis not in looked_up]
    shape = [f"s{axis}" for axis in range(rank)]
    own, g = indices(wide + len(plain)), Group()
    data, ids = g.input("data", dtype, *shape), g.input("ids", DType.I64, "p", *["q"] * (wide - 1), len(looked_up))
    x = g.input("x", dtype, "p", *["q"] * (wide - 1), *(shape[axis] for axis in plain))
    index = [
        Lookup(1, (*own[:wide], Dim.of(looked_up.index(axis)))) if axis in looked_up else own[wide + plain.index(axis)]
        for axis in range(rank)
    ]
    g.add(Scatter(tuple(index), chosen.choice(MONOIDS)), [data, ids, x], dtype, shape)
    sizes = {name: chosen.choice((1, 2, 3, 7, 40)) for name in [*shape, "p", "q"]}
    made = inputs_of(g.graph(), sizes, seed)
    tops = [sizes[shape[axis]] for axis in looked_up]
    made["ids"] = np.random.default_rng(seed).integers(0, tops, made["ids"].shape)
    return g.graph(), made


def test_random_scatters_in_c_give_the_bits_of_one_after_the_other():
    cases = [drawn(seed) for seed in range(12)]
    kernels = [check(schedule(lower(graph, f"scatter_{at}"))) for at, (graph, _) in enumerate(cases)]
    library = compile_library([c_printer.together(kernels)], CompilerOptions(export=True, extra=("-O1",)))
    for kernel, (graph, arrays) in zip(kernels, cases, strict=True):
        native, want = Native(library, f"{kernel.name}_kernel"), evaluate(graph, arrays)[graph.outputs[0]]
        for pieces in (1, 3):
            (got,) = native.call_guarded(*in_order(kernel, arrays), pieces=pieces, order=lambda n: range(n)[::-1])
            assert got.tobytes() == want.tobytes(), graph
        outside = {**arrays, "ids": arrays["ids"] - 100}
        if arrays["ids"].size:
            with pytest.raises(InputError, match="outside the axis"):
                native(*in_order(kernel, outside))
