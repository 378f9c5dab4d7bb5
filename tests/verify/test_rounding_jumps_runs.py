"""Results that jump: where the argument lies by a jump they may be on either side of it, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.verify.failures import Case
from noyau.verify.rounding import runs_at_jumps
from noyau.verify.trial import certify
from tests.jobs.check.groups import F32, Group

F = np.float32
FLOATS = [DType.F16, DType.BF16, F32]


def quantized(dtype, whole):
    """floor(x / scale), as i32 where `whole`."""
    g = Group()
    x, scale = g.input("x", dtype, "n"), g.input("scale", dtype, "n")
    floor = g.map("floor", g.map("divide", x, scale))
    return g.graph(g.map("cast", floor, dtype=DType.I32) if whole else floor)


def restored(dtype):
    """floor(x / scale) * scale, which jumps and follows `scale`."""
    g = Group()
    x, scale = g.input("x", dtype, "n"), g.input("scale", dtype, "n")
    return g.graph(g.map("multiply", g.map("floor", g.map("divide", x, scale)), scale))


def by_reciprocal(x, scale):
    return np.floor(x * (F(1) / scale))


def by_quotient(x, scale):
    return np.floor(x / scale)


def below(x, scale):
    """As exact as a quotient of 1 ulp."""
    return np.floor(np.where(x == 0, x, np.nextafter(x / scale, F(-np.inf))))


def ceiling(x, scale):
    return np.ceil(x / scale)


def cut(x, scale):
    return np.trunc(x / scale)


def nearest(x, scale):
    return np.rint(x / scale)


def one_less(x, scale):
    return np.floor(x / scale) - 1


def below_zero(x, scale):
    return np.floor(np.nextafter(x / scale, F(-np.inf)))


def at_jumps(dtype, count=300, seed=0):
    """Multiples of a scale, f[count], as near as the dtype has them; then each quotient lies by a whole number."""
    rng = np.random.default_rng(seed)
    scale = rng.uniform(0.01, 3, count).astype(dtype.numpy)
    return (rng.integers(-120, 121, count).astype(F) * scale.astype(F)).astype(dtype.numpy), scale


def between(dtype, count=300):
    """Numbers that lie between multiples of a scale, f[count]."""
    rng = np.random.default_rng(1)
    scale = rng.uniform(0.5, 3, count).astype(dtype.numpy)
    return ((rng.integers(-20, 21, count) + F(0.6)) * scale.astype(F)).astype(dtype.numpy), scale


def right(graph, kernel, inputs):
    def run(arrays):
        return [kernel(*(array.astype(F) for array in arrays)).astype(graph[graph.outputs[0]].dtype.numpy)]

    with np.errstate(all="ignore"):
        return certify(graph, run, [Case("quotients", inputs)], name="k").ok


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("kernel", [by_reciprocal, by_quotient, below])
def test_either_side_of_a_whole_number_is_right(dtype, whole, kernel):
    graph = quantized(dtype, whole)
    assert all(right(graph, kernel, at_jumps(dtype, seed=seed)) for seed in range(5))


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("kernel", [by_reciprocal, by_quotient, below])
def test_what_follows_a_jump_is_right_too(dtype, kernel):
    assert all(
        right(restored(dtype), lambda x, scale: kernel(x, scale) * scale, at_jumps(dtype, seed=seed))
        for seed in range(5)
    )


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("kernel", [ceiling, cut, nearest, one_less])
def test_between_two_jumps_there_is_one_right_value(dtype, whole, kernel):
    graph = quantized(dtype, whole)
    assert right(graph, by_quotient, between(dtype))
    assert not right(graph, kernel, between(dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("kernel", [one_less, below_zero])
def test_zeros_are_meant_and_two_steps_are_none(dtype, kernel):
    x = np.zeros(5, dtype.numpy) if kernel is below_zero else at_jumps(dtype)[0]
    assert not right(quantized(dtype, True), kernel, (x, at_jumps(dtype)[1][: len(x)]))


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16], ids=lambda dtype: dtype.value)
def test_short_floats_are_computed_in_float32_until_they_are_stored(dtype):
    """A quotient that is cast to an integer as float32 has it has digits that the short float has not."""
    x, scale = (np.array([number], dtype.numpy) for number in (3e4, 7.0))
    assert right(quantized(dtype, True), by_quotient, (x, scale))
    assert not right(quantized(dtype, True), lambda x, scale: by_quotient(x, scale) - 3, (x, scale))


def test_where_nothing_jumps_there_is_no_such_run():
    g = Group()
    g.map("multiply", *[g.input("x", F32, "n")] * 2)
    assert list(runs_at_jumps(g.graph(), {"x": np.ones(3, F)})) == []
