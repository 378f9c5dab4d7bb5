"""Printed kernels for Numba-CUDA, launched without a GPU: what is wrong with a text is found, and where."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import noyau
from noyau.dtypes import DType
from noyau.errors import FindingKind
from noyau.kernels.programs.generate import BuiltProgram
from noyau.sanitizer.numba_cuda.launch import watch_generated


@noyau.op("f32[rows, n] -> out: f32[rows, n]")
def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@noyau.op("bf16[n], f32 -> product: bf16[n], sum: f32")
def scaled(x, by):
    return (x * by).astype(x.dtype), by + 1


def watched(op, arrays, *changes):
    program = op.generate("numba_cuda")
    text = program.text
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return watch_generated(BuiltProgram(replace(program, text=text), ()), arrays, op.name, "printed", "n = 300")


X = np.random.default_rng(1).standard_normal((2, 300), dtype=np.float32)


def test_as_printed_nothing_is_found():
    seen = watched(softmax, [X])
    assert (seen.findings, seen.is_cut) == ((), False)
    np.testing.assert_allclose(seen.outputs[0], softmax.reference(X.astype("f8")), rtol=1e-6)
    assert seen.accesses > 4 * X.size


def test_short_floats_and_numbers_without_axes():
    x = np.ones(5, "f4").astype(DType.BF16.numpy)
    seen = watched(scaled, [x, np.array(3, "f4")])
    assert seen.findings == ()
    assert [each.dtype for each in seen.outputs] == [x.dtype, np.float32]
    assert (seen.outputs[0].astype("f4").tolist(), seen.outputs[1].tolist()) == ([3.0] * 5, 4.0)


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (("cuda.syncthreads()", "pass"), FindingKind.RACE, "shared"),
        (("range(thread, n, THREADS)", "range(thread, n + 1, THREADS)"), FindingKind.OUT_OF_BOUNDS, "300 along axis 1"),
        (("shared[thread] = own", "pass"), FindingKind.UNINITIALISED, "shared"),
        (("out[i0, i1] =", "unused ="), FindingKind.UNWRITTEN, r"no thread of \[2, 256\] writes out\[0, 0\]"),
    ],
    ids=["race", "bounds", "unset", "unwritten"],
)
def test_a_broken_twin_is_found(change, kind, words):
    findings = watched(softmax, [X], change).findings
    told = [each for each in findings if each.kind is kind]
    assert told
    assert re.search(words, told[0].message)
    assert re.search(r"kernel\.py:\d+$", told[0].place)
