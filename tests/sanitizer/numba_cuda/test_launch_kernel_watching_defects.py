"""examples/defects/numba_cuda_kernels.py: each defect by its kind and its line, silence for each mended twin."""

from __future__ import annotations

import numpy as np
import pytest

import noyau
from tests.defects import kernels_of, marks_of, module_of, watch_on

module = module_of("numba_cuda_kernels")
MARKS = marks_of("numba_cuda_kernels")
KERNELS = {kernel.name: (op, kernel) for op, kernel in kernels_of(module)}
MENDED = [name for name in KERNELS if name.endswith("_mended")]


def arrays_for(op, size):
    """Inputs of one size, as the op makes them."""
    rng = np.random.default_rng(size)
    if op.inputs is not None:
        return op.inputs(rng, size)
    return tuple(rng.integers(-4, 5, (size, *term_shape(term))).astype(dtype_of(term)) for term in op.signature.inputs)


def term_shape(term):
    return () if len(term.dims) == 1 else (32,)


def dtype_of(term):
    return np.int32 if "i32" in str(term) else np.float32


def findings(name):
    """What is found on the first size that shows something."""
    op, kernel = KERNELS[name]
    for size in (1, 2, 65, 130):
        watched = watch_on(op, kernel, *arrays_for(op, size))
        if watched.findings:
            return watched.findings
    return ()


def line_of(place):
    return int(place.rpartition(":")[2]) if place else None


@pytest.mark.parametrize("name", [name for name, mark in MARKS.items() if mark.kind != "wrong-value"])
def test_the_defect_is_named_with_its_lines(name):
    mark = MARKS[name]
    found = [each for each in findings(name) if each.kind == mark.kind]
    assert {line_of(each.place) for each in found} == {mark.line}  # of each array that it leaves
    assert found[0].severity == ("warning" if mark.kind == "launch" else "error")
    assert mark.other in (None, line_of(found[0].other_place))


@pytest.mark.parametrize("name", MENDED)
def test_the_mended_twin_is_silent(name):
    assert findings(name) == ()


def test_a_wrong_value_is_found_against_the_reference():
    broken, mended = noyau.check(module.bins, generated=False, budget_s=60, sizes={"n": 33}).kernels
    assert [each.kind for each in broken.findings] == ["wrong-value"]
    assert mended.findings == ()
    assert mended.certificate is not None


def test_each_defect_has_a_mended_twin():
    assert {name.removesuffix("_broken") for name in MARKS} == {name.removesuffix("_mended") for name in MENDED}
