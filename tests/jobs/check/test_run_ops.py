from __future__ import annotations

import json
import re
import shutil
import time
from functools import partial

import numpy as np
import pytest

import noyau
from noyau.dtypes import DType
from noyau.errors import CheckError, InputError, SignatureError
from noyau.kernels import trust as kernels_trust
from noyau.kernels.trust import is_checked
from noyau.sanitizer.c import build
from noyau.toolchain import cache

check = partial(noyau.check, generated=False)

SOFTMAX = """
#include <math.h>
#include <stdint.h>
void softmax(const float *x, float *out, int64_t rows, int n) {
    for (int64_t r = 0; r < rows; ++r) {
        float top = -INFINITY, total = 0;
        for (int i = 0; i < n; ++i) top = x[r * n + i] > top || x[r * n + i] != x[r * n + i] ? x[r * n + i] : top;
        for (int i = 0; i < n; ++i) total += out[r * n + i] = expf(x[r * n + i] - top);
        for (int i = 0; i < n; ++i) out[r * n + i] /= total;
    }
}
"""


@pytest.fixture(scope="module")
def objects():
    """What was compiled here by now, with what every watched kernel is linked with: that takes a second."""
    build.build_program(build.Source("void k(float *x) { x[0] = 1; }", "c"))
    return list(cache.folder().glob("*.o"))


@pytest.fixture
def softmax(objects, empty_cache, monkeypatch):
    """An op of which no kernel has been checked yet."""
    monkeypatch.setattr(kernels_trust, "_SEEN", set())
    for path in objects:
        shutil.copy2(path, cache.folder())

    @noyau.op("f32[*rows, n] -> f32[*rows, n]")
    def softmax(x):
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    return softmax


def finding(op, text: str | None = None, kind: str = "", **said):
    """The first finding of a check of one kernel in C, or the first of a kind."""
    if text is not None:
        op.kernel(text, language="c")
    found = check(op, **{"patience_s": 5.0, **said})
    assert not found.ok
    return next((each for each in found.findings if each.kind == kind), found.findings[0])


def test_a_right_kernel_is_right_and_then_runs(softmax):
    softmax.kernel(SOFTMAX, language="c")
    found = check(softmax, budget_s=300)  # all cases, however slow the machine
    assert found.ok
    found.raise_if_bad()
    told = str(found)
    assert told.startswith("softmax[softmax]: agreed on ")
    assert "accesses" in told
    assert "cases left out that the reference refuses" in told  # max of no columns
    shapes = found.kernels[0].shapes
    assert {"x: f32[5, 3]", "x: f32[5, 33]", "x: f32[5, 1]", "x: f32[0, 3]", "x: f32[33]", "x: f32[5, 3, 7]"} <= set(
        shapes
    )
    assert is_checked(softmax.kernels["softmax"], softmax.description.reference, softmax.instance([DType.F32], [2]))


def test_large_inputs_are_not_so_large_that_results_outgrow_them(empty_cache):
    """Where results have as many cells as the square of the inputs, sizes grow no further than results may."""

    @noyau.op("f32[n] -> f32[n, n]")
    def outer(x):
        return x[:, None] * x

    @outer.kernel
    def in_numpy(x, out):
        np.multiply(x[:, None], x, out=out)

    found = check(outer)
    assert found.ok
    lengths = [int(re.search(r"f32\[(\d+)\]", told)[1]) for told in found.kernels[0].shapes]
    assert 128 < max(lengths) <= 512


@pytest.mark.parametrize(
    ("before", "after", "kind", "told"),
    [
        (
            "out[r * n + i] /= total",
            "out[r * n + i] /= i < 40 ? total : 2 * total",
            "wrong-value",
            r"wrong at out\[0, 40\] for x: f32\[1, 41\] \(normal numbers, .*n = 41\): got .*, want .* \(float64\)",
        ),
        ("/= total", "/= total + 1e-4f", "wrong-value", r"wrong at out\[0, 0\] for x: f32\[1, 1\]"),
        (
            "i < n; ++i) out[r * n + i] /",
            "i <= n; ++i) out[r * n + i] /",
            "out-of-bounds",
            "reads out at 1, which has 1 cell",
        ),
        ("float top", "if (n == 33) *(volatile int *)0 = 1; float top", "crash", "crashe[sd]"),
        ("float top", "((float *)x)[0] += 1; float top", "mutated-input", "changed its input x"),
        (
            "out[r * n + i] = expf(x[r * n + i] - top)",
            "expf(x[r * n + i] - top)",
            "unwritten",
            "never wrote 1 of the 1 cells of out; the first is",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_at_the_smallest_size(softmax, before, after, kind, told):
    assert before in SOFTMAX
    text = SOFTMAX.replace(before, after)
    if kind == "unwritten":
        text = re.sub(r"for \(int i = 0; i < n; \+\+i\) out\[r \* n \+ i\] /= total;", "(void)total;", text)
    one = finding(softmax, text, kind)
    assert one.kind == kind
    assert re.search(told, one.message), one.message
    assert one.remedy
    assert not is_checked(softmax.kernels["softmax"], softmax.description.reference, softmax.instance([DType.F32], [2]))


def test_a_kernel_that_hangs_is_ended_once(softmax):
    text = SOFTMAX.replace("float top", "for (volatile int k = 1; k;) ; float top")
    one = finding(softmax, text, patience_s=1.0)
    assert one.kind == "crash"
    assert "did not answer within 1 s and was ended" in one.message


def test_a_kernel_that_does_not_build(softmax):
    one = finding(softmax, SOFTMAX.replace("float top", "oops top"))
    assert one.kind == "launch"
    assert "does not compile it" in one.message


def test_the_error_has_the_first_finding(softmax):
    softmax.kernel(SOFTMAX.replace("/= total", "= 0"), language="c")
    with pytest.raises(CheckError, match=r"softmax\[softmax\] is wrong at out\[0, 0\] for x: f32\[1, 1\]"):
        check(softmax).raise_if_bad()


def test_the_record_as_json(softmax, monkeypatch):
    softmax.kernel(SOFTMAX, language="c", name="good")
    softmax.kernel(SOFTMAX.replace("/= total", "= 0"), language="c", name="bad")
    monkeypatch.setattr("noyau.jobs.check.candidates.is_watched", lambda language: language != "cuda")
    softmax.kernel("__global__ void f() {}", language="cuda", entry="f")
    found = check(softmax)
    told = json.loads(json.dumps(found.to_json()))
    assert told["schema_version"] == 1
    assert told["ok"] is False
    first = next(each for each in told["findings"] if each["kernel"] == "bad")
    assert (first["op"], first["kernel"], first["language"], first["severity"]) == ("softmax", "bad", "c", "error")
    assert first["cell"] == [0, 0]
    assert first["file"] == "a text"
    assert (first["id"], first["kind"], first["other_line"], first["owners"]) == (
        "softmax[bad]:wrong-value",
        "wrong-value",
        None,
        [],
    )
    assert [each["kernel"] for each in told["checked"]] == ["good", "bad", "f"]
    assert set(told["checked"][0]) == {"op", "kernel", "shapes", "accesses"}
    assert "needs a GPU" in told["kernels"][2]["skipped"]
    assert told["kernels"][0]["certificate"]["ok"] is True
    assert told["tolerance"] is None
    assert "only the inputs, shapes and branches that ran were seen" in told["limits"]
    assert "softmax[f]: not checked: it is in cuda" in str(found)


def test_an_op_without_kernels(softmax):
    found = check(softmax)
    assert found.ok
    assert "softmax has no kernel to check" in str(found)


def test_python_callables_are_tried_on_strided_arrays():
    @noyau.op("f32[rows, n] -> f32[rows]")
    def sums(x):
        return x.sum(-1)

    @sums.kernel
    def right(x, out):
        out[...] = x.sum(-1)

    @sums.kernel
    def packed(x, out):
        rows = np.lib.stride_tricks.as_strided(x, x.shape, (4 * x.shape[1], 4))
        out[...] = rows.sum(-1)

    found = check(sums)
    assert found.kernels[0].ok
    first = found.findings[0]
    assert first.kernel == "packed"
    assert "transposed arrays, normal numbers" in first.message
    assert "for x: f32[2, 2]" in first.message


def test_inputs_that_are_constrained_come_from_the_maker():
    @noyau.op(
        "f32[n], i64[m] -> f32[m]",
        inputs=lambda rng, n=20, m=30: (rng.standard_normal(n).astype(np.float32), rng.integers(0, n, m)),
    )
    def take(x, at):
        return x[at]

    text = """void take(const float *x, const long *at, float *out, long m) {
        for (long i = 0; i < m; ++i) out[i] = x[at[i]]; }"""
    take.kernel(text, language="c")
    found = check(take)
    assert found.ok, str(found)
    assert {"x: f32[20], at: i64[30]", "x: f32[1], at: i64[30]", "x: f32[20], at: i64[97]"} <= set(
        found.kernels[0].shapes
    )
    take.kernel(text.replace("i < m", "i < m / 4 * 4"), language="c", name="tail")
    assert check(take).findings[0].size == "n = 1, m = 1"


def test_an_integer_that_gives_a_size_takes_several():
    @noyau.op("i32[n], i64 -> hist: i32[bins]")
    def histogram(x, bins):
        return np.bincount(np.mod(x, bins), minlength=bins).astype(np.int32)

    text = """void histogram(const int *x, long bins, int *hist, long n) {
        for (long i = 0; i < n; ++i) hist[((x[i] % bins) + bins) % bins] += 1; }"""
    histogram.kernel(text, language="c", init={"hist": 0})
    assert check(histogram).ok
    histogram.kernel(text.replace("% bins]", "% 10]"), language="c", init={"hist": 0}, name="ten")
    assert check(histogram).findings[0].kernel == "ten"


def test_a_reference_that_takes_none_of_the_inputs():
    @noyau.op("f32[n], i64[m] -> f32[m]")
    def take(x, at):
        return x[at + 1000]

    take.kernel("void take(const float *x, const long *at, float *out) {}", language="c")
    with pytest.raises(InputError, match=r"no inputs could be made up that its reference takes: .*; give inputs="):
        check(take)


def test_what_to_write_where_a_reference_takes_one_size_that_nobody_guesses():
    @noyau.op("f32[n] -> f32[n]")
    def negated(x):
        assert x.shape[0] == 4096
        return np.array([-each for each in x], np.float32)

    negated.kernel(
        "void negated(const float *x, float *out, long n) { for (long i = 0; i < n; ++i) out[i] = -x[i]; }",
        language="c",
    )
    told = r'give inputs=, as inputs=lambda rng, n=64: \(rng.standard_normal\(n\).astype\("float32"\),\) with sizes'
    with pytest.raises(InputError, match=told):
        check(negated)


def test_a_reference_that_is_not_as_it_is_signed():
    @noyau.op("f32[n] -> f32[n]")
    def halved(x):
        return x * np.float64(0.5)

    halved.kernel(lambda x, out: None, name="k")
    with pytest.raises(SignatureError, match="gives out as f64, and it is declared f32"):
        check(halved)


def test_an_op_without_a_signature_cannot_be_checked():
    @noyau.op
    def double(x):
        return x + x

    double.kernel(lambda x: x * 2, name="k")
    with pytest.raises(SignatureError, match="double has no signature, so its kernels cannot be checked; give it one"):
        check(double)


def test_sizes_that_are_asked_for():
    @noyau.op("f32[*rows, n] -> f32[*rows, n]")
    def double(x):
        return x + x

    double.kernel(lambda x, out: np.add(x, x, out=out), name="k")
    assert "x: f32[9, 50]" in check(double, sizes={"rows_0": 9, "n": 50}).kernels[0].shapes
    for sizes, told in [
        ({"m": 3}, "double has no size m; its sizes are: n, rows_0, rows_1"),
        ({"n": -3}, "double: n is -3, and a size is an integer from 0"),
    ]:
        with pytest.raises(SignatureError, match=told):
            check(double, sizes=sizes)


def test_a_tolerance_overrides_the_certificate_and_is_told():
    @noyau.op("f32[n] -> f32[n]")
    def root(x):
        return np.sqrt(np.abs(x))

    @root.kernel
    def coarse(x, out):
        out[...] = np.sqrt(np.abs(x)) * np.float32(1.001)

    assert check(root).findings[0].kind in ("precision", "wrong-value")
    found = check(root, tolerance=0.01)
    assert found.ok
    assert "allowed by request: 0.01 * max(1, |want|)" in str(found)
    assert found.to_json()["tolerance"] == {"root": 0.01}
    assert not check(root, tolerance=1e-5).ok
    with pytest.raises(InputError, match=r"the tolerance is -1; give a number above 0, such as 1e-3"):
        check(root, tolerance=-1)


def test_kernels_that_take_long_to_compile_are_tried_all_the_same():
    """What is quickly done with is tried some times, however long the first one took."""

    @noyau.op("f64[n] -> f64[n]")
    def halved(x):
        return x / 2

    compiled = []

    @halved.kernel
    def by_two(x, out):
        while not compiled or time.process_time() < compiled[0]:
            compiled[:] = compiled or [time.process_time() + 0.2]
        np.divide(x, 2, out=out)

    (found,) = check(halved, budget_s=0).kernels
    assert found.certificate is not None
    assert len(found.certificate.outcomes) >= 10


def test_values_on_transposed_arrays_are_looked_at_however_late_it_is():
    """Numba 0.68 takes a transposed array for a packed one where it writes a stencil of it into a slice; so here."""

    @noyau.op("f64[m, n] -> f64[m, n]")
    def smoothed(x):
        out = np.zeros_like(x)
        out[1:-1] = (x[:-2] + x[1:-1] + x[2:]) / 3
        return out

    @smoothed.kernel
    def by_stencil(x, out):
        packed = np.lib.stride_tricks.as_strided(x, x.shape, (8 * x.shape[1], 8))
        out[...] = smoothed.reference(packed)

    (found,) = check(smoothed, budget_s=0).kernels
    assert [finding.kind for finding in found.findings] == ["wrong-value"]
    assert "stride-blind: it is right on packed arrays, and not on transposed ones" in found.findings[0].message
