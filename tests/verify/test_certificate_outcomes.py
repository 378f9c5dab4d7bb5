"""Errors over several cases."""

from __future__ import annotations

from noyau.verify.floats import Errors
from tests.verify.test_certificate import GOOD


def test_errors_add_up():
    both = GOOD.kernel + GOOD.unfused
    assert (both.worst_ulp, both.mean_ulp, both.worst_relative, both.cells) == (4.0, 0.65, 4e-7, 200)
    assert Errors().mean_ulp == Errors().mean_relative == 0.0
