from __future__ import annotations

import numpy as np
import pytest

from noyau.errors import UnsupportedError
from noyau.frontends.numpy.trace import MOST_STEPS
from tests.frontends.numpy.traces import found, x


def weighted(a):
    made = a[0]
    for k in range(1, a.shape[0]):
        made = made + a[k] * k
    return made


def softmax_by_rows(a):
    made = np.empty_like(a)
    for k in range(a.shape[0]):
        made[k] = np.exp(a[k] - a[k].max())
    return made


def long_rounds(a):
    for k in range(a.shape[0]):
        a = np.tanh(a * a + np.float32(k)) / np.sqrt(a + 2) - np.exp(a) * (a - 1)
    return a


def horner(a, c):
    made = np.zeros_like(a)
    for k in range(int(c.shape[0])):
        made = (np.tanh(made * a + c[k]) * np.sqrt(a * a + 1) - made / (a + 2)) * np.exp(-a) + 1
    return made


@pytest.mark.parametrize(("function", "shape"), [(weighted, (200,)), (softmax_by_rows, (40, 2)), (long_rounds, (100,))])
def test_a_loop_over_a_long_axis_is_not_unrolled(function, shape):
    """What follows takes minutes: a kernel of some hundred steps that hang on each other, or a pass for each row."""
    told = f"a loop takes more than {MOST_STEPS} steps in [0-9]+ rounds, which are unrolled .* write it for whole axes"
    with (
        np.errstate(all="ignore"),
        pytest.raises(UnsupportedError, match=f"at line [0-9]+ of .*test_trace_unrolling.py: {told}"),
    ):
        found(function, x(*shape))


def test_a_short_loop_is():
    assert len(found(weighted, x(60)).graph.nodes) > 100
    assert len(found(horner, x(7), x(24)).graph.nodes) > 250
    assert len(found(softmax_by_rows, x(20, 3)).graph.nodes) > 100


def test_what_is_no_loop_adds_no_round():
    """Straight lines, each of its own, of a function that asks for a size."""
    lines = "".join(f"    made = made * a + np.float32({k})\n" for k in range(500))
    scope = {"np": np}
    exec(
        f"def straight(a):\n    size = int(a.shape[0])\n    made = a\n{lines}    return made / np.float32(size)\n",
        scope,
    )
    assert len(found(scope["straight"], x(3) / 9).graph.nodes) > MOST_STEPS
