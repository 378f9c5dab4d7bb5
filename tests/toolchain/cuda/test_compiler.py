"""NVRTC: one error in a line where it is not there, or refuses a text."""

from __future__ import annotations

import sys

import pytest

from noyau.errors import BuildError, MissingExtraError
from noyau.toolchain.cuda import compiler


def test_a_text_that_does_not_compile_is_one_error(monkeypatch):
    class Program:
        def __init__(self, *_):
            pass

        def compile(self, _):
            raise RuntimeError("NVRTC_ERROR_COMPILATION\n\nkernel.cu(3): error: identifier y is undefined\n")

    monkeypatch.setattr(compiler.cuda_core, "Program", Program)
    wanted = "^NVRTC makes no machine code for sm_90: kernel.cu.3.: error: identifier y is undefined$"
    with pytest.raises(BuildError, match=wanted):
        compiler.load("a text", "sm_90")


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    monkeypatch.delitem(sys.modules, "noyau.toolchain.cuda.compiler")
    with pytest.raises(
        MissingExtraError, match=r"cuda-core is not installed; run: pip install 'noyau-kernels\[cuda\]'"
    ):
        __import__("noyau.toolchain.cuda.compiler")
