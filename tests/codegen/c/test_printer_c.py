"""Language c: statements, loops, launches and whole texts; what it refuses, and in which words."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noyau.codegen.c import printer as c_printer
from noyau.codegen.c.spellings import comment_text
from noyau.errors import GraphError, InputError, UnsupportedError
from noyau.ir.dims import Dim, product
from noyau.ir.loops import (
    Alloc,
    Axis,
    Const,
    If,
    Index,
    Let,
    Load,
    MergeLanes,
    Prefetch,
    Require,
    Space,
    Store,
    Var,
    Zero,
)
from noyau.toolchain.c.compiler import CompilerOptions, compile_library
from noyau.toolchain.c.library import Native
from tests.batching import build_many
from tests.codegen.kernels import GOLDEN, MORE, kernel_of
from tests.nests import COL, COPY, ONE, ROW, X8, call, kernel, less, load, loop, store
from tests.nodes import F32, F64, I64

ROOT = Path(__file__).resolve().parents[3]
N, M = Dim.of("n"), Dim.of("m")
ONE_OUT = (("y", F32, [1]),)
SQUARE = ((("x", F32, ["n", "m"]),), (("y", F32, ["n", "m"]),))
THREADS, LANES = Axis.THREADS, Axis.LANES


def run(made, *arrays, **options):
    (native,) = build_many([made])
    return native.call_guarded(*arrays, **options)


def body_of(*statements, **ends):
    """The text of a kernel's only launch."""
    text = c_printer.source(kernel(*statements, **ends))
    return text[text.index("static int32_t k_0(") : text.index("static int32_t k_bind(")]


def register(name, cells=1, dtype=F32, space=Space.REGISTER):
    return Alloc(name, dtype, (Dim.of(cells),), space)


# Loops


def test_memory_that_is_zero_at_first_is_declared_so():
    """A loop over it would become a call of memset."""
    zero, out = Zero("s", F32, Dim.of(32), "#i"), store("y", load("s", 3), 0)
    assert "float s[32] = {0};" in body_of(register("s", 32), zero, out, outputs=ONE_OUT)
    for others in ((Let("a", ONE), zero), (replace(zero, extent=Dim.of(31)),)):
        assert "= {0}" not in body_of(register("s", 32), *others, out, outputs=ONE_OUT)
    assert "= {0}" not in body_of(
        register("s"), replace(zero, extent=Dim.of(1)), store("y", load("s", 0), 0), outputs=ONE_OUT
    )


def test_lanes_are_merged_in_loops_over_halves():
    """Those over many lanes need a pragma: each reads what another one holds."""
    merge = MergeLanes("sum", ("s",), (F32,), 16, "#lane")
    text = body_of(
        register("s", 16), Zero("s", F32, Dim.of(16), "#lane"), merge, store("y", load("s", 0), 0), outputs=ONE_OUT
    )
    loops = [f"for (int64_t lane = 0; lane < {half}; ++lane) s[lane] += s[lane + {half}];" for half in (8, 4, 2)]
    assert [line.strip() for line in text.splitlines() if "s[" in line][2:] == [*loops, "s[0] += s[1];", "y[0] = s[0];"]
    assert text.count("NOYAU_LANES") == 1


def test_a_hint_for_each_line():
    hint = Prefetch("x", (ROW + 8,), 3)
    lines = [line.strip() for line in body_of(loop("#i", "n", hint, COPY.body[0])).splitlines() if "PREFETCH" in line]
    assert lines == [f"NOYAU_PREFETCH(&x[i + {at}]);" for at in (8, 24, 40)]


@pytest.mark.parametrize("axis", [Axis.SERIAL, LANES, THREADS])
def test_a_loop_of_every_kind(axis):
    made = kernel(loop("#i", "n", store("y", call("add", load("x", ROW), ONE), ROW), axis=axis))
    for count in (0, 1, 8, 33):
        x = np.arange(count, dtype=np.float32)
        assert run(made, x)[0].tolist() == (x + 1).tolist()
    assert ("NOYAU_LANES" in c_printer.source(made)) == (axis is LANES)


@pytest.mark.parametrize("pieces", [1, 2, 5, 100])
def test_loops_on_threads_are_counted_as_one(pieces):
    """Three of them, in pieces that begin anywhere and run in any order, with a loop of no rounds among them or not."""
    at = (Dim.of("#a") * "m" + Dim.of("#b")) * 3 + Dim.of("#c")
    inner = store("y", Index(at), at)
    nest = loop("#a", "n", loop("#b", "m", loop("#c", 3, inner, axis=THREADS), axis=THREADS), axis=THREADS)
    made = kernel(nest, inputs=(("x", F32, ["n"]), ("z", F32, ["m"])), outputs=(("y", I64, [product(["n", "m", 3])]),))
    for n, m in ((4, 5), (1, 1), (0, 3), (3, 0)):
        arrays = np.zeros(n, np.float32), np.zeros(m, np.float32)
        (got,) = run(made, *arrays, pieces=pieces, order=lambda count: range(count)[::-1])
        assert got.tolist() == list(range(n * m * 3))


def test_what_stands_before_the_loops_on_threads_is_there_in_each_piece():
    made = kernel(
        Let("top", load("x", 0)),
        loop("#i", "n", store("y", call("add", load("x", ROW), Var("top", F32)), ROW), axis=THREADS),
    )
    assert run(made, X8 + 1, pieces=4)[0].tolist() == (X8 + 2).tolist()


def test_a_launch_without_threads_is_one_item():
    assert "/* One item. */" in body_of(COPY)
    assert run(kernel(COPY), X8, pieces=4)[0].tolist() == X8.tolist()


def test_a_loop_of_one_short_line_is_one_line():
    assert "    for (int64_t i = 0; i < n; ++i) y[i] = x[i];\n" in body_of(COPY)
    long = store("y", call("add", load("x", ROW), Const(1.2345678912345e300, F64), dtype=F64), ROW * 1_000_000_007 + 3)
    assert "for (int64_t i = 0; i < n; ++i) {\n" in body_of(loop("#i", "n", long, long))


def test_lanes_in_registers_need_no_word():
    """The compiler sees what a loop of known length does to registers; of memory it has to be told."""
    merge = loop("#i", 8, store("s", load("x", ROW), ROW, merge="sum"), axis=LANES)
    assert "NOYAU_LANES" not in body_of(register("s", 8), merge)
    assert "NOYAU_LANES" in body_of(register("s", 8, space=Space.THREAD), merge)


# Statements


def test_an_if_runs_what_is_true():
    made = kernel(loop("#i", "n", store("y", ONE, ROW), If(less(2, ROW), (store("y", load("x", ROW), ROW),))))
    assert run(made, X8)[0].tolist() == [1, 1, 1, 3, 4, 5, 6, 7]


def test_what_is_required_ends_the_kernel():
    at = Let("#at", load("k", ROW, dtype=I64))
    made = kernel(
        loop("#i", "n", at, Require(Dim.of("#at"), M), store("y", load("x", Dim.of("#at")), ROW)),
        inputs=(("x", F32, ["m"]), ("k", I64, ["n"])),
    )
    assert run(made, X8, np.array([7, 0, 3]))[0].tolist() == [7, 0, 3]
    for wrong in (8, -1, 2**62, -(2**63)):
        with pytest.raises(InputError, match="k: an index is outside the axis that it looks into"):
            run(made, X8, np.array([0, wrong]))


def test_memory_of_a_thread_is_taken_once_and_given_back():
    rows = loop("#j", "m", store("row", load("x", ROW * "m" + COL), COL))
    back = loop("#j", "m", store("y", load("row", M - 1 - COL), ROW * "m" + COL))
    memory = register("row", "m", space=Space.THREAD), register("other", 2, F64, space=Space.THREAD)
    use = store("other", Const(1.0, F64), 0)
    require = Require(Dim.of(0), N)
    made = kernel(loop("#i", "n", *memory, use, require, rows, back, axis=THREADS), inputs=SQUARE[0], outputs=SQUARE[1])
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert run(made, x, pieces=2)[0].tolist() == x[:, ::-1].tolist()
    text = c_printer.source(made)
    assert len(re.findall(r"= noyau_take\(", text)) == 2
    assert (
        text.count("noyau_give_back(row);") == text.count("noyau_give_back(other);") == 3
    )  # no memory, an index out of bounds, the end


def test_no_memory_is_a_status():
    huge = register("row", Dim.of("n") * (1 << 60), space=Space.THREAD)
    made = kernel(loop("#i", "n", huge, store("row", ONE, 0), store("y", load("row", 0), ROW), axis=THREADS))
    with pytest.raises(InputError, match="k: there is not enough memory for its scratch"):
        run(made, X8[:1])


def test_states_of_several_values_change_together():
    """Where a value reads what another one changes, all are computed before; twice in a row, each in a block."""
    state = Store(("s", "t"), (Dim.of(0),), (load("t", 0), call("add", load("s", 0), ONE)))
    first = Store(("s", "t"), (Dim.of(0),), (ONE, load("x", 0)))
    ends = {"inputs": (("x", F32, [1]),), "outputs": (("y", F32, [2]),)}
    stores = store("y", load("s", 0), 0), store("y", load("t", 0), 1)
    made = kernel(register("s"), register("t"), first, state, state, state, *stores, **ends)
    s, t = 1.0, 5.0
    for _ in range(3):
        s, t = t, s + 1
    assert run(made, np.float32([5]))[0].tolist() == [s, t]


@pytest.mark.parametrize(
    ("monoid", "start", "wanted"),
    [("sum", 0, 28), ("prod", 1, 0), ("max", -np.inf, 7), ("min", np.inf, 0)],
)
def test_merges_into_a_cell(monoid, start, wanted):
    merge = loop("#i", "n", store("s", load("x", ROW), 0, merge=monoid))
    made = kernel(register("s"), store("s", Const(start, F32), 0), merge, store("y", load("s", 0), 0), outputs=ONE_OUT)
    assert run(made, X8)[0].tolist() == [wanted]


def test_launches_run_in_order():
    bodies = [
        [loop("#i", "n", store("t", call("add", load("x", ROW), ONE), ROW), axis=THREADS)],
        [loop("#i", "n", store("y", load("t", N - 1 - ROW), ROW), axis=THREADS)],
    ]
    made = kernel(scratch=(("t", F32, ["n"]),), launches=bodies)
    assert run(made, X8, pieces=3)[0].tolist() == (X8 + 1)[::-1].tolist()


# What there is no word for


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        ((store("y", load("x", 0, 0), 0),), "c has no 2 indices of x: flatten comes before it prints"),
        ((store("y", load("x", 0), 0, 0),), "c has no 2 indices of y: flatten comes before it prints"),
    ],
)
def test_what_c_has_no_word_for_is_refused(statements, message):
    with pytest.raises(UnsupportedError, match=message):
        c_printer.source(kernel(*statements))


def test_a_name_that_nothing_binds_is_a_defect_of_the_kernel():
    with pytest.raises(GraphError, match="nothing here binds the value lost"):
        c_printer.source(kernel(store("y", Var("lost", F32), 0)))
    with pytest.raises(GraphError, match="nothing here binds the size lost"):
        c_printer.source(kernel(store("y", ONE, Dim.of("lost"))))


# Comments


@given(st.text(max_size=200))
def test_any_text_is_one_comment(text):
    made = comment_text(text)
    assert made.isascii()
    assert (made == "") == (text == "")
    if made:
        assert made.startswith("/* ")
        assert made.index("*/") == len(made) - 2
        assert made.count("/*") == 1
    assert "\\" not in made
    assert "??" not in made


@pytest.mark.parametrize(
    ("text", "comment"),
    [
        ("", ""),
        ("one\ntwo", "/* one\n   two */"),
        ("a */ b /* c", "/* a * / b / * c */"),
        ("*//*/", "/* * // * / */"),
        ("end\\", "/* end/ */"),
        ("??/", "/* ? ?/ */"),
        ("caf\u00e9 \x00\t", "/* caf? ?? */".replace("??", "? ?")),
        ("x" * 500, f"/* {'x' * 464}... */"),
    ],
)
def test_comments(text, comment):
    assert comment_text(text) == comment


# Texts


def test_a_text_compiles_alone_and_beside_others():
    """Twice in one library, where all but the table is private."""
    first, second = (replace(kernel_of("swiglu"), name=name) for name in ("first", "second"))
    library = compile_library([c_printer.source(first), c_printer.source(second)], CompilerOptions(extra=("-O0",)))
    gate, up = np.ones((2, 3), np.float32), np.full((2, 3), 2, np.float32)
    results = [Native(library, f"{name}_kernel")(gate, up)[0] for name in ("first", "second")]
    assert results[0].tobytes() == results[1].tobytes()


@cache
def texts_digest() -> str:
    """A digest of every text, with names and without."""
    made = [kernel_of(name) for name in {**GOLDEN, **MORE}]
    texts = [c_printer.source(each, anonymous=anonymous) for each in made for anonymous in (False, True)]
    return hashlib.sha256("\n".join([*texts, c_printer.together(made)]).encode()).hexdigest()


def test_texts_have_no_hidden_inputs(tmp_path):
    """Another process, with other hashes, another folder and other words for months, prints the same bytes."""
    script = "from tests.codegen.c.test_printer_c import texts_digest; print(texts_digest())"
    environment = {**os.environ, "PYTHONHASHSEED": "4711", "PYTHONPATH": str(ROOT), "LC_ALL": "C", "TZ": "Asia/Tokyo"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == texts_digest(), done.stderr


def test_loads_that_are_not_touched_are_not_declared():
    """Only the buffers and the sizes that a launch names stand at its head."""
    text = body_of(store("y", Load("x", (Dim.of(0),), F32), 0), inputs=(("x", F32, ["n"]), ("z", F32, ["m"])))
    assert "*restrict x = call->buffers[0]; /* [n] */" in text
    assert "*restrict z" not in text
    assert "int64_t n = " not in text
