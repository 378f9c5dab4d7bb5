"""What goes wrong on a GPU, for once where there is one: run by hand, pytest -m gpu."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]
LOST = (
    r"DeviceError: {}: a kernel that ran on {} before trapped \(.*\), and the context of this process is lost: nothing "
    r"runs on the GPU until the process is started again\. To find the kernel, .*"
)
SUM = r"2\.0"
OLD_DRIVER = r"""
#include <string.h>
int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *version) { *version = 11040; return 0; }
int cuGetProcAddress(const char *name, void **found, int version, unsigned long long flags) {
  *found = strcmp(name, "cuDriverGetVersion") ? 0 : (void *)cuDriverGetVersion;
  if (!strcmp(name, "cuInit")) *found = (void *)cuInit;
  return *found ? 0 : 500;
}
int cuGetProcAddress_v2(const char *name, void **found, int version, unsigned long long flags, void *status) {
  if (!strcmp(name, "cuGetProcAddress")) { *found = (void *)cuGetProcAddress_v2; return 0; }
  return cuGetProcAddress(name, found, version, flags);
}
"""


def told(case, **environment):
    """What a case of hostile.py prints."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.hosts.torch.hostile", case]
    run = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout.splitlines()


def require(lines, *wanted):
    assert len(lines) == len(wanted), lines
    for line, want in zip(lines, wanted, strict=True):
        assert re.fullmatch(want, line), line


def test_a_kernel_that_traps_loses_the_context_and_every_call_says_so():
    called = (r"softmax\[triton\]", "doubled", "rmsnorm_backward.*", "a compiled graph", "a compiled graph", "copied")
    require(told("lost"), *(LOST.format(each, ".*") for each in called))


def test_launches_beyond_limits_name_them_and_nothing_is_lost():
    require(
        told("limits"),
        r"DeviceError: repeated\[along_y\]: a launch has 65536 programs along y, and CUDA takes 65535; give .*",
        r"DeviceError: squared: a launch asks for \d+ bytes of shared memory a program, and cuda:0 has \d+; give .*",
        r"DeviceError: kept: a launch asks for 2048 threads a program, and cuda:0 has 1024; give .*",
        SUM,
    )


def test_a_device_that_is_full_has_the_ops_again_once_it_is_not():
    short = r"OutOfMemoryError: {} needs .* on cuda:0 .*; free tensors, or give it a part at a time"
    require(told("memory"), *(short.format(f"{name}.*") for name in ("softmax", "rmsnorm", "softmax_backward")), "True")


def test_without_a_device_there_is_one_reason():
    want = f"no CUDA device can be used by torch {re.escape(torch.__version__)}: No CUDA GPUs are available"
    require(told("absent", CUDA_VISIBLE_DEVICES=""), f"BuildError: {want}; TRITON_INTERPRET=1.*", "CheckError: .*", SUM)


@pytest.mark.parametrize(
    ("driver", "reason"),
    [
        ("int cuInit(unsigned flags) { return 0; }", "Found no NVIDIA driver on your system"),
        (OLD_DRIVER, r"The NVIDIA driver on your system is too old \(found version 11040\)"),
    ],
    ids=["none", "too old"],
)
def test_a_driver_that_is_missing_or_too_old_is_named(driver, reason, tmp_path):
    compiler = shutil.which("cc") or pytest.skip("no compiler makes a driver")
    (tmp_path / "driver.c").write_text(driver)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", tmp_path / "libcuda.so.1", tmp_path / "driver.c"], check=True)
    found = told("absent", LD_LIBRARY_PATH=f"{tmp_path}:{os.environ.get('LD_LIBRARY_PATH', '')}")
    want = f"BuildError: no CUDA device can be used by torch .*: {reason}; TRITON_INTERPRET=1.*"
    require(found, want, "CheckError: .*", SUM)
