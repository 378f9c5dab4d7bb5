from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from noyau.errors import InputError, SignatureError
from noyau.jobs.check.bare_kernel import evaluate_reference

X, OUT = np.arange(4.0), np.zeros(4)
NAMES = ("x", "out", "n")


def judged(reference, after=(X, OUT, 4), returned=None, before=(X, OUT, 4)):
    kernel = SimpleNamespace(names=NAMES, before=before, name="kernel")
    return evaluate_reference(kernel, reference, after, returned)


def given(reference, **options):
    found = judged(reference, **options)
    return [node.output for node in found.graph.inputs], list(found.graph.outputs), len(found.results)


def test_a_reference_takes_parameters_by_name_else_the_first_ones():
    assert given(lambda x, n: x * n) == (["x"], ["out"], 1)
    assert given(lambda a: a + 1) == (["x"], ["out"], 1)
    assert given(lambda x, scale=2.0: scale * x) == (["x"], ["out"], 1)
    assert given(lambda *args: args[0]) == (["x", "out"], ["out afterwards"], 1)
    assert given(np.negative) == (["x"], ["out"], 1)


def test_what_the_kernel_returns_is_compared_first():
    found = judged(lambda x: x.sum(), returned=np.float64(6))
    assert found.graph.outputs == ("the result",)
    assert found.results[0] == 6


def test_a_reference_that_fills_says_what_every_array_holds():
    def fill(x, out):
        out[:] = x

    assert len(judged(fill).results) == 2


@pytest.mark.parametrize(
    ("reference", "error", "message"),
    [
        (lambda a, b, c, d: a, SignatureError, "kernel: its reference takes a, b, c, d, and the kernel x, out, n"),
        (lambda x: (x, x, x), SignatureError, "kernel: its reference gives 3 results, and there are 2 to compare"),
        (lambda x: x[:2], SignatureError, r"gives a result of shape \[2\], and out is \[4\]"),
        (lambda n: None, SignatureError, "returns nothing and fills no array; let it return what is right"),
        (lambda x: x @ np.ones(5), InputError, "does not take these arguments: it fails with ValueError"),
    ],
)
def test_what_does_not_fit(reference, error, message):
    with pytest.raises(error, match=message):
        judged(reference)


def test_a_dtype_of_which_no_values_are_judged():
    odd = np.zeros(4, complex)
    with pytest.raises(SignatureError, match="kernel: out is complex128, of which no values are judged"):
        judged(lambda x: x, after=(X, odd, 4), before=(X, odd, 4))


@pytest.mark.parametrize("reference", [lambda x, out, n: None, lambda x: [2 * each for each in x]])
def test_arrays_within_a_list_are_not_compared_and_it_is_said(reference):
    before = [X, X], ["a"], 4
    with pytest.raises(SignatureError, match=": no arrays within x and out are; check a"):
        judged(reference, after=before, before=before)
