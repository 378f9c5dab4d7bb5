"""Kernels for the levels of Arm are compiled, on any machine that has zig."""

from __future__ import annotations

import struct
import subprocess
import sys

import numpy as np
import pytest

import noyau

pytestmark = pytest.mark.long
AARCH64 = 183  # e_machine of ELF


@noyau.op("f32[rows, n] -> f32[rows, n]")
def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("level", ["generic", "generic+v8_2a", "generic+v9a"])
def test_a_generated_kernel_is_an_object_of_aarch64(level, tmp_path):
    pytest.importorskip("ziglang", reason="the extra cc brings it")
    text, name = tmp_path / "softmax.c", tmp_path / "softmax.o"
    text.write_text(softmax.source("c"))
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-gnu", f"-mcpu={level}"]
    flags = ["-std=gnu11", "-O3", "-fPIC", "-ffp-contract=off"]
    subprocess.run([*compiler, *flags, "-c", str(text), "-o", str(name)], check=True)
    assert struct.unpack_from("<H", name.read_bytes(), 18)[0] == AARCH64
