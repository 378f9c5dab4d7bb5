"""Kernels for Numba-CUDA as they are printed: names, what stands in the text once, what a thread cannot do."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import noyau
from noyau import nn
from noyau.codegen.numba.spellings import NUMPY
from noyau.codegen.numba_cuda import printer
from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.cpu.strategy_choice import Options, schedule
from noyau.compiler.schedules.gpu.blocks import in_blocks, in_threads
from noyau.dtypes import DType
from noyau.errors import GraphError, UnsupportedError
from noyau.ir.operators import OPERATORS
from noyau.toolchain.numba.kernel import load
from tests.codegen.kernels import GOLDEN
from tests.jobs.check.groups import one_map, softmax


@noyau.op("f32[n], f32[n] -> f32[n]")
def cuda(thread, x):
    return np.tanh(thread) + np.floor(x)


def text_of(graph):
    return printer.together([in_threads(lower(normalise(graph), "kernel"))])


def test_words_of_the_language_are_no_names():
    text = cuda.source("numba_cuda")
    assert "def v_cuda(v_thread, x, " in text
    assert "= math.tanh(thread_i)" in text


def test_a_kernel_without_a_name_of_its_own_is_refused():
    kernel = replace(in_threads(lower(normalise(softmax()), "softmax")), name="cuda")
    with pytest.raises(GraphError, match="'cuda' cannot be the name of a Python function, or the text needs it"):
        printer.together([kernel])


def test_kernels_of_one_text_share_what_they_call():
    kernels = [in_threads(lower(normalise(softmax()), name)) for name in ("one", "other")]
    text = printer.together(kernels, 'a comment """\nimport os')
    assert text.startswith('# a comment """\n# import os\n\nimport math\n')
    assert [text.count(f"def noyau_{name}(") for name in ("maximum_f32", "max_f32", "sum_f64", "blocks")] == [1] * 4
    assert {"one", "one_0", "other", "other_0"} <= load(text)[1].keys()


@pytest.mark.parametrize(("dtype", "word"), [(DType.F32, "libdevice.fadd_rn("), (DType.F64, "libdevice.dadd_rn(")])
def test_what_is_rounded_apart_is_fused_with_nothing(dtype, word):
    assert word in text_of(one_map("rounded", dtype))


@pytest.mark.parametrize(
    ("function", "dtype", "lines"),
    [
        ("exp", DType.F32, ("x0_i = x0[i0]", "v1[i0] = math.exp(x0_i)")),
        ("floor", DType.F32, ("v1[i0] = libdevice.floorf(x0_i)",)),
        ("round_even", DType.F64, ("v1[i0] = libdevice.rint(x0_i)",)),
        ("exp", DType.F16, ("x0_i = f32(x0[i0])", "v1[i0] = f16(math.exp(x0_i))")),
        ("exp", DType.BF16, ("x0_i = noyau_bf16_to_f32(x0[i0])", "v1[i0] = noyau_f32_to_bf16(math.exp(x0_i))")),
    ],
)
def test_functions_and_short_floats_are_those_of_cuda_where_it_has_them(function, dtype, lines):
    text = text_of(one_map(function, dtype))
    assert [line for line in lines if f"        {line}\n" not in text] == []


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
def test_functions_that_cuda_lacks_call_nothing_of_numpy_but_numbers(dtype):
    """Numba-CUDA compiles few functions of NumPy on numbers; libdevice has them."""
    kernels = []
    for name, operator in OPERATORS.items():
        if "float" in operator.accepts and operator.arity < 3 and name != "cast":
            result = DType.BOOL if operator.result == "bool" else None
            graph = one_map(name, dtype, operator.arity, result)
            kernels.append(in_threads(lower(normalise(graph), f"k_{name}")))
    text = printer.together(kernels)
    assert set(re.findall(r"\bnp\.\w+", text)) <= {"np.inf", "np.nan", "np.float16", *NUMPY.values()}
    assert "@scalar" not in text


def test_shapes_that_do_not_fit_are_refused():
    names = load(nn.softmax.source("numba_cuda"))[1]
    (host,) = (name for name in names if f"{name}_0" in names)
    with pytest.raises(ValueError, match=r"has the shape \(2, 4\), and not \(2, 3\)"):
        names[host](np.zeros((2, 3), "f4"), np.zeros((2, 4), "f4"))


@pytest.mark.parametrize(
    ("name", "options", "lacks"),
    [
        ("softmax_inner", Options(around_bytes=0, short=False), "has no memory for"),
        ("softmax_inner", None, "a block has 256 threads, and #lane_.* asks for 32|has no memory for"),
    ],
)
def test_schedules_of_others_are_refused(name, options, lacks):
    lowered = lower(normalise(GOLDEN[name][0]), "kernel")
    kernel = in_blocks(lowered) if options is None else schedule(lowered, options)
    with pytest.raises(UnsupportedError, match=f"^numba_cuda.*({lacks})"):
        printer.together([kernel])
