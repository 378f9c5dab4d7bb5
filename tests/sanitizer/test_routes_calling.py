from __future__ import annotations

from pathlib import Path

import pytest

from noyau.errors import MissingExtraError, UnsupportedError
from noyau.kernels.c.parameters import TextFunction
from noyau.sanitizer import routes as sanitizer_routes


class Kernel:
    """As a launch of Triton makes one."""


Kernel.__module__ = "triton.runtime.jit"


def test_what_is_no_kernel_and_what_is_not_installed(monkeypatch):
    with pytest.raises(
        UnsupportedError, match="is no kernel of numba, numba_cuda, triton, c, cpp, cuda, so its accesses are not seen"
    ):
        sanitizer_routes.call(len, ((),), None, "", "len")
    monkeypatch.setattr(sanitizer_routes, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"triton is not installed; run: pip install 'noyau-kernels\[triton\]'"):
        sanitizer_routes.call(Kernel(), ((),), None, "", "kernel")
    with pytest.raises(MissingExtraError, match=r"pyelftools is not .*; run: pip install 'noyau-kernels\[check-c\]'"):
        sanitizer_routes.call(TextFunction(Path("f.cu"), "f", ""), ((),), None, "", "f")
