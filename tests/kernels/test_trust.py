from __future__ import annotations

import numpy as np
import pytest

import noyau
from noyau.dtypes import DType
from noyau.errors import OutputError
from noyau.kernels import trust as kernels_trust
from noyau.kernels.trust import ineligible, is_checked, remember, revoke
from tests.kernels.written import attached, op_of

TEXT = "void f(const float *x, float *out, long n) { for (long i = 0; i < n; ++i) out[i] = x[i]; }"


@pytest.fixture
def op(empty_cache, monkeypatch):
    monkeypatch.setattr(kernels_trust, "_SEEN", set())
    monkeypatch.setattr(kernels_trust, "_FAULTS", {})
    return op_of("float[n] -> float[n]")


def instance(op, dtype=DType.F32, rank=1):
    return op.instance([dtype], [rank])


def reason(op, kernel, dtype=DType.F32, rank=1, **constants) -> str:
    return ineligible(kernel, op.description.reference, instance(op, dtype, rank), constants)


def test_a_kernel_runs_once_it_was_checked_as_it_is(op, monkeypatch):
    kernel = attached(op, TEXT)
    assert "has not been checked yet as it is: noyau.check(op) does that" in reason(op, kernel)
    remember(kernel, op.description.reference, [instance(op)], {"ok": True})
    assert reason(op, kernel) == ""
    monkeypatch.setattr(kernels_trust, "_SEEN", set())
    assert is_checked(kernel, op.description.reference, instance(op))  # from the disk


@pytest.mark.parametrize(
    "other",
    [
        {"text": TEXT.replace("= x", "= -x")},
        {"text": TEXT, "init": {"out": 0}},
        {"text": TEXT, "options": {"flags": ["-O1"]}},
        {"text": TEXT, "constants": {"BLOCK": 3}},
    ],
)
def test_what_else_is_another_kernel(op, other):
    remember(attached(op, TEXT), op.description.reference, [instance(op)], {})
    text = other.pop("text")
    kernel = attached(op, text, name="other", **other)
    assert not is_checked(kernel, op.description.reference, instance(op))


def test_another_reference_or_dtype_is_another_check(op):
    kernel = attached(op, TEXT)
    remember(kernel, op.description.reference, [instance(op)], {})
    assert not is_checked(kernel, op.description.reference, instance(op, DType.F64))
    assert not is_checked(kernel, op_of("float[n] -> float[n]", "x, *, eps=0").description.reference, instance(op))
    assert "noyau.check has not found it right with f64: it says why" in reason(op, kernel, DType.F64)


def test_a_kernel_runs_on_as_many_axes_as_it_was_checked_with(empty_cache, monkeypatch):
    """What loops over two axes gives other numbers, or reads elsewhere, on three."""
    monkeypatch.setattr(kernels_trust, "_SEEN", set())
    op = op_of("float[*batch, n] -> float[*batch, n]")
    op.kernel(lambda x, out: None, name="rows")
    kernel = op.kernels["rows"]
    remember(kernel, op.description.reference, [instance(op, rank=2), instance(op, DType.F64, 1)], {})
    assert reason(op, kernel, rank=2) == reason(op, kernel, DType.F64, 2) == reason(op, kernel, rank=1) == ""
    assert "has not found it right with 2 axes for *batch: it says why" in reason(op, kernel, rank=3)
    remember(kernel, op.description.reference, [instance(op, rank=3)], {})
    assert reason(op, kernel, rank=3) == ""
    assert "with 6 axes for *batch:" in reason(op, kernel, rank=7)


def test_a_trusted_kernel_needs_no_check_but_fits(op):
    kernel = attached(op, TEXT, trust=True)
    assert reason(op, kernel) == ""
    assert "cannot hold x: f64[n]" in reason(op, kernel, DType.F64)


def test_a_kernel_that_does_not_build_says_why(op):
    assert "does not compile it" in reason(op, attached(op, "void f(const float *x, float *out) { oops; }", trust=True))


def test_a_language_that_is_not_called_from_numpy(op):
    kernel = op.kernel("__global__ void f() {}", language="cuda", entry="f", trust=True)
    assert reason(op, kernel) == "it is in cuda, which NumPy arrays cannot be given to"


def multiplying(op, factor):
    """The op's kernel by a function that reads its factor around it."""

    def kernel(x, out):
        out[...] = x * factor

    op.kernel(kernel, name=f"by {factor}")
    return op.kernels[f"by {factor}"]


def test_what_a_function_reads_around_it_is_checked_with_it(op):
    doubling, tripling = multiplying(op, 2), multiplying(op, 3)
    assert doubling.text == tripling.text
    remember(doubling, op.description.reference, [instance(op)], {})
    assert reason(op, doubling) == ""
    assert "has not been checked yet as it is" in reason(op, tripling)


def test_references_of_one_text_that_read_other_numbers_are_other_references(op):
    def by(factor):
        return noyau.op("float[n] -> float[n]")(lambda x: x * factor)

    kernel = attached(op, TEXT)
    remember(kernel, by(2).description.reference, [instance(op)], {})
    assert is_checked(kernel, by(2).description.reference, instance(op))
    assert not is_checked(kernel, by(3).description.reference, instance(op))


def test_a_check_that_finds_a_kernel_wrong_revokes_what_others_showed(op):
    kernel, reference = attached(op, TEXT), op.description.reference
    remember(kernel, reference, [instance(op)], {})
    revoke(kernel, reference, "wrong-value: wrong at out[3]")
    assert reason(op, kernel) == "noyau.check finds it wrong: wrong-value: wrong at out[3]"
    assert not is_checked(kernel, reference, instance(op))
    remember(kernel, reference, [instance(op)], {})
    assert reason(op, kernel) == ""


def test_what_a_check_finds_wrong_is_known_to_its_process_where_the_disk_does_not_take_it(op, monkeypatch):
    def refuse(key, record):
        raise OutputError("no room")

    kernel, reference = attached(op, TEXT), op.description.reference
    remember(kernel, reference, [instance(op)], {})
    monkeypatch.setattr(kernels_trust.cache, "keep", refuse)
    revoke(kernel, reference, "crash: it crashed")
    assert reason(op, kernel) == "noyau.check finds it wrong: crash: it crashed"
    remember(kernel, reference, [instance(op)], {})
    assert reason(op, kernel) == ""


def test_a_function_is_known_by_its_text(op):
    scope = {}
    exec("def made(x, out):\n    out[...] = x", scope)
    op.kernel(np.positive, name="ufunc", returns=True)
    op.kernel(scope["made"], returns=False)
    for kernel in op.kernels.values():
        remember(kernel, op.description.reference, [instance(op)], {})
        assert is_checked(kernel, op.description.reference, instance(op))


def test_a_function_that_does_not_take_a_constant_runs_at_its_default_alone(empty_cache, monkeypatch):
    monkeypatch.setattr(kernels_trust, "_SEEN", set())
    op = op_of("float[n] -> float[n]", "x, *, eps=0.5")
    op.kernel(lambda x, out: None, name="blind", trust=True)
    op.kernel(lambda x, out, *, eps: None, name="seeing", trust=True)
    op.kernel(lambda x, out, **constants: None, name="open", trust=True)
    assert reason(op, op.kernels["blind"], eps=0.5) == ""
    assert reason(op, op.kernels["blind"], eps=1.0) == "it does not take the constant eps, which is not at its default"
    assert reason(op, op.kernels["seeing"], eps=1.0) == reason(op, op.kernels["open"], eps=1.0) == ""


def test_a_kernel_that_passed_runs_though_a_call_decided_before(empty_cache, monkeypatch):
    monkeypatch.setattr(kernels_trust, "_SEEN", set())

    @noyau.op("f32[n] -> f32[n]")
    def sized(x):
        return np.array([v if v > 0 else -v for v in x], np.float32)

    sized.kernel(lambda x, out: np.abs(x, out=out), name="quick")
    x = np.array([-1, 2], np.float32)
    with pytest.warns(noyau.ReferenceWarning, match="quick: it has not been checked yet as it is"):
        sized(x)
    assert noyau.check(sized, generated=False).ok
    assert sized.explain(x).kernel == "quick"
    assert sized(x).tolist() == [1, 2]
