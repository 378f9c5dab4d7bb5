"""The text of kernels of every strategy, as committed; each is right, whole and in pieces in any order.

`pytest tests/codegen/numba/test_printer_golden.py --update-golden` writes the texts anew: read the difference before
you
commit.
"""

from __future__ import annotations

import numpy as np
import pytest

from noyau.codegen.numba import printer as numba_printer
from noyau.compiler.passes.normal_form import normalise
from noyau.toolchain.numba.kernel import load
from tests.codegen.kernels import GOLDEN, TABLES
from tests.codegen.numba_kernels import compiled, kernel_of
from tests.compiler.schedules.groups import inputs_of
from tests.judged import Judge

SIZES = (0, 1, 7, 33, 130)
SIZES_OF_TABLES = (0, 3, 7, 33)  # the indices are below 3
IN_PRANGE = ("gathered", "full_sum")  # a status; two launches with scratch


@pytest.mark.parametrize("name", GOLDEN)
def test_the_text_is_that_committed(name, golden):
    golden(f"numba/{name}.py", numba_printer.together([kernel_of(name)], f"the kernel {name}"))


def arrays_of(name, number):
    """The arrays that a kernel takes, and what judges its outputs, by their names."""
    graph, _ = GOLDEN[name]
    sizes = sorted({size for node in graph.inputs for dim in node.shape for size in dim.names})
    inputs = inputs_of(graph, dict.fromkeys(sizes, number), seed=number)
    constants = {node.output: node.kind.value for node in graph.nodes if hasattr(node.kind, "value")}
    given = {**constants, **inputs}
    return [given[node.output] for node in normalise(graph).inputs], Judge(graph, inputs)


@pytest.mark.parametrize("name", GOLDEN)
def test_its_numbers_are_right(name):
    for number in SIZES_OF_TABLES if name in TABLES else SIZES:
        arrays, judge = arrays_of(name, number)
        for pieces in (1, 3):
            results = compiled(name).call_guarded(*arrays, pieces=pieces, order=lambda count: range(count)[::-1])
            for output, got in zip(normalise(GOLDEN[name][0]).outputs, results, strict=True):
                assert judge.wrong(output, got) is None


@pytest.mark.parametrize("name", IN_PRANGE)
def test_the_function_itself_computes_the_same(name):
    """By Numba's own prange, as one who has only the text runs it."""
    _, module = load(numba_printer.together([kernel_of(name)]))
    arrays, _ = arrays_of(name, 33)
    wanted = compiled(name)(*arrays)
    outputs = [np.zeros_like(array) for array in wanted]
    assert module[name](*arrays, *outputs) == 0
    assert [array.tobytes() for array in outputs] == [array.tobytes() for array in wanted]
    if name == "gathered":
        arrays[1][0] = 3_000
        assert module[name](*arrays, *outputs) == 1
        assert module[name](*arrays, *(array[:0] for array in outputs)) == 2
