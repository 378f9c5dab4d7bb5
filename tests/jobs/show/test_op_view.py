from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

import noyau
from noyau.errors import InputError
from noyau.jobs.show.op_view import show_op
from tests.ops.dispatch.ops import linear_op, softmax_op


def printed(op, width=100):
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(show_op(op.description, op.usual()))
    return out.getvalue()


def test_steps_kernels_and_why():
    op = linear_op()
    op.kernel(lambda x, weight, bias, out: None, name="by_hand")
    text = printed(op)
    head, place, *rest = text.splitlines()
    assert head == "linear  x: f32[m, k], weight: f32[k, n], bias: f32[n] -> out: f32[m, n]"
    assert place.endswith(f"ops.py:{op.line}")
    assert "  by NumPy" in text
    assert "a product of matrices is a call of BLAS" in text
    assert "  reads   bias: f32[n]" in rest
    assert "  writes  out: f32[m, n]" in rest
    assert "by_hand  attached, in python" in rest


def test_what_is_not_traced_says_why():
    @noyau.op("f32[n] -> f32[n]")
    def ordered(x):
        return np.sort(x)

    assert "nothing is generated: ordered cannot be traced at line" in printed(ordered)
    with pytest.raises(InputError, match="nothing is generated: ordered cannot be traced"):
        show_op(ordered.description, ordered.usual()).source()


def test_texts():
    op = softmax_op()
    op.kernel(lambda x, out: None, name="by_hand")
    seen = show_op(op.description, op.usual())
    assert seen.source() == seen.source("softmax") == op.source("c")
    assert "lambda x, out: None" in seen.source("by_hand")
    with pytest.raises(InputError, match="the op has no kernel other; its kernels are: by_hand, softmax"):
        seen.source("other")
    with pytest.raises(InputError, match="there is no language cpp yet; there are: c, numba, triton, cuda, numba_cuda"):
        seen.source(language="cpp")


def test_lines_fit():
    assert max(map(len, printed(linear_op(), width=40).splitlines()[1:])) <= 100
