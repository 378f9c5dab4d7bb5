from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from noyau.workers import nvml
from noyau.workers.nvml import GpuConditions, driver_version, gpu_conditions, has_driver, in_words, unsteady_gpu


class Failure(Exception):
    """As NVML raises them."""


class Library:
    """NVML of a GPU that answers all but its power."""

    NVMLError = Failure

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid != b"GPU-1":
            raise Failure
        return 7

    def nvmlDeviceGetClockInfo(self, _, which):
        return {1: 1980, 2: 3201}[which]

    def nvmlDeviceGetTemperature(self, _, which):
        return 41

    def nvmlDeviceGetPowerUsage(self, _):
        raise Failure

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, _):
        return 0x44


def test_what_the_driver_tells_is_taken_and_what_it_does_not_is_none():
    found = gpu_conditions("GPU-1", 1978.5, Library())
    assert found == GpuConditions(1978.5, 1980, 3201, 41, None, "power limit, thermal slowdown")
    assert gpu_conditions("GPU-2", 1978.5, Library()) == GpuConditions(1978.5)


@pytest.mark.parametrize(
    "module", [None, SimpleNamespace(nvmlInit=lambda: 1 / 0, NVMLError=ZeroDivisionError)], ids=["missing", "no driver"]
)
def test_without_the_library_only_the_spin_is_known(monkeypatch, module):
    monkeypatch.setitem(sys.modules, "pynvml", module)
    nvml._nvml.cache_clear()
    try:
        assert gpu_conditions("GPU-1", 1978.5) == GpuConditions(1978.5)
    finally:
        nvml._nvml.cache_clear()


def test_idleness_holds_nothing_back():
    assert in_words(0x1) == ""
    assert in_words(0x8) == "hardware slowdown"


def test_clocks_that_move_make_times_doubtful():
    calm = GpuConditions(1980.0)
    assert unsteady_gpu(calm, replace(calm, spin_mhz=1900.0)) == ""
    assert "went from 1980 to 1200 MHz" in unsteady_gpu(calm, replace(calm, spin_mhz=1200.0))
    assert "held back by its power limit" in unsteady_gpu(calm, replace(calm, held_back="power limit"))
    assert unsteady_gpu(GpuConditions(), GpuConditions()) == ""


def test_the_driver_s_version_is_read(tmp_path):
    path = tmp_path / "version"
    path.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n")
    assert driver_version(path) == "580.159.04"
    assert driver_version(tmp_path / "missing") == ""


@pytest.mark.parametrize(("devices", "is_there"), [(None, True), ("0,1", True), ("", False), ("-1", False)])
def test_a_driver_whose_devices_are_all_hidden_is_none(devices, is_there, monkeypatch):
    monkeypatch.setattr(nvml, "driver_version", lambda: "580.159.04")
    if devices is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", devices)
    assert has_driver() is is_there
