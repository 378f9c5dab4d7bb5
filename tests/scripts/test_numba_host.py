from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba")

from numba import cuda

from noyau.scripts.numba_hooks import hooked
from noyau.scripts.numba_host import WORDS
from noyau.scripts.records import Session


def test_a_script_hears_of_a_device_and_of_time():
    with hooked(Session("here")):
        device = cuda.get_current_device()
        assert (device.WARP_SIZE, device.MAX_THREADS_PER_BLOCK) == (32, 1024)
        first, last = cuda.event(timing=True), cuda.event()
        for each in (first, last):
            each.record(cuda.default_stream())
            each.wait()
            each.synchronize()
        assert last.query()
        assert cuda.event_elapsed_time(first, last) > 0
        cuda.external_stream(0).synchronize()
        with cuda.mapped(np.ones(3)) as given, cuda.profiling():
            assert given.sum() == 3
        assert cuda.managed_array(3).shape == (3,)


def test_each_word_is_one_of_numba_cuda():
    assert [name for name in WORDS if not hasattr(cuda, name)] == []
