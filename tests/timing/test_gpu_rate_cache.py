from __future__ import annotations

import json
from dataclasses import replace

import pytest

from noyau.timing import gpu_rate_cache
from noyau.timing.gpu_rate_cache import COLD, HOT, SIZES, keep, rate_at, recall_gpu
from noyau.toolchain import cache
from noyau.workers.nvml import GpuConditions
from tests.timing.gpus import made


def test_a_record_is_read_back_as_it_was(empty_cache):
    assert recall_gpu("a GPU, driver 1") is None
    keep("a GPU, driver 1", made())
    assert recall_gpu("a GPU, driver 1") == made()
    assert json.loads(json.dumps(made().to_json()))["gpu"]["sm_count"] == 100


def test_another_driver_is_another_machine(empty_cache):
    keep("a GPU, driver 1", made())
    assert recall_gpu("a GPU, driver 2") is None


@pytest.mark.parametrize("told", [{}, {"format": 0}, {**made().to_json(), "copy_bytes_per_s": {}}, [1]])
def test_what_is_no_record_is_measured_anew(empty_cache, told):
    gpu_rate_cache.toolchain_cache.keep(gpu_rate_cache._key("a GPU"), told)
    assert recall_gpu("a GPU") is None
    assert cache.folder().exists()


def test_the_floor_is_that_of_a_copy_and_what_is_read_besides():
    found, size = made(4e12), 1 << 28
    assert found.floor_s(size // 2, size // 2) == pytest.approx(size / 4e12)
    assert found.floor_s(size, 0) == pytest.approx(size / 4.4e12)
    assert found.floor_s(3 * size // 4, size // 4) == pytest.approx(size / 2 / 4e12 + size / 2 / 4.4e12)
    assert found.floor_s(0, size) == pytest.approx(size / 4e12)
    assert found.floor_s(1 << 20, 1 << 20, HOT) == pytest.approx((2 << 20) / 16e12)
    assert made(reads=False).floor_s(size, 0) == pytest.approx(size / 4e12)


def test_what_is_faster_than_the_floor_is_a_mistake():
    found, size = made(4e12), 1 << 28
    possible_s = size / 4.4e12
    assert found.mistake(0.91 * possible_s, size, 0) == ""
    assert "the clock or the kernel is wrong" in found.mistake(0.8 * possible_s, size, 0)
    assert found.mistake(0.0, 0, 0) == ""


def test_just_beyond_the_cache_the_rate_of_the_cache_may_be_right():
    found, size = made(4e12), 33 << 20
    assert found.mistake(size / 15e12, size // 2, size // 2, HOT) == ""
    assert found.mistake(size / 15e12, size // 2, size // 2, COLD) != ""


def test_between_two_sizes_the_time_grows_with_the_bytes():
    assert rate_at({10: 1.0, 20: 2.0}, 11) == pytest.approx(1.1)
    assert rate_at({10: 1.0, 20: 2.0}, 20) == 2.0
    assert rate_at({10: 2.0, 20: 2.0}, 15) == pytest.approx(2.0)
    assert rate_at({10: 1.0, 20: 2.0}, 5) == 1.0
    assert rate_at({10: 1.0, 20: 2.0}, 500) == 2.0
    assert SIZES[0] == 64 << 10


def test_what_makes_the_numbers_doubtful_is_said():
    assert made().note == ""
    assert "made no call slower" in replace(made(), flush_s={HOT: 3e-6, COLD: 3e-6}).note
    assert "1000 MHz" in replace(made(), conditions=(GpuConditions(1980.0), GpuConditions(1000.0))).note
