from __future__ import annotations

import numpy as np
import pytest

from noyau.codegen.c import printer as c_printer
from noyau.compiler.schedules.sharing import place_syncs, privatise
from noyau.errors import GraphError, UnsupportedError
from noyau.ir.dims import Dim, shape_of
from noyau.ir.loop_interpreter import run
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Alloc, Axis, Const, If, Index, Let, Loop, Require, Space, Store, Sync, Var
from noyau.ir.monoids import MONOIDS
from noyau.ir.walk import every_statement
from tests.nests import COL, F32, ONE, ROW, N, call, kernel, less, load, loop, store
from tests.nodes import I64

IDS = np.array([3, 0, 3, 1, 3, 2, 0, 3, 1, 1], np.int64)
BINS = 5


def histogram(change=lambda counted: counted, axis=Axis.THREADS):
    """How often each number comes, in chunks of 3 on threads."""
    at = Dim.of("#chunk") * 3 + ROW
    count = (
        Let("#at", load("ids", at, dtype=I64)),
        Require(Dim.of("#at"), Dim.of(BINS)),
        store("hist", ONE, "#at", merge="sum"),
    )
    chunks = loop("#chunk", (N + 2) // 3, loop("#i", 3, If(less(at, N), count)), axis=axis)
    begin = loop("#b", BINS, store("hist", call("subtract", ONE, ONE), "#b"))
    outputs = [("hist", F32, [BINS])]
    return kernel(inputs=[("ids", I64, ["n"])], outputs=outputs, launches=[(begin,), (change(chunks),)])


def test_merges_go_to_memory_of_each_round():
    whole = histogram()
    memory = [buffer for buffer in whole.buffers if buffer.name == "hist"]
    own = check(histogram(lambda chunks: privatise(chunks, memory, Space.THREAD)))
    wanted = np.bincount(IDS, minlength=BINS)
    for made in (check(whole), own):
        for seed in range(4):
            np.testing.assert_array_equal(run(made, [IDS], seed=seed)[0], wanted)
    stores = [s for s in every_statement(own.launches[1].body) if isinstance(s, Store) and s.buffers == ("hist",)]
    assert [store.index for store in stores] == [(Dim.of("#own_hist"),)]  # one merge for each bin, at the end


def test_states_of_several_parts_go_together():
    """argmax by chunks."""
    memory = [Alloc(name, dtype, shape_of([1]), Space.REGISTER) for name, dtype in (("best", F32), ("at", I64))]
    names, values = ("best", "at"), MONOIDS["argmax"].init(F32)
    assert values[0] == -np.inf
    at = Dim.of("#chunk") * 4 + ROW
    take = If(less(at, N), (Store(names, (Dim.of(0),), (load("x", at), Index(at)), "argmax"),))
    chunks = loop("#chunk", (N + 3) // 4, loop("#i", 4, take))
    empty = Store(names, (Dim.of(0),), tuple(map(Const, values, (F32, I64))))
    end = store("y", load("at", 0, dtype=I64), 0)
    for inner in (chunks, privatise(chunks, memory, Space.REGISTER)):
        made = check(kernel(*memory, empty, inner, end, outputs=[("y", I64, [1])]))
        for x in ([1, 5, 2, 5, 0, 5], [1, 2, 9], [1, np.nan, 9, 9, 9, np.nan]):
            assert run(made, [np.array(x, np.float32)])[0] == np.argmax(x)


def test_memory_that_is_also_read_cannot_be_private():
    memory = [Alloc("m", F32, shape_of([1]), Space.REGISTER)]
    reads = loop("#i", "n", store("m", load("m", 0), 0, merge="sum"))
    assigns = loop("#i", "n", store("m", ONE, 0))
    mixed = loop("#i", "n", store("m", ONE, 0, merge="sum"), store("m", ONE, 0, merge="max"))
    for inner in (reads, assigns, mixed):
        with pytest.raises(UnsupportedError, match="the loop over #i does more with m than to merge into it"):
            privatise(inner, memory, Space.REGISTER)


def test_language_c_has_no_merge_of_threads():
    with pytest.raises(UnsupportedError, match="c has no merge of threads into hist; privatise gives each its own"):
        c_printer.source(histogram())
    assert "hist[ids_i] += 1.0f;" in c_printer.source(histogram(axis=Axis.SERIAL))


def shared(*body, threads=8, output="n"):
    """A launch of threads that share memory of one cell for each."""
    memory = Alloc("s", F32, shape_of([threads]), Space.SHARED)
    given = [("x", F32, [threads])]
    return (memory, loop("#i", threads, *body, axis=Axis.THREADS)), given, [("y", F32, [threads])]


def built(body, given, outputs, syncs):
    made = kernel(*(place_syncs(body) if syncs else body), inputs=given, outputs=outputs)
    return check(made)


NEXT = (ROW + 1) % 8
SWAP = (store("s", load("x", ROW), ROW), store("y", load("s", NEXT), ROW))
TWICE = (*SWAP[:1], Let("a", load("s", NEXT)), store("s", Var("a", F32), ROW), store("y", load("s", NEXT), ROW))
TURNS = (
    SWAP[0],
    loop("#t", 3, Let("a", load("s", NEXT)), store("s", Var("a", F32), ROW)),
    store("y", load("s", ROW), ROW),
)


@pytest.mark.parametrize(("body", "turns", "syncs"), [(SWAP, 1, 1), (TWICE, 2, 3), (TURNS, 3, 3)])
def test_threads_wait_where_they_read_what_another_wrote(body, turns, syncs):
    x = np.arange(8, dtype=np.float32)
    with pytest.raises(GraphError, match=r"two threads meet in s.* without a Sync|s\[.\] is read before it is set"):
        run(built(*shared(*body), syncs=False), [x])
    made = built(*shared(*body), syncs=True)
    for seed in range(5):
        np.testing.assert_array_equal(run(made, [x], seed=seed)[0], np.roll(x, -turns))
    found = [s for s in every_statement(made.launches[0].body) if isinstance(s, Sync)]
    assert len(found) == syncs


def test_threads_that_share_nothing_never_wait():
    body, given, outputs = shared(store("s", load("x", ROW), ROW), store("y", load("x", ROW), ROW))
    assert place_syncs(body) == body
    serial = (loop("#i", 8, store("y", load("x", ROW), ROW)),)
    assert place_syncs(serial) == serial
    assert given
    assert outputs


def test_threads_in_threads():
    own = ROW * 2 + COL
    swap = (store("s", load("x", own), own), store("y", load("s", (own + 1) % 8), own))
    nest = loop("#i", 4, Loop("#j", Dim.of(2), Axis.THREADS, swap), axis=Axis.THREADS)
    body = place_syncs((Alloc("s", F32, shape_of([8]), Space.SHARED), nest))
    assert len([s for s in every_statement(body) if isinstance(s, Sync)]) == 1


def test_where_not_every_thread_comes_none_can_wait():
    unequal = Loop("#t", ROW, Axis.SERIAL, (Let("a", load("s", NEXT)), store("s", Var("a", F32), ROW)))
    body, _, _ = shared(SWAP[0], unequal)
    with pytest.raises(UnsupportedError, match="threads run the loop over #t unequally: they cannot wait in it"):
        place_syncs(body)
    body, _, _ = shared(If(less(ROW, 3), (Let("a", load("s", NEXT)), store("s", Var("a", F32), ROW))))
    with pytest.raises(UnsupportedError, match="only some threads come to a condition: they cannot wait in it"):
        place_syncs(body)
