"""TritonNames of a text in Triton: none is a word, or what the text or Triton itself calls something else."""

from __future__ import annotations

import keyword
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noyau.codegen.triton import printer as triton_printer
from noyau.codegen.triton.tables import RESERVED, TritonNames
from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.gpu.strategies import on_gpu
from noyau.ir.loops import Role
from tests.codegen.kernels import GOLDEN, LAYOUTS
from tests.codegen.words import PLAIN, WORDS, arrays, numbered, ops_of, own_words
from tests.nests import COPY, kernel
from tests.ops.dispatch.ops import generated

ON_GPU = {name: graph for name, (graph, _) in GOLDEN.items() if not name.startswith("scattered_")}


@pytest.mark.parametrize("word", [*sorted(RESERVED), *keyword.kwlist])
def test_no_word_of_the_text_is_a_variable(word):
    names = TritonNames(kernel(COPY))
    assert names.bind(word, word) not in {*RESERVED, *keyword.kwlist}


def test_no_variable_has_the_name_of_anything_else_in_a_text(monkeypatch):
    """Whatever the functions of a kernel name that is not a variable of it, is a name that no variable gets."""
    kernels = [on_gpu(lower(normalise(graph), "made", LAYOUTS.get(name))) for name, graph in ON_GPU.items()]
    monkeypatch.setattr(TritonNames, "fresh", numbered)
    texts = [triton_printer.together([each]) for each in kernels]
    monkeypatch.undo()
    names = TritonNames(replace(kernel(COPY), name="made"))
    words = own_words(texts)
    assert {"tl", "tuple", "INDEX", "x_STEP"} <= words
    assert {word for word in words if names.bind(word, word) == word} == set()


@pytest.fixture(scope="module")
def plain():
    return results(PLAIN)


@settings(max_examples=4, deadline=None, derandomize=True)
@given(st.permutations(WORDS))
def test_whatever_parameters_and_sizes_are_called_results_are_the_same(plain, words):
    for got, wanted in zip(results(words[:6]), plain, strict=True):
        assert got.tobytes() == wanted.tobytes()


def results(names) -> list[np.ndarray]:
    """What the ops of these names give in Triton's interpreter, or on a GPU."""
    from noyau.hosts.torch.cuda import array_kernels as made

    given, done = dict(zip(names, arrays(), strict=False)), []
    for op in ops_of(names):
        program = generated(op, *arrays(), language="triton")
        (one,) = program.program.kernels
        inputs = [given[buffer.source] for buffer in one.of(Role.INPUT)]
        done += made.DeviceKernel(program.text, one).call_guarded(*inputs)
    return done
