"""The text of kernels of every strategy for Numba-CUDA, as committed; launched without a GPU, each is right, without a
race, reads nothing that is unset, and leaves nothing unwritten.

`pytest tests/codegen/numba_cuda/test_printer_golden.py --update-golden` writes the texts anew: read the difference
before you commit.
"""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import pytest

from noyau.codegen.numba_cuda import printer
from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.gpu.blocks import in_threads
from noyau.sanitizer.numba_cuda.launch import SimulatedCall
from noyau.toolchain.numba.kernel import load
from tests.codegen.kernels import GOLDEN, LAYOUTS, MORE
from tests.compiler.schedules.groups import inputs_of
from tests.judged import Judge

LONG = MappingProxyType(  # more than one round
    {"softmax_inner": {"rows": 2, "n": 300}, "full_sum": {"n": 33_000}, "running_sum": {"rows": 1, "n": 3900}}
)
KEPT = [name for name in GOLDEN if name != "scattered_cells"]  # whose maxima are no sums
EVERY = {**{name: GOLDEN[name] for name in KEPT}, **MORE}


def kernel_of(name):
    return in_threads(lower(normalise(EVERY[name][0]), name, LAYOUTS.get(name)))


@pytest.mark.parametrize("name", KEPT)
def test_the_text_is_that_committed(name, golden):
    golden(f"numba_cuda/{name}.py", printer.together([kernel_of(name)], f"the kernel {name}"))


def right(name, sizes):
    """Whether a kernel is right in every cell, and nothing is found in what its threads did."""
    graph, kernel = EVERY[name][0], kernel_of(name)
    inputs = inputs_of(graph, sizes, seed=1)
    constants = {node.output: node.kind.value for node in graph.nodes if hasattr(node.kind, "value")}
    normal = normalise(graph)
    call = SimulatedCall(load(printer.together([kernel]))[1], kernel)
    results = call(*({**constants, **inputs}[node.output] for node in normal.inputs))
    assert [each.message for each in call.findings("op", name, "")] == []
    judge = Judge(graph, inputs)
    wrong = [judge.wrong(*each) for each in zip(normal.outputs, map(np.asarray, results), strict=True)]
    return wrong == [None] * len(wrong)


@pytest.mark.parametrize("name", EVERY)
def test_launched_without_a_gpu_it_is_right(name):
    sizes = {binding.size: 5 for binding in kernel_of(name).binding}
    assert right(name, sizes | LONG.get(name, {}))


@pytest.mark.long
@pytest.mark.parametrize("name", EVERY)
def test_launched_for_more_cells_it_is_right(name):
    assert right(name, {binding.size: 37 for binding in kernel_of(name).binding})
