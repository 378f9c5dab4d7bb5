"""What Triton compiles of texts of language triton: its interpreter takes more than that, and less."""

from __future__ import annotations

from contextlib import suppress
from itertools import product

import numpy as np
import pytest

import noyau
from noyau.codegen.triton.tables import TYPES
from noyau.compiler.lowering.nest import lower
from noyau.compiler.schedules.gpu.strategies import on_gpu
from noyau.dtypes import DType
from noyau.errors import GraphError, UnsupportedError
from noyau.ir.monoids import MONOIDS
from noyau.ir.operators import OPERATORS, dtype_of
from tests.codegen.triton.test_printer_golden import KEPT, kernel_of
from tests.codegen.triton_compiled import Case, case, faults
from tests.compiler.schedules.groups import reduced
from tests.jobs.check.groups import Group
from tests.trying import attempt

ODD, FEW, LONG = {}, {"rows": 3, "n": 20000}, {"rows": 200, "n": 9001}
# What the interpreter may take, for there a number has no type.
NO_TEXT = """import triton
import triton.language as tl


@triton.jit
def kernel_0(x):
    tl.store(x, tl.load(x) ^ -1)


def kernel(x, **tiles):
    kernel_0[(1,)](x)
"""


def wrong(cases):
    """The cases that do not compile, by their names, and what Triton says; it is asked of one that does not, too."""
    *told, mutant = faults([*cases.values(), Case(NO_TEXT, "kernel", 1, [[("U8", [1])]])])
    assert "unsigned tensor and a negative scalar" in mutant
    return {name: fault for name, fault in zip(cases, told, strict=True) if fault}


@noyau.op("i64[n, m] -> i64[5, 0]")
def none_of_some_rows(x):
    return x[np.arange(4, -1, -1), 2:2]


@noyau.op("f32[n] -> added: f32[n, n], total: f32[]")
def beside_a_sum(x):
    return x + np.eye(x.size, dtype=x.dtype), x.sum()


def golden_cases(*sizes):
    cases = {name: case(kernel_of(name), *sizes) for name in KEPT}
    for op in (none_of_some_rows, beside_a_sum):
        cases |= {kernel.name: case(kernel) for kernel in op.generate("triton").program.kernels}
    return cases


def every_function(dtype, shape):
    """A map of each function that takes a dtype."""
    g, made = Group(), []
    condition, *inputs = (g.input(f"x{k}", d, *shape) for k, d in enumerate((DType.BOOL, dtype, dtype)))
    for name, operator in OPERATORS.items():
        given, types = inputs[: operator.arity], [dtype] * operator.arity
        if name == "where":
            given, types = [condition, *inputs], [DType.BOOL, dtype, dtype]
        if dtype.kind in operator.accepts and name != "cast":
            made.append(g.map(name, *given, dtype=dtype_of(name, tuple(types))))
    made += [g.map("cast", inputs[0], dtype=other) for other in TYPES if other is not dtype]
    return on_gpu(lower(g.graph(*made), "kernel"))


def every_merge(*dtypes):
    """A reduction by each monoid, of these of the dtypes that it takes."""
    for monoid, dtype in product(MONOIDS, dtypes):
        with suppress(GraphError, UnsupportedError):
            yield (monoid, dtype), on_gpu(lower(reduced(monoid, "rows", "n", axes=(1,), dtype=dtype), "kernel"))


SCALARS_TOO = (DType.U8, DType.I64, DType.BF16, DType.F32, DType.BOOL)


def function_and_merge_cases(functions, *dtypes):
    """Every function, of dtypes and shapes, and every merge of dtypes."""
    kernels = {(dtype, shape): every_function(dtype, shape) for dtype, shape in functions}
    kernels |= dict(every_merge(*dtypes))
    return {name: case(kernel) for name, kernel in kernels.items()}


def test_texts_and_every_function_and_merge_compile():
    """In one process, for its imports take longer than most cases."""
    cases = function_and_merge_cases([(dtype, ("n",)) for dtype in TYPES], DType.F64, DType.BOOL)
    assert {name for name, _ in cases} >= {"sum", "prod", "max", "any", "argmax", "logsumexp"}
    cases["one place under a mask of several"] = case(on_gpu(attempt(52035).lowered))
    assert wrong({**golden_cases(LONG), **cases}) == {}


@pytest.mark.long
def test_texts_compile_for_other_sizes_and_functions_of_scalars():
    cases = function_and_merge_cases([(dtype, ()) for dtype in SCALARS_TOO], DType.U8)
    assert wrong({**golden_cases(FEW, ODD), **cases}) == {}
