"""Errors of a kernel that Python runs in place of a GPU: whose they are."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.errors import RaisedError, UnsupportedError
from noyau.kernels.call import error_of


def fault_of(function, *args):
    """What a function raises."""
    try:
        function(*args)
    except Exception as fault:  # noqa: BLE001  whatever it raises
        return fault
    raise AssertionError("it raised nothing")


def raises(x):
    raise ValueError(f"no {x}")


def asserts(x):
    assert x > 3, "too small"


def unknown(x):
    return x + not_there  # noqa: F821


def divides(x):
    return 1 // (x - 1)


def lacks(x):
    return x.to(3)


def within_numpy(x):
    return np.reshape(np.zeros(3), (2, x))


@pytest.mark.parametrize("kernel", [raises, asserts, unknown, divides])
def test_what_the_kernel_does_by_itself_is_its_own(kernel):
    error = error_of("op[k]", fault_of(kernel, 1))
    assert isinstance(error, RaisedError)
    assert str(error).startswith("op[k] raised ")


@pytest.mark.parametrize(
    ("kernel", "message"), [(lacks, "AttributeError: 'int' object has no attribute 'to'"), (within_numpy, "ValueError")]
)
def test_what_a_stand_in_cannot_do_says_nothing_of_the_kernel(kernel, message):
    error = error_of("op[k]", fault_of(kernel, 1))
    assert isinstance(error, UnsupportedError)
    assert f"without a GPU it raised {message}" in str(error)
    assert "at test_call_interpretation.py:" in str(error)
    assert "--sanitizer" in str(error)


def test_the_error_that_began_it_counts():
    def wraps(x):
        try:
            raises(x)
        except ValueError as fault:
            raise RuntimeError("the interpreter failed") from fault

    assert "raised ValueError: no 1" in str(error_of("op[k]", fault_of(wraps, 1)))


def test_a_cause_that_nobody_raised_is_none():
    def explains(x):
        raise RuntimeError("the kernel's own") from ValueError("a value")

    error = error_of("op[k]", fault_of(explains, 1))
    assert isinstance(error, RaisedError) and str(error) == "op[k] raised RuntimeError: the kernel's own"
