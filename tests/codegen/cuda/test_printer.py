"""CUDA C++ as it is printed: names, what stands in the text once, and what a thread cannot do."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest

import noyau
from noyau.codegen.cuda import printer as cuda_printer
from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.cpu.strategy_choice import Options, schedule
from noyau.compiler.schedules.gpu.blocks import in_blocks
from noyau.dtypes import DType
from noyau.errors import GraphError, UnsupportedError
from noyau.ir.dims import Dim, shape_of
from noyau.ir.graph import Select
from tests.codegen.kernels import GOLDEN
from tests.jobs.check.groups import Group, one_map, softmax


@noyau.op("f32[n], f32[n] -> f32[n]")
def template(threadIdx, x):
    return np.tanh(threadIdx) + x


def test_words_of_the_language_are_no_names():
    text = template.source("cuda")
    assert "v_template" in text
    assert not re.search(r"float \*__restrict__ threadIdx\b", text)


def test_a_kernel_without_a_name_of_its_own_is_refused():
    kernel = replace(in_blocks(lower(normalise(softmax()), "softmax")), name="operator")
    with pytest.raises(GraphError, match="'operator' cannot be the name of a Python function, or the text needs it"):
        cuda_printer.together([kernel])


def test_kernels_of_one_text_share_what_they_call():
    kernels = [in_blocks(lower(normalise(softmax()), name)) for name in ("one", "other")]
    text = cuda_printer.together(kernels, "a comment */ and no more")
    assert text.count("noyau_maximum_f32(float x, float y) {") == 1
    assert text.count("struct noyau_max_f32 {") == 1
    assert text.startswith("/* a comment * / and no more */")
    for name in ("one", "other"):
        assert f"cudaError_t {name}(" in text


@pytest.mark.long
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")
def test_names_of_cuda_s_headers_are_those_of_kernels_too(tmp_path):
    names = ("norm", "index", "hypot", "max", "time", "remove", "div", "random")
    text = cuda_printer.together([in_blocks(lower(normalise(softmax()), name)) for name in names])
    (tmp_path / "kernels.cu").write_text(text)
    subprocess.run(["nvcc", "-arch=sm_90", "-c", "kernels.cu"], cwd=tmp_path, check=True)


@pytest.mark.parametrize(
    ("dtype", "sum_of_two"), [(DType.F32, "__fadd_rn(x, -0.0f)"), (DType.F64, "__dadd_rn(x, -0.0)")]
)
def test_what_is_rounded_apart_is_fused_with_nothing(dtype, sum_of_two):
    text = cuda_printer.together([in_blocks(lower(normalise(one_map("rounded", dtype)), "kernel"))])
    assert sum_of_two in text
    assert "__attribute__" not in text


def test_a_cluster_that_merges_no_states_opens_no_meeting():
    g = Group()
    x = g.input("x", DType.F32, "rows", "n")
    g.add(Select(1, shape_of((0, "n"))), [x, x], DType.F32, ("rows", Dim.of("n") * 2))
    copied, merged = (
        cuda_printer.together([in_blocks(lower(normalise(graph), "kernel"))]) for graph in (g.graph(), softmax())
    )
    assert "__cluster_dims__" in copied
    assert "noyau_meeting" not in copied
    assert "noyau_open(&meeting)" in merged


def test_a_vector_of_any_size_is_moved_in_words():
    """A single cell of a byte too: without a word of its size nothing of it would be loaded."""
    text = cuda_printer.together([in_blocks(lower(normalise(one_map("negative", DType.I8)), "kernel"))])
    assert all(f"template <> struct noyau_word<{size}> {{" in text for size in (1, 2, 4, 8))


def test_functions_of_cuda_are_called_by_its_names():
    text = template.source("cuda")
    assert "tanhf(" in text
    assert "noyau_tanh" not in text


@pytest.mark.parametrize(
    ("name", "options", "lacks"),
    [
        ("softmax_inner", Options(around_bytes=0, short=False), "no memory of a thread for"),
        ("transposed", Options(stages=True, turned="any"), "a thread cannot reach cell"),
        ("padded", Options(around_bytes=1), "writes around no caches"),
    ],
)
def test_schedules_of_processors_are_refused(name, options, lacks):
    kernel = schedule(lower(normalise(GOLDEN[name][0]), "kernel"), options)
    with pytest.raises(UnsupportedError, match=f"^cuda[: ].*{lacks}|^cuda {lacks}"):
        cuda_printer.together([kernel])
