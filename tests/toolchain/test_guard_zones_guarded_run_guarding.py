from __future__ import annotations

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import CheckError
from noyau.toolchain.guard_zones import OTHER, PLAIN, ZEROS, End, Guards, How, how_to_run

X = np.arange(1, 5, dtype=np.float32)


def guards(call, fills: bool = True) -> Guards:
    """What runs a function that fills the second array it is given."""
    ends = (End("x", DType.F32, (4,)),), (End("out", DType.F32, (4,)),)

    def run(given, made):
        call(given[0], made[0])
        return made

    return Guards(run, "op[k]", *ends, fills)


def double(x, out):
    out[...] = 2 * x


def adding(x, out):
    out += x


def half(x, out):
    out[:2] = x[:2]


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "sliced", "offset", "flipped"])
def test_results_in_every_layout(layout):
    assert np.array_equal(guards(double).run([X], How(layout))[0], 2 * X)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (half, r"op\[k\] never wrote 2 cells of out; the first is \[2\]"),
        (adding, r"op\[k\] reads before it writes 4 cells of out; the first is \[0\]"),
        (lambda x, out: (double(x, out), x.fill(0)), r"op\[k\] changed its input x"),
    ],
)
def test_what_a_run_may_not_do(call, told):
    with pytest.raises(CheckError, match=told):
        guards(call).run([X])


def test_what_outputs_hold_before():
    assert np.array_equal(guards(adding).run([X], How(outputs=ZEROS))[0], X)
    assert np.array_equal(guards(half).run([X], How(outputs=ZEROS))[0], [1, 2, 0, 0])
    assert np.isnan(guards(half, fills=False).run([X])[0][2])
    assert np.isfinite(guards(half, fills=False).run([X], How(outputs=PLAIN))[0]).all()


def test_what_lies_around_inputs():
    def beyond(x, out):
        out[...] = np.lib.stride_tricks.as_strided(x, (5,), (4,))[4]

    assert np.isnan(guards(beyond).run([X])[0]).all()
    assert np.isfinite(guards(beyond).run([X], How(around=PLAIN))[0]).all()


def test_what_copies_one_cell_too_many_shows():
    def beyond(x, out):
        source, target = (np.lib.stride_tricks.as_strided(each, (5,), (4,)) for each in (x, out))
        target[...] = source

    with pytest.raises(CheckError, match="wrote outside out, 1 cells after its end"):
        guards(beyond).run([X], How(around=OTHER))


def test_results_are_as_they_are_signed():
    wrong = Guards(lambda given, made: [given[0][:2]], "op[k]", (End("x", DType.F32, (4,)),), guards(double).outputs)
    with pytest.raises(CheckError, match=r"op\[k\] gave float32\[2\] as out, not float32\[4\]"):
        wrong.run([X])


def test_the_two_runs_of_a_certificate():
    assert how_to_run(1) == How()
    assert (how_to_run(3).around, how_to_run(3).outputs) == (PLAIN, PLAIN)
