"""What a watched run says of kernels that crash, hang, do not end, or do not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from noyau.errors import BuildError, SignatureError, UnsupportedError
from noyau.sanitizer.c import kernel as c_kernel
from noyau.sanitizer.c import run as c_run
from noyau.sanitizer.c.kernel import watch
from noyau.sanitizer.lint.idle_lines import idle_lines
from tests.sanitizer.c.cases import Wanted, case_of, floats, told, watched

PATH = Path(__file__).parent / "odd.cu"
FLOATS, INTS = "-> out: f32[64]", "-> out: i32[64]"
X = floats(64)


def grid(entry, signature, launch=(1, 64), arguments=(), parameters="", **usage):
    return Wanted(entry, signature, parameters, arguments, {"launch": launch, **usage})


# Each with what is said of it, or of it first.
SAID = {
    grid("crashes", FLOATS): "crash 2: it crashes, after thread 0 of block 0 reached line 2",
    grid("never_ends", "-> out: i32[1]", launch=(1, 1), init={"out": 0}): (
        "crash 4: it does not end, after thread 0 of block 0 reached line 4"
    ),
    grid("leaves", INTS): "crash 12: it ends its process",
    grid("divides", INTS): "crash 13: it divides by zero, or overflows",
    grid("mutates", "f32[n] -> out: f32[n]", arguments=(X,), parameters="x"): "mutated-input 14: changed its input x",
    grid("two_barriers", FLOATS): (
        "divergent-barrier 21: thread 32 of block 0 waits at a barrier, and thread 0 of block 0 at another one on "
        "line 19"
    ),
    grid("wrong_mask", INTS): (
        "divergent-barrier 25: thread 0 of block 0 waits for thread 16 of block 0, which is elsewhere on line 27"
    ),
    grid("without_its_lane", "-> out: i32[32]", (1, 32)): (
        "divergent-barrier 29: thread 1 of block 0 calls with a mask that leaves out its own lane"
    ),
    grid("of_another_lane", "-> out: i32[16]", (1, 16)): (
        "divergent-barrier 31: thread 8 of block 0 asks for the value of a lane that the block does not have"
    ),
    grid("past_shared", FLOATS, (1, 64, 256)): (
        "out-of-bounds 35: thread 63 of block 0 writes s at 64, which has 64 cells"
    ),
    grid("same_value", "-> out: i32[1]"): (
        "written-twice 38: thread 32 of block 0 writes out[0], written by thread 31 of block 0 on the same line, the "
        "same value, and nothing orders them (63 times)"
    ),
    grid("counts_down", "-> out: f32[63]"): (
        "out-of-bounds 39: thread 0 of block 0 writes out at -1, which has 63 cells"
    ),
    grid("fills", "-> out: f32[2048]", (1, 2048)): "launch 43: a block has more than 1024 threads",
    Wanted("host_reads", "f32[n] -> out: f32[1]", "x", (X,)): (
        "crash 48: the host touches memory of the device at d, after it reached line 48"
    ),
    Wanted("host_frees_twice", "-> out: f32[1]", "", ()): ("crash 55: freed twice at d, after it reached line 55"),
}
ALLOWED = grid("allowed", "-> out: i32[1]", init={"out": 0})
WAITS = grid("waits_for_others", "-> out: i32[1]", init={"out": 0})


@pytest.fixture(scope="module")
def odd():
    with pytest.MonkeyPatch.context() as patch:
        run = c_run.run
        patch.setattr(c_kernel, "run", lambda *given, **named: run(*given, patience_s=0.3, **named))
        return watched(PATH, [*SAID, ALLOWED, WAITS])


@pytest.mark.parametrize("wanted", SAID, ids=lambda each: each.entry)
def test_it_says_what_is_wrong(odd, wanted):
    assert SAID[wanted] in told(odd[wanted.entry])


def test_a_mark_allows_a_race_with_its_reason(odd):
    seen = odd["allowed"]
    assert told(seen) == []
    assert "an estimate is enough" in seen.allowed[0]


def test_a_thread_that_spins_gives_its_turn_to_whom_it_waits_for(odd):
    assert told(odd["waits_for_others"]) == []


def cuda(text, signature="f32[n] -> out: f32[n]", usage=None, entry="f"):
    return case_of(text, "cuda", "a text", Wanted(entry, signature, "x", (X,), usage or {"launch": (1, 64)}))


HEAD = "__global__ void f(const float *x, float *out, int n) {\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + 'asm("nop;");}', "line 2 uses asm: PTX cannot be watched without a GPU"),
        (
            HEAD + "cub::DeviceRadixSort::SortKeys(x, n);}",
            "line 2 uses cub: the rest of cub cannot be watched without a GPU",
        ),
        ("__device__ int g;\nvoid f(const float *x, float *out, int n) {\n<<<1, 2>>>(x); }", "the launch on line 3"),
        (
            "extern float other(float);\n" + HEAD + "out[0] = other(x[0]);}",
            "line 3 calls other, which cannot be watched",
        ),
    ],
)
def test_what_cannot_be_watched_is_named_with_its_line(text, message):
    with pytest.raises(UnsupportedError, match=".*" + message.replace("(", r"\(")):
        watch(cuda(text))


def test_a_text_that_does_not_compile_is_an_error_of_the_compiler():
    with pytest.raises(BuildError, match=r"kernel.c:2:\d+: error"):
        watch(cuda(HEAD + "out[0] = y;}"))


@pytest.mark.parametrize(
    ("usage", "message"),
    [
        ({}, "say with launch="),
        ({"launch": lambda n: n}, r"gives 64; give \(grid, block\)"),
        ({"launch": lambda n: (1.5, n)}, "gives 1.5; a grid or a block is one to three integers"),
        ({"launch": (1, 64), "args": lambda x, out: (x, out)}, "gives 2 arguments, and f takes 3"),
        ({"launch": (1, 64), "args": lambda x: x}, "gives a Buffer; it gives a tuple"),
        ({"launch": (1, 64), "args": lambda x, out: (x, out, "n")}, "'n' is no number"),
    ],
)
def test_a_call_that_does_not_fit_is_refused(usage, message):
    with pytest.raises(SignatureError, match=message):
        watch(cuda(HEAD + "out[0] = 1;}", usage=usage or {"launch": None}))


PIECES = """
#include <stdint.h>
void f(const float *x, float *out, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
        out[i] = x[i];
        BESIDE
    }
}
"""


@pytest.mark.parametrize(("beside", "kinds"), [("", set()), ("if (i + 1 < 64) out[i + 1] = 0;", {"race"})])
def test_pieces_of_a_range_may_not_meet(beside, kinds):
    text = PIECES.replace("BESIDE", beside)
    case = case_of(text, "c", "a text", Wanted("f", "f32[n] -> out: f32[n]", "x", (X,)))
    assert {each.kind for each in watch(case).findings} == kinds


def test_a_text_within_a_file_has_its_lines():
    case = case_of(
        "\nvoid f(const float *x, float *out, int n) {\n  out[n] = 0; }",
        "c",
        "a.py",
        Wanted("f", "f32[n] -> out: f32[n]", "x", (X,)),
    )
    seen = watch(replace(case, kernel=replace(case.kernel, line=10)))
    assert seen.findings[0].place == "a.py:12"


def test_constants_updates_and_results_that_are_returned():
    text = (
        "double f(const float *x, int n) {\n double s = 0;\n for (int i = 0; i < n; i++) s += K * x[i];\n return s; }"
    )
    case = case_of(text, "c", "a text", Wanted("f", "f32[n] -> out: f64[]", "x", (X,), {"constants": {"K": 3}}))
    seen = watch(case)
    assert seen.findings == ()
    np.testing.assert_allclose(seen.outputs[0], 3 * X.sum(dtype="f8"), rtol=1e-6)
    text = "void f(float *x, int n) {\n for (int i = 0; i < n; i++) x[i] *= 2;\n if (n > 99)\n x[0] = 1; }"
    case = case_of(text, "c", "a text", Wanted("f", "f32[n] -> out: f32[n]", "x", (X,), {"updates": ("x",)}))
    seen = watch(case)
    assert seen.findings == ()
    assert idle_lines(case.kernel, seen.lines) == (4,)
    np.testing.assert_array_equal(seen.outputs[0], 2 * X)
