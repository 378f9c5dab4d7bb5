"""What takes too long is ended where it stands, and nothing else is."""

from __future__ import annotations

import math
import threading
import time
from contextlib import suppress

import pytest

from noyau.workers.signals import TimeIsUp, time_limit


def without_end():
    while True:
        try:
            time.sleep(0)
        except Exception:  # noqa: BLE001  as a kernel may
            continue


def test_a_loop_without_end_is_ended():
    with pytest.raises(TimeIsUp), time_limit(0.05):
        without_end()


def test_what_comes_after_is_left_alone():
    for _ in range(200):
        with suppress(TimeIsUp), time_limit(0.0005):
            pass
    for _ in range(1000):  # where the limit would be raised, had it come too late
        time.sleep(0)


def test_what_fails_within_fails_as_it_is():
    with pytest.raises(ZeroDivisionError), time_limit(10):
        raise ZeroDivisionError


def test_no_limit_at_all():
    with time_limit(math.inf):
        assert not any(isinstance(each, threading.Timer) for each in threading.enumerate())
