from __future__ import annotations

import pytest

from noyau.timing.rates import ceiling, gain_s


def test_what_is_left_is_the_ceiling():
    assert ceiling(10.0, [2.0, 3.0]) == 2.0
    assert ceiling(10.0, []) == 1.0


@pytest.mark.parametrize("gain", [9.5, 10.0, 11.0])
def test_a_ceiling_beyond_what_a_clock_can_tell_is_none(gain):
    assert ceiling(10.0, [gain]) is None
    assert ceiling(10.0, [9.4]) == pytest.approx(10 / 0.6)


def test_no_time_has_no_ceiling():
    assert ceiling(0.0, []) is None


def test_a_part_gains_what_is_above_its_floor():
    assert gain_s(3.0, 1.0) == 2.0
    assert gain_s(1.0, 3.0) == 0.0
