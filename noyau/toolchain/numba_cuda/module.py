"""The names of a text of language `numba_cuda`, in a file from which its kernels can be read, by Numba and by those who
look for a bug."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from noyau.errors import MissingExtraError
from noyau.toolchain.python_modules import file_of

try:
    from numba import cuda
except ImportError as error:
    raise MissingExtraError("numba is not installed; run: pip install 'noyau-kernels[numba]'") from error


@lru_cache(maxsize=64)
def load(text: str) -> Mapping[str, Any]:
    """The names that a text defines; nothing is compiled before a kernel is launched."""
    path = file_of(text, cuda.__name__)
    names: dict[str, Any] = {"__name__": f"noyau_numba_cuda_{path.parent.name}", "__file__": str(path)}
    exec(compile(text, str(path), "exec"), names)  # noqa: S102  made by codegen/numba_cuda/printer.py
    return names
