"""Language triton as a whole: what stands in a text, what is refused, and tiles of any size."""

from __future__ import annotations

import ast

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import GraphError
from noyau.languages import triton
from noyau.lowering.nest import lower
from noyau.schedules.grid import on_gpu
from tests.checking.groups import one_map, softmax
from tests.schedules.groups import log_softmax, reduced


def text_of(graph, name="kernel"):
    return triton.source(on_gpu(lower(graph, name)))


@pytest.mark.parametrize("name", ["triton", "a-b", "while", "noyau_x", "torch"])
def test_a_name_that_cannot_be_that_of_a_function_is_refused(name):
    with pytest.raises(GraphError, match="cannot be the name of a Python function"):
        text_of(softmax(), name)


def test_the_text_is_python_and_needs_torch_and_triton_alone():
    tree = ast.parse(text_of(log_softmax()))
    modules = [alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names]
    modules += [str(node.module) for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert {module.partition(".")[0] for module in modules} == {"torch", "triton"}


def test_a_comment_stays_one():
    text = triton.source(on_gpu(lower(softmax(), "kernel")), 'x"""\nimport os\r\n\u2028import sys')
    assert next(line for line in text.splitlines() if line.startswith("import ")) == "import torch"


def test_short_rows_and_long_ones_are_two_launches_and_one_runs():
    text = text_of(softmax())
    assert "if n <= 32768:" in text
    assert "    else:" in text


def test_a_sum_of_all_goes_through_scratch():
    text = text_of(reduced("sum", "n", axes=(0,)))
    assert text.count("@triton.jit") == 2
    assert "_of_chunk = torch.empty((triton.cdiv(n, 32768),), dtype=torch.float32" in text


def test_halves_are_loaded_as_float32():
    assert ".to(tl.float32)" in text_of(one_map("exp", DType.F16))


def test_any_tiles_give_the_same():
    builder = pytest.importorskip("noyau.builders.triton")
    kernel = on_gpu(lower(one_map("tanh"), "kernel"))
    run = builder.Compiled(triton.source(kernel), kernel)
    x = np.linspace(-4, 4, 37, dtype=np.float32)
    results = [run(x, BLOCK=block)[0] for block in (8, 16, 64)]
    assert all(np.array_equal(result, results[0]) for result in results)
    assert np.abs(results[0] - np.tanh(x.astype(np.float64))).max() < 2e-7
