from __future__ import annotations

import ctypes
import itertools

import numpy as np
import pytest

from noyau.codegen import cmath
from noyau.timing import rates
from noyau.timing.rates import C_TYPES, loop_of, loops, memory_rate, repeat, scalar_rate, signature


@pytest.fixture(scope="module")
def built():
    return loops()


@pytest.mark.parametrize("name", ["noyau_copy", "noyau_copy_loop", "noyau_read"])
@pytest.mark.parametrize("threads", [1, 2])
def test_memory_has_a_rate(built, name, threads):
    assert 1e6 < memory_rate(loop_of(built, name), name, 1 << 16, threads) < 1e14


def test_a_copy_copies_and_a_read_reads(built):
    one, other = np.arange(96, dtype=np.uint64), np.zeros(96, np.uint64)
    loop_of(built, "noyau_copy")(one.ctypes.data, other.ctypes.data, 96, 1)
    assert (one == other).all()
    loop_of(built, "noyau_copy_loop")(one.ctypes.data, other.ctypes.data, 96, 3)
    assert (other == one ^ np.uint64(2)).all()
    other[:] = 0
    loop_of(built, "noyau_read")(one.ctypes.data, other.ctypes.data, 96, 5)
    assert other[0] == 5 * one.sum()


CASTS = ["noyau_f16_to_f32", "noyau_f64_to_bf16", "noyau_f8e5m2_to_f32", "noyau_bf16_low_to_f32"]


@pytest.mark.parametrize("name", ["noyau_exp_f32", "noyau_atan2_f64", *CASTS])
def test_a_scalar_function_has_a_rate(built, name):
    assert 1e4 < scalar_rate(built, name) < 1e13


def test_every_function_of_the_language_has_numbers_to_work_on():
    for result, operands in map(signature, cmath.NAMES):
        assert result in C_TYPES
        assert all(rates._values(kind, 0).shape == (rates.VALUES,) for kind in operands)


def test_the_loop_of_a_function_computes_it(built):
    x, y = np.linspace(-2, 2, 50, dtype=np.float32), np.zeros(50, np.float32)
    loop_of(built, "noyau_exp_f32_loop")(x.ctypes.data, y.ctypes.data, 50, 1)
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-6)


def test_every_function_of_the_language_is_there(built):
    assert all(isinstance(getattr(built, f"{name}_loop"), ctypes._CFuncPtr) for name in cmath.NAMES)


def test_the_best_of_some_samples_counts():
    state = {"now": 0.0}
    noise = itertools.cycle([3.0, 1.0, 2.0])

    def call(rounds: int) -> None:
        state["now"] += 1e-4 * rounds * next(noise)

    assert repeat([call], lambda: state["now"]) == pytest.approx(1e4)
    assert rates.SIZES[0] < rates.LARGEST
