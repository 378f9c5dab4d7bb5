from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest

from tests.dispatching.ops import scale_op


def test_what_is_known_of_an_op():
    described = scale_op().description
    assert described.place == f"{__file__.replace('test_descriptions', 'dispatching/ops')}:{described.line}"
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
