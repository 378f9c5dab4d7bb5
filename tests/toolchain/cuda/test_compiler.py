"""Texts of CUDA C++ as machine code: one error in a line where nothing makes it, nvcc where NVRTC is not there, and the
resources of a kernel, read without a GPU."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import pytest

from noyau.errors import BuildError, MissingExtraError
from noyau.toolchain.cuda import compiler

TEXT = """
template <class T> __device__ T twice(T x) { return 2 * x; }
__global__ void scale(const float *x, float *out) {
    __shared__ float held[100];
    held[threadIdx.x] = twice(x[threadIdx.x]);
    __syncthreads();
    out[threadIdx.x] = held[99 - threadIdx.x];
}
extern "C" __global__ void plain(float *out) { out[0] = 1; }
"""
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")


def standing_in(message):
    """A cuda.core whose NVRTC refuses every text with this message."""

    def refuse(*_):
        raise RuntimeError(message)

    program = SimpleNamespace(compile=refuse)
    return lambda: SimpleNamespace(Program=lambda *_: program, ProgramOptions=lambda **_: None)


def test_a_text_that_does_not_compile_is_one_error(monkeypatch):
    monkeypatch.setattr(
        compiler, "core", standing_in("NVRTC_ERROR\n\nkernel.cu(3): error: identifier y is undefined\n")
    )
    wanted = "^NVRTC makes no machine code for sm_90: kernel.cu.3.: error: identifier y is undefined$"
    with pytest.raises(BuildError, match=wanted):
        compiler.cubin_of("a text", "sm_90")


def test_without_nvrtc_and_nvcc_there_is_one_error(monkeypatch):
    monkeypatch.setattr(compiler, "core", standing_in("Failure finding libnvrtc.so"))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(BuildError, match=r"^NVRTC makes no machine code for sm_90: Failure finding libnvrtc.so$"):
        compiler.cubin_of("another text", "sm_90")
    with pytest.raises(BuildError, match=r"^there is no nvcc on the PATH, which takes flags \(-O1\); leave them out$"):
        compiler.cubin_of("another text", "sm_90", ("-O1",))


def test_without_the_package_the_extra_is_named(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(compiler, "import_module", missing)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    compiler.core.cache_clear()
    with pytest.raises(
        MissingExtraError, match=r"cuda-core is not installed; run: pip install 'noyau-kernels\[cuda\]'"
    ):
        compiler.cubin_of("one text more", "sm_90")


def test_a_compiler_that_does_not_end_is_one_error(monkeypatch, tmp_path):
    slow = tmp_path / "nvcc"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(slow))
    monkeypatch.setattr(compiler, "NVCC_S", 0.1)
    with pytest.raises(BuildError, match=r"^nvcc needs more than 0\.1 s, and was ended$"):
        compiler.cubin_of("one more text", "sm_90", ("-O1",))


@needs_nvcc
def test_nvcc_compiles_and_the_resources_of_a_kernel_are_read_without_a_gpu(monkeypatch):
    monkeypatch.setattr(compiler, "core", standing_in("Failure finding libnvrtc.so"))
    cubin = compiler.cubin_of(TEXT, "sm_90")
    registers, shared_bytes = compiler.resources_in(cubin)[compiler.symbol_of(cubin, "scale")]
    assert shared_bytes == 400
    assert 4 <= registers <= 64
    assert compiler.symbol_of(cubin, "plain") == "plain"
    with pytest.raises(BuildError, match=r"^the text has no kernels named scal; give each a name of its own$"):
        compiler.symbol_of(cubin, "scal")
    with pytest.raises(BuildError, match=r"^nvcc makes no machine code for sm_90: kernel\.cu\(1\): error: .*undefined"):
        compiler.cubin_of("__global__ void f(float *x) { x[0] = y; }", "sm_90")
