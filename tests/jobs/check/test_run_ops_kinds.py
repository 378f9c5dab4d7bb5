"""Kernels that are wrong, each in one way, and what a check calls that."""

from __future__ import annotations

import ctypes
import os
import re
import time
from functools import partial

import numpy as np
import pytest

import noyau
from noyau.errors import BuildError
from noyau.toolchain.c import compiler as c_compiler

check = partial(noyau.check, generated=False)

HEAD = "#include <stdint.h>\n#include <sched.h>\nvoid k(const float *x, float *out, int64_t rows, int64_t n) {"
ROWS = "for (int64_t r = 0; r < rows; ++r)"


def sums_of(op_text: str = "f32[rows, n] -> f32[rows]"):
    @noyau.op(op_text)
    def sums(x):
        return x.sum(-1)

    return sums


def first(op, **said):
    found = check(op, **{"patience_s": 3.0, **said})
    assert found.findings, str(found)
    return found.findings[0]


def of_text(body: str, **said):
    sums = sums_of()
    sums.kernel(f"{HEAD} {body} }}", language="c", **said)
    return first(sums)


def has_openmp() -> bool:
    text = "#include <omp.h>\nint f(void) { return omp_get_max_threads(); }"
    try:
        c_compiler.compile_library([text], c_compiler.CompilerOptions(extra=("-fopenmp",)))
    except BuildError:
        return False
    return True


needs_openmp = pytest.mark.skipif(not has_openmp(), reason="the compiler has no OpenMP")
PLAIN = f"{ROWS} {{ float t = 0; for (int64_t j = 0; j < n; ++j) t += x[r * n + j]; out[r] = t; }}"
PARALLEL = f"""{ROWS} {{ double t = 0;
#pragma omp parallel for reduction(+:t)
for (int64_t j = 0; j < n; ++j) t += x[r * n + j];
out[r] = t; }}"""


@pytest.mark.parametrize(
    ("body", "kind", "told"),
    [
        (
            f"{ROWS} {{ double t = 0; for (int64_t j = 0; j < n; j += 8) for (int k = 0; k < 8; ++k)"
            " t += x[r * n + j + k]; out[r] = t; }",
            "out-of-bounds",
            r"it reads x at 1, which has 1 cell \(7 times\)",
        ),
        (
            f"{ROWS} {{ double t = 0; for (int64_t j = 0; j < n / 8 * 8; ++j) t += x[r * n + j]; out[r] = t; }}",
            "wrong-value",
            r"for x: f32\[1, 1\] .*wrong tail: only where n is no multiple of 8",
        ),
        (
            f"{ROWS} for (int64_t j = 0; j < n; ++j) out[r] += x[r * n + j];",
            "uninitialised",
            r"it reads out\[0\], which nobody wrote before",
        ),
        (f"{PLAIN} out[-1] = 0;", "out-of-bounds", "it writes out at -1, which has 1 cell"),
        (f"{PLAIN} out[rows] = 0;", "out-of-bounds", "it writes out at 1, which has 1 cell"),
        (
            f"int64_t q = rows / 4; {ROWS.replace('rows', '4 * q')} {PLAIN.partition(')')[2]}",
            "unwritten",
            r"never wrote 1 of the 1 cells of out; the first is \[0\]",
        ),
        (f"if (rows * n) ((float *)x)[0] = 1; {PLAIN}", "mutated-input", "changed its input x"),
        pytest.param("*(volatile int *)0 = 1;", "crash", r"crashed \(SIGSEGV\)", marks=pytest.mark.as_shipped),
        ("oops", "launch", "does not compile it"),
    ],
)  # fmt: skip
def test_a_kernel_in_c(body, kind, told):
    one = of_text(body)
    assert (one.kind, one.severity) == (kind, "error"), one.message
    assert re.search(told, one.message), one.message
    assert re.fullmatch(rf"sums\[k\]:{kind}(:\w+)?", one.id)


@pytest.mark.as_shipped
def test_a_long_sum_in_one_float32_is_a_warning():
    sums = sums_of()
    sums.kernel(f"{HEAD} {PLAIN} }}", language="c")
    found = check(sums)
    (one,) = found.findings
    assert (one.kind, one.severity) == ("precision", "warning")
    told = r"none below 0.*got \S+, want \S+ \(float64\).*the error grows with n: at \d+ it is within what is allowed"
    assert re.search(told, one.message)
    assert found.ok


@needs_openmp
def test_a_race_that_a_value_shows():
    racy = PARALLEL.replace("reduction(+:t)", "").replace("double t", "volatile double t")
    racy = racy.replace("t += x[r * n + j];", "{ double s = t; if (j % 7 == 0) sched_yield(); t = s + x[r * n + j]; }")
    one = of_text(racy, options={"flags": ["-fopenmp"]})
    assert one.kind == "race", one.message
    told = "runs (with 1 and . threads|on the same inputs) differ, in .* cells, by at most|nothing orders them"
    assert re.search(told, one.message)


@needs_openmp
def test_bits_that_depend_on_the_number_of_threads_are_a_warning():
    sums = sums_of()
    text = f"{HEAD} {PARALLEL.replace('out[r] = t', 'out[r] = t')} }}".replace("double t", "float t")
    sums.kernel(text.replace("float t = 0", "float t = 0"), language="c", options={"flags": ["-fopenmp"]})
    one = next(each for each in check(sums, tolerance=0.01).findings)
    assert (one.kind, one.severity) == ("order-dependent", "warning")
    assert re.search(
        "(runs with 1 and . threads|on the same inputs) differ, in .* cells, by at most .* ulp; for x: f32", one.message
    )


@needs_openmp
def test_a_parallel_kernel_whose_bits_are_always_the_same():
    sums = sums_of()
    rows = f"#pragma omp parallel for\n{PLAIN.replace('float t', 'double t')}"
    sums.kernel(f"{HEAD}\n{rows} }}", language="c", options={"flags": ["-fopenmp"]})
    found = check(sums)
    assert found.ok
    assert not found.findings
    assert "threads" in str(found)


def test_pieces_that_change_one_cell_are_a_race():
    sums = sums_of()
    text = """#include <stdint.h>
    void k(const float *x, float *out, int64_t rows, int64_t n, int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
            double t = 0;
            for (int64_t j = 0; j < n; ++j) t += x[r * n + j];
            out[r] = t;
        }
    }"""
    sums.kernel(text, language="c")
    sums.kernel(text.replace("out[r] = t;", "out[r] = t; out[0] += 1; out[0] -= 1;"), language="c", name="racy")
    sums.kernel(text.replace("out[r] = t;", "out[0] = r; out[r] = t;"), language="c", name="last")
    found = check(sums)
    assert found.kernels[0].ok
    kinds = {each.kernel: (each.kind, each.message) for each in found.findings}
    assert kinds["last"][0] == "race", kinds
    assert re.search(r"writes out\[0\], written by thread \d of 4 on the same line", kinds["last"][1])


def raises(x):
    raise ValueError("not this one")


def exits(x):
    os._exit(3)


def leaves(x):
    raise SystemExit(4)


def crashes(x):
    ctypes.string_at(0)


def hangs(x):
    while x.shape:
        time.sleep(0.01)  # it wears no processor


@pytest.mark.parametrize(
    ("deed", "told"),
    [
        (raises, "raised ValueError: not this one; for x: f32[1, 0]"),
        (exits, "ended its process with status 3; for x: f32[1, 0]"),
        (leaves, "raised SystemExit: 4; for x: f32[1, 0]"),
        (crashes, "crashed (SIGSEGV)"),
        (hangs, "did not answer within 1 s and was ended"),
    ],
)
def test_a_python_kernel_that_ends_badly_is_a_finding_and_the_next_is_tried(deed, told):
    sums = sums_of()

    @sums.kernel
    def bad(x, out):
        if len(x) == 1:
            deed(x)
        out[...] = x.sum(-1)

    @sums.kernel
    def good(x, out):
        out[...] = x.sum(-1)

    found = check(sums, patience_s=1.0)
    assert [each.kind for each in found.findings] == ["crash"]
    assert told in found.findings[0].message
    assert found.kernels[1].ok


def test_a_kernel_that_is_blind_to_strides():
    sums = sums_of()

    @sums.kernel
    def packed(x, out):
        out[...] = np.lib.stride_tricks.as_strided(x, x.shape, (4 * x.shape[1], 4)).sum(-1)

    one = first(sums)
    assert one.kind == "wrong-value"
    assert "stride-blind: it is right on packed arrays, and not on transposed ones" in one.message


def test_a_sum_that_stays_where_one_more_changes_nothing():
    @noyau.op("f16[n] -> f16", inputs=lambda rng, n=3000: (np.ones(n, np.float16),))
    def total(x):
        return x.sum()

    @total.kernel
    def serial(x):
        return np.add.accumulate(x)[-1]

    one = first(total)
    assert one.kind == "precision"
    assert "it stays at 2^11, where float16 has no number for one more" in one.message


def test_a_kernel_that_is_never_twice_the_same():
    sums = sums_of("f32[rows, n] -> f32[rows]")
    state = {"turn": 0}

    @sums.kernel
    def drifting(x, out):
        state["turn"] += 1
        out[...] = x.sum(-1) * np.float32(1 + (state["turn"] % 2) * 2.0**-23)

    found = check(sums)
    one = found.findings[0]
    assert (one.kind, one.severity) == ("order-dependent", "warning")
    assert "two runs on the same inputs differ, in " in one.message
    assert found.ok
    assert "warning: order-dependent" in str(found)


def test_what_a_kernel_spoils_is_no_fault_of_the_next_one():
    spoilt = []

    @noyau.op("f64[n] -> f64[n]")
    def double(x):
        return 2 * x

    @double.kernel
    def writes_outside(x, out):
        out[...] = 2 * x
        spoilt.append("what both stand on")
        ctypes.memset(out.ctypes.data + out.nbytes, 1, 8)

    @double.kernel
    def right(x, out):
        out[...] = 3 * x if spoilt else 2 * x

    outside, after = check(double, budget_s=0.5).kernels
    assert [each.kind for each in outside.findings] == ["out-of-bounds"]
    assert after.findings == ()


@pytest.mark.parametrize("lanes", [2, 4, 8])
def test_a_sum_in_lanes_is_right(lanes):
    @noyau.op("f32[n] -> f32[1]")
    def total(x):
        return x.sum(keepdims=True)

    @total.kernel
    def in_lanes(x, out):
        out[0] = np.sum([np.add.accumulate(x[lane::lanes])[-1:].sum() for lane in range(lanes)], dtype=np.float32)

    assert check(total).ok


def test_a_sum_of_integers_that_is_too_narrow():
    @noyau.op("i32[n] -> i64[1]")
    def total(x):
        return x.sum(dtype=np.int64, keepdims=True)

    @total.kernel
    def narrow(x, out):
        out[0] = x.sum(dtype=np.int32)

    @total.kernel
    def wide(x, out):
        out[0] = x.astype(np.int64).sum()

    found = check(total).kernels
    assert [[each.kind for each in kernel.findings] for kernel in found] == [["wrong-value"], []]
