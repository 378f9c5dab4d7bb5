from __future__ import annotations

import numpy as np
from numba import cuda

from noyau.sanitizer.scripts.numba_hooks import install_hooks
from noyau.sanitizer.scripts.numba_host import WORDS
from noyau.sanitizer.scripts.record import ScriptSession


def test_a_script_hears_of_a_device_and_of_time():
    with install_hooks(ScriptSession("here")):
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


def test_devices_contexts_and_arrays(capsys):
    with install_hooks(ScriptSession("here")):
        with cuda.gpus[0] as device:
            assert device.name == b"no GPU: watched by noyau"
        assert len(cuda.gpus) == 1
        assert cuda.current_context().get_memory_info()[0] == 80 << 30
        cuda.current_context().synchronize()
        cuda.select_device(0).reset()
        there = cuda.to_device(np.ones(3))
        assert cuda.as_cuda_array(there) is there
        assert cuda.is_cuda_array(cuda.as_cuda_array(np.ones(3)))
        assert cuda.detect()
        cuda.close()
    assert capsys.readouterr().out.startswith("Found 1 CUDA devices")


def test_each_word_is_one_of_numba_cuda():
    assert [name for name in WORDS if not hasattr(cuda, name)] == []
