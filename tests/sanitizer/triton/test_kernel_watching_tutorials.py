"""Correct kernels in the style of Triton's tutorials: silence, and the right results."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import triton.language as tl

from tests.defects import kernels_of, watch_on
from tests.sanitizer.triton import tutorials, tutorials_atomics

KERNELS = {kernel.name: (op, kernel) for module in (tutorials, tutorials_atomics) for op, kernel in kernels_of(module)}
SIZES = {"n": 37, "m": 19, "k": 21, "s": 21}
ONLY = {"total": {"n": 512}, "layer_norm": {"m": 4}, "column_sums": {"m": 5, "n": 30}, "embedding": {"m": 16, "k": 7}}


def arrays_for(op, sizes):
    rng = np.random.default_rng(1)
    made = []
    for term in op.signature.inputs:
        shape = tuple(dim.evaluate(sizes) for dim in term.dims or ())
        whole = str(term.element.value).startswith("i")
        made.append(rng.integers(0, 16, shape, np.int32) if whole else rng.random(shape).astype(term.element.numpy))
    return made


def is_without(name):
    """Whether triton.language has a function only to say that it was removed."""
    return "have been removed" in inspect.getsource(inspect.unwrap(getattr(tl, name)))


@pytest.mark.parametrize("name", KERNELS)
def test_a_correct_kernel_is_silent_and_right(name):
    op, kernel = KERNELS[name]
    arrays = arrays_for(op, {**SIZES, **ONLY.get(op.name, {})})
    if name == "block_pointers" and is_without("make_block_ptr"):
        pytest.skip("this release of Triton has no block pointers any more")
    watched = watch_on(op, kernel, *arrays)
    assert watched.findings == ()
    assert watched.accesses > 30
    wanted = op.reference(*arrays)
    for got, want in zip(watched.outputs, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_there_are_many():
    assert len(KERNELS) >= 25
