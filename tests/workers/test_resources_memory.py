from __future__ import annotations

import platform
import subprocess
import sys

import numpy as np
import pytest

from noyau.workers.resources import forget_peak, give_back, peak_bytes, resident_bytes


def test_memory_is_read_where_linux_tells_it(tmp_path):
    status = tmp_path / "status"
    status.write_text("Name:\tpython\nVmHWM:\t    8804 kB\nVmRSS:\t    7000 kB\n")
    assert resident_bytes(status) == 7000 << 10
    assert peak_bytes(status) == 8804 << 10


def test_elsewhere_the_peak_is_what_the_system_says(tmp_path):
    assert resident_bytes(tmp_path / "missing") is None
    assert peak_bytes(tmp_path / "missing") != 0
    forget_peak(tmp_path / "missing" / "clear_refs")  # and nothing happens


def test_a_peak_that_is_forgotten_begins_anew():
    block = np.ones(64 << 20, np.uint8)
    high = peak_bytes()
    del block
    forget_peak()
    assert peak_bytes() < high


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no word for it")
def test_free_memory_is_given_back():
    blocks = [bytearray(b"x" * 4000) for _ in range(1 << 14)]
    kept = blocks[::64]  # they lie between the others, so that malloc itself gives nothing back
    del blocks
    held = resident_bytes()
    give_back()
    assert resident_bytes() < held - (32 << 20)
    assert len(kept) == 256


def test_what_the_parent_had_is_not_in_the_peak_of_a_process():
    block = np.ones(256 << 20, np.uint8)
    told = "from noyau.workers.resources import peak_bytes; print(peak_bytes())"
    path = f"import sys; sys.path[:] = {sys.path!r}; "
    found = subprocess.run([sys.executable, "-c", path + told], capture_output=True, text=True, check=True)
    assert int(found.stdout) < block.nbytes
