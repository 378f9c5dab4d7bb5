from __future__ import annotations

import json

import pytest

import noyau
from noyau.errors import SignatureError
from tests.ops.dispatch.ops import linear_op, numbers, scale_op, softmax_op


def test_what_runs_and_why():
    op = scale_op()
    op.kernel(lambda x, by, out, *, shift=0.0: None, name="empty")
    told = op.explain(numbers(8)[::2], 2.0, shift=1.5)
    assert told.kernel == told.language == "c"
    assert told.why == "generated; it passed its smoke certificate"
    first, *others = str(told).splitlines()
    assert first == "scale(x: f32[n] strided, by: f32; shift=1.5)"
    assert others[0].startswith("  runs c, in c, since 20")
    assert "  empty may not: it has not been checked yet as it is: noyau.check(op) does that" in str(told)
    assert "  reference may run too: it is the op as it is written" in others


def test_the_record():
    record = softmax_told = softmax_op().explain(numbers(3, 4)).to_json()
    assert json.loads(json.dumps(record)) == json.loads(json.dumps(softmax_told))
    assert record["schema_version"] == 1
    assert record["kernel"] == "c"


def test_inputs_that_do_not_fit():
    with pytest.raises(SignatureError, match=r"linear: x: f32\[2, 3\] binds m=2, k=3; weight: f32\[4, 5\]"):
        linear_op().explain(numbers(2, 3), numbers(4, 5), numbers(5))


def test_what_was_checked_since_is_told_once(empty_cache):
    op = scale_op()

    @op.kernel
    def checked(x, by, out, *, shift=0.0):
        out[...] = x * by + shift

    assert "checked may not: it has not been checked yet" in str(op.explain(numbers(8), 2.0))
    assert noyau.check(op, generated=False).ok
    told = op.explain(numbers(8), 2.0)
    assert ("checked", "it was checked") in told.eligible
    assert dict(told.rejected) == {}
    assert repr(told) == str(told)


def test_within_a_reference_nothing_else_runs():
    op = scale_op()
    with noyau.reference():
        told = op.explain(numbers(8), 2.0)
    assert (told.kernel, told.language) == ("reference", "numpy")
    assert dict(told.rejected)["c"] == told.why == "everything runs as it is written here: within noyau.reference()"
    assert op.explain(numbers(8), 2.0).kernel == "c"
