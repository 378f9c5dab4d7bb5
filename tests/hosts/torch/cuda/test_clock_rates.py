from __future__ import annotations

import pytest
import torch

from noyau.errors import BuildError
from noyau.hosts.torch.cuda.clock import gpu_rates
from noyau.timing.gpu_rate_cache import COLD, HOT


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_is_refused_in_one_line():
    with pytest.raises(BuildError, match=r"built without CUDA|no CUDA device can be used"):
        gpu_rates()


@pytest.mark.gpu
def test_the_gpu_is_measured_once_and_kept(empty_cache):
    found = gpu_rates()
    assert gpu_rates() == found
    largest = max(found.copy[COLD])
    assert found.copy[COLD][largest] > 1e11
    assert found.flush_s[COLD] > found.flush_s[HOT]
    assert found.matmul["bfloat16"] > found.matmul["float32"]
    assert found.transfer["to device, pinned"][1 << 28] > 1e9
    assert found.note == "" or "GPU" in found.note
    with pytest.raises(BuildError, match="there is no cuda:99"):
        gpu_rates(99)
