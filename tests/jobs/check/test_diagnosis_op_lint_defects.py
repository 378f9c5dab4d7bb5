"""examples/defects/large.py: each warning by kind and line at sizes that are told, silence for each mended twin."""

from __future__ import annotations

import pytest

from noyau.jobs.check.attempts import attempts
from noyau.jobs.check.diagnosis import lint_op
from tests.defects import kernels_of, marks_of, module_of

KERNELS = {kernel.name: (op, kernel) for op, kernel in kernels_of(module_of("large"))}
MARKS = marks_of("large")
OTHERS = [
    (file, kernel) for file in ("numba_cuda_kernels", "cuda_cpp", "prange") for kernel in kernels_of(module_of(file))
]


def found(op, kernel, **sizes):
    first = next(attempts(op, {}, 0, lambda instance: True))
    is_usual = op.inputs is not None
    return lint_op(kernel, first.instance, first.make(first.sizes), sizes, is_usual=is_usual)


@pytest.mark.parametrize("name", KERNELS)
def test_at_sizes_that_are_told(name):
    told = [(each.kind, int(each.place.rpartition(":")[2])) for each in found(*KERNELS[name], n=3 * 10**9)]
    assert told == ([(MARKS[name].kind, MARKS[name].line)] if name in MARKS else [])
    assert found(*KERNELS[name], n=10**6) == []


def test_silence_on_the_other_defects_and_their_twins():
    told = {(file, kernel.name) for file, (op, kernel) in OTHERS if found(op, kernel)}
    assert told <= {("cuda_cpp", "strided_broken"), ("numba_cuda_kernels", "strided_broken")}
