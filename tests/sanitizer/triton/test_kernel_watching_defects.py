"""examples/defects/triton_kernels.py: each defect by its kind and its line, silence for each mended twin."""

from __future__ import annotations

import numpy as np
import pytest

from tests.defects import kernels_of, marks_of, module_of, watch_on

MARKS = marks_of("triton_kernels")
KERNELS = {kernel.name: (op, kernel) for op, kernel in kernels_of(module_of("triton_kernels"))}
MENDED = [name for name in KERNELS if name.endswith("_mended")]


def arrays_for(op, size):
    rng = np.random.default_rng(size)
    shapes = [[size, *(int(str(dim)) for dim in term.dims[1:])] for term in op.signature.inputs]
    return [rng.integers(-4, 5, shape).astype(np.float32) for shape in shapes]


def findings(name):
    """What is found on the first size that shows something."""
    op, kernel = KERNELS[name]
    for size in (1, 2, 65, 130):
        found = watch_on(op, kernel, *arrays_for(op, size)).findings
        if found:
            return found
    return ()


@pytest.mark.parametrize("name", MARKS)
def test_the_defect_is_named_with_its_line(name):
    mark = MARKS[name]
    found = [each for each in findings(name) if each.kind == mark.kind]
    assert [int(each.place.rpartition(":")[2]) for each in found] == [mark.line]
    assert found[0].severity == ("warning" if mark.kind == "written-twice" else "error")


def test_the_mended_twins_are_silent():
    assert {name: findings(name) for name in MENDED if findings(name)} == {}


def test_each_defect_has_a_mended_twin():
    assert {name.removesuffix("_broken") for name in MARKS} == {name.removesuffix("_mended") for name in MENDED}
