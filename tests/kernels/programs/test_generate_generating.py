from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import noyau
from noyau import nn
from noyau.codegen.language import GENERATIONS
from noyau.compiler.autodiff.adjoints import derive
from noyau.compiler.lowering.input_layouts import PACKED
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.kernels.programs.generate import (
    Specialization,
    generate,
    in_order,
    key_of,
    languages_on,
    print_program,
    program_in,
)
from noyau.kernels.programs.program import LibraryStep
from tests.ops.dispatch.ops import generated, numbers, scale_op, softmax_op


def test_the_text_stands_alone_and_names_the_users_values():
    made = generated(softmax_op(), numbers(3, 4))
    assert made.text.startswith("/* softmax: x: f32[batch_0, n] -> out: f32[batch_0, n] */")
    assert "const float e = noyau_exp_negative_f32(" in made.text
    assert made.title == "softmax[c]"


@pytest.mark.parametrize("language", ["numba", "triton"])
@pytest.mark.parametrize("name", ["min", "type", "match"])
def test_a_kernel_has_no_name_that_its_text_uses(name, language):
    op = noyau.op("f32[n] -> f32[n]", name=name)(lambda x: np.minimum(x, 0))
    assert f"def v_{name}(" in op.source(language)
    assert op.description.name == name


@pytest.mark.parametrize("language", GENERATIONS)
def test_what_the_program_casts_to_a_half_type_is_rounded_in_every_language(language):
    @noyau.op("f32[n] -> f32[n]", name="rounds")
    def rounds(x):
        return (x * 3).astype(DType.BF16.numpy).astype(np.float32) * x

    texts = {"triton": ".to(tl.bfloat16)).to(tl.float32)"}
    assert texts.get(language, "= noyau_bf16_to_f32(noyau_f32_to_bf16(") in rounds.source(language)


def test_the_same_op_gives_the_same_bytes():
    assert generated(softmax_op(), numbers(3, 4)).text == generated(softmax_op(), numbers(2, 9)).text


def test_constants_are_of_the_text():
    assert generated(scale_op(), numbers(3), 2.0).text != generated(scale_op(), numbers(3), 2.0, shift=1.5).text


def test_an_integer_that_gives_a_dim_is_a_number():
    @noyau.op("f32[n], i64 -> f32[k]", name="first")
    def first(x, k):
        return np.concatenate([x[:1], np.zeros(k - 1, np.float32)])

    assert first(numbers(3), 4).tolist() == [numbers(3)[0], 0, 0, 0]
    assert first(numbers(3), 2).tolist() == [numbers(3)[0], 0]


def test_what_cannot_be_traced_names_the_line():
    @noyau.op("f32[n] -> f32[n]")
    def ordered(x):
        y = x + 1
        return np.sort(y)

    with pytest.raises(UnsupportedError, match=rf"ordered cannot be traced at line {ordered.line + 3} of .*sort"):
        ordered.generate()


def test_a_reference_that_fills_its_outputs_has_no_graph():
    @noyau.op("f32[n] -> out: f32[n]")
    def copy(x, out):
        for i in range(len(x)):
            out[i] = x[i]

    with pytest.raises(UnsupportedError, match="the reference copy has no graph: it fills its outputs"):
        copy.generate()


def test_a_language_that_nothing_is_generated_in():
    op = softmax_op()
    told = "softmax: no kernels are generated in 'cpp' yet; c, numba, triton, cuda and numba_cuda are"
    with pytest.raises(UnsupportedError, match=told):
        generate(op.description, Specialization(op.instance([DType.F32], [2])), "cpp")


@noyau.op("float[n], i64[n], float[m] -> float[m]")
def added(x, at, y):
    y = y.copy()
    np.add.at(y, at, x * 2)
    return y + 1


def test_on_a_gpu_language_cuda_merges():
    with pytest.raises(UnsupportedError, match="no strategy for programs on a GPU scatters; language cuda has three"):
        added.generate("triton")
    for language in ("c", "cuda"):
        assert not any(isinstance(step, LibraryStep) for step in added.generate(language).program.steps)


def test_what_is_merged_with_the_same_bits_in_every_run_is_another_program():
    wanted = Specialization(added.usual(), added.description.reference.constants)
    same = replace(wanted, is_deterministic=True)
    usual, ordered = (generate(added.description, each, "cuda") for each in (wanted, same))
    assert (usual.is_deterministic, ordered.is_deterministic) == (False, True)
    assert "noyau_atomic_add(" in usual.text
    assert "_order[" in ordered.text
    assert "_order[" not in usual.text
    assert key_of(wanted) != key_of(same)
    assert generate(added.description, same, "c").text == generate(added.description, wanted, "c").text


def test_a_scatter_that_is_the_result_is_one_kernel():
    @noyau.op("f32[k, c], i64[n], f32[n, c] -> f32[k, c]", deterministic=True)
    def summed(a, at, x):
        out = a.copy()
        np.add.at(out, at, x)
        return out

    assert summed.generate("c").program.single is not None
    assert summed.generate("cuda").program.single is not None
    assert summed.generate("cuda").is_deterministic


def test_whole_numbers_have_the_same_bits_in_whatever_order_they_are_merged():
    @noyau.op("i64[n] -> i64[64]")
    def counts(at):
        out = np.zeros(64, np.int64)
        np.add.at(out, at, 1)
        return out

    assert counts.generate("cuda").is_deterministic
    assert "noyau_atomic_add(" in counts.generate("cuda").text


def test_on_a_gpu_what_no_schedule_takes_is_cut():
    graph = nn.cross_entropy_mean.generate("c").graph
    saving = derive(graph, [graph.inputs[0].output]).forward
    made = program_in(saving, "saving", [PACKED] * len(graph.inputs), "triton")
    assert made.kernels
    assert not any(isinstance(step, LibraryStep) for step in made.steps)
    assert "def saving" in print_program(made, "triton", "")


def test_what_is_generated_depends_on_the_device():
    assert languages_on("cpu") == ("c", "numba")
    assert languages_on("cuda:1") == ("triton", "cuda", "numba_cuda")


def test_where_rows_are_scanned_the_languages_whose_threads_share_them_come_first():
    scan = noyau.op("f32[n] -> f32[n]")(lambda x: np.cumsum(x)).generate("c").graph
    languages = languages_on("cuda:0")
    assert in_order(languages, lambda: scan) == ["cuda", "numba_cuda", "triton"]
    assert in_order(languages, lambda: softmax_op().generate("c").graph) == languages
    assert in_order(languages, lambda: None) == languages
    assert in_order(("c", "numba"), lambda: scan) == ("c", "numba")


def test_the_usual_text_of_a_reference_that_asks_for_sizes_is_of_usual_sizes():
    @noyau.op("f32[n], f32[k] -> f32[n - k + 1]")
    def filtered(y, c):
        made = np.zeros_like(y[: y.shape[0] - c.shape[0] + 1])
        for at in range(c.shape[0]):
            made = made + c[at] * y[at : y.shape[0] - c.shape[0] + 1 + at]
        return made

    made = filtered.generate()
    assert list(made.specialised) == ["k"]
    assert filtered.source("c") == made.text
