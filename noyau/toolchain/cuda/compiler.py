"""Texts of language `cuda` as machine code of a GPU, by NVRTC: a cubin, which stays in the cache.

cuda.core is NVIDIA's own Python for it: it finds NVRTC, wherever the toolkit or torch has brought it, and loads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

from noyau.errors import BuildError, MissingExtraError
from noyau.toolchain.c.compiler import summary
from noyau.toolchain.cache import cached, digest

try:
    import cuda.core as cuda_core
except ImportError as error:
    raise MissingExtraError("cuda-core is not installed; run: pip install 'noyau-kernels[cuda]'") from error


@cache
def load(text: str, architecture: str) -> Any:
    """The kernels of a text, compiled for an architecture ("sm_90"), as an ObjectCode of cuda.core.

    BuildError where NVRTC is not there, or refuses the text."""
    key = digest("cubin", architecture, cuda_core.__version__, text)
    path = cached(key, ".cubin", lambda at: at.write_bytes(_compiled(text, architecture)))
    return cuda_core.ObjectCode.from_cubin(path.read_bytes())


def _compiled(text: str, architecture: str) -> bytes:
    options = cuda_core.ProgramOptions(std="c++17", arch=architecture)
    try:
        code: bytes = cuda_core.Program(text, "c++", options).compile("cubin").code
    except Exception as error:  # NVRTCError with its log, or what finds no library
        raise BuildError(f"NVRTC makes no machine code for {architecture}: {summary(str(error))}") from error
    return code


class Launch:
    """A kernel of compiled code over a grid of blocks of threads."""

    def __init__(self, code: Any, name: str, blocks: int, block: tuple[int, int]) -> None:
        self.kernel = code.get_kernel(name)
        self.grid = cuda_core.LaunchConfig(grid=blocks, block=block)

    def __call__(self, stream: int, arguments: Sequence[Any]) -> None:
        """Launch on a stream, by its handle. Pointers are ints, sizes numbers of NumPy."""
        cuda_core.launch(_stream(stream), self.grid, self.kernel, *arguments)


@lru_cache(maxsize=64)
def _stream(handle: int) -> Any:
    return cuda_core.Stream.from_handle(handle)
