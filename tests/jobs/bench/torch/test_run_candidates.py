from __future__ import annotations

import numpy as np
import pytest
import torch

import noyau
from noyau.errors import BuildError, InputError
from noyau.jobs.bench.inputs import draw_by, vary
from noyau.jobs.bench.run import device_of
from noyau.jobs.bench.torch.run import DeviceCandidate, device_name, on_host, tile_text

CPU = torch.device("cpu")


def test_draws_become_tensors_and_arguments_lie_as_they_were_given():
    given = (np.arange(12.0).reshape(3, 4).T, np.float32(2), np.broadcast_to(np.arange(4.0), (3, 4)), "mean")
    on = DeviceCandidate(vary(given, 0), CPU)
    draws = on.draws()
    assert len(draws) == 3
    turned, number, repeated, word = on.arguments(draws[0])
    assert turned.stride() == (1, 4)
    assert np.array_equal(turned.numpy(), given[0])
    assert repeated.stride() == (0, 1)
    assert np.array_equal(repeated.numpy(), given[2])
    assert (number, word) == (2.0, "mean")


def test_what_is_judged_has_the_numbers_in_their_places():
    on = DeviceCandidate(draw_by(lambda seed: (np.full(3, float(seed)), np.array(5.0), np.full(2, float(seed)))), CPU)
    (first, second) = on.draws()[1]
    arrays = on.arrays([first.numpy(), second.numpy()])
    assert [array.tolist() for array in arrays] == [[1, 1, 1], 5, [1, 1]]


def test_tensors_come_back_with_their_strides():
    turned = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3).t()
    assert on_host(turned).strides == (2, 6)
    assert on_host(turned).dtype.name == "bfloat16"
    assert on_host(3) == 3


def test_the_device_is_that_of_the_tensors_or_the_one_that_is_asked_for():
    assert device_name((torch.ones(1), 2)) == ""
    assert device_of((torch.ones(1),), "") == ""
    assert device_of(None, "cpu") == ""
    for wrong in ("tpu", "cuda:x", "cuda;"):
        with pytest.raises(InputError, match="what can be timed on is cpu, cuda, or cuda:1"):
            device_of(None, wrong)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_one_line():
    op = noyau.op("float[n] -> float[n]")(lambda x: x + x)
    with pytest.raises(BuildError, match=r"built without CUDA|no CUDA device can be used"):
        noyau.bench(op, device="cuda")
    with pytest.raises(BuildError, match=r"built without CUDA|no CUDA device can be used"):
        noyau.tune(op, device="cuda")


def test_tiles_are_in_the_name():
    assert tile_text({}) == ""
    assert tile_text({"TILE": 1024, "num_warps": 4}) == " (TILE=1024, num_warps=4)"
