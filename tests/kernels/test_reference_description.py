from __future__ import annotations

import re
from dataclasses import FrozenInstanceError, replace

import pytest

import noyau
from noyau.errors import SignatureError
from tests.ops.dispatch.ops import scale_op


def test_what_is_known_of_an_op():
    described = scale_op().description
    assert (
        described.place
        == f"{__file__.replace('kernels/test_reference_description', 'ops/dispatch/ops')}:{described.line}"
    )
    assert replace(described, file=None).place == f"line {described.line}"
    assert described.target.op == "scale"
    assert described.target.names == ("x", "by", "out", "n", "shift")
    with pytest.raises(FrozenInstanceError):
        described.name = "other"


def test_attaching_makes_another():
    op = scale_op()
    before = op.description
    op.kernel(lambda x, by, out: None, name="empty")
    assert before.kernels == ()
    assert [kernel.name for kernel in op.description.kernels] == ["empty"]


@pytest.mark.parametrize("wrong", ["two\nlines", " ", "a\x00", 3])
def test_a_name_is_one_line_of_letters(wrong):
    told = "a name is a text of letters that print, on one line"
    with pytest.raises(SignatureError, match=rf"the op of <lambda> is named {re.escape(repr(wrong))}; {told}"):
        noyau.op("f32[n] -> f32[n]", name=wrong)(lambda x: x)
    with pytest.raises(SignatureError, match=rf"a kernel of op is named {re.escape(repr(wrong))}; {told}"):
        noyau.op("f32[n] -> f32[n]", name="op")(lambda x: x).kernel(lambda x: x, name=wrong)
