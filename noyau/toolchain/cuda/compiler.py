"""Texts of CUDA C++ compiled to machine code of a GPU, a cubin, which is cached: by NVRTC, or, if that is missing or
lacks a header, by nvcc. Neither needs a GPU.

cuda.core is NVIDIA's own Python interface: it finds NVRTC, of the toolkit or of torch, and loads kernels."""

import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib import import_module
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import Any

from noyau.errors import BuildError, MissingExtraError, dependency
from noyau.toolchain.c.compiler import summary
from noyau.toolchain.cache import digest, ensure

NVCC_S = 300.0
_IMPORT = Lock()  # cuda.core is incomplete while it is imported, and other threads must not see it so
# NVRTC has no headers of the host; a text without any uses these types, which nvcc knows too.
_TYPES = "".join(
    f"typedef {sign}{kind} {sign and 'u'}int{bits}_t;\n"
    for bits, kind in ((8, "char"), (16, "short"), (32, "int"), (64, "long"))
    for sign in ("unsigned ", "")
).replace("typedef char", "typedef signed char")
_NO_HEADER = re.compile(r"could not open source file|cannot open source file|Failure finding|No such file")


@cache
def core() -> Any:
    """The module cuda.core. MissingExtraError without it."""
    with dependency("cuda-core", "noyau-kernels[cuda]"), _IMPORT:
        return import_module("cuda.core")


@cache
def load(text: str, architecture: str, flags: tuple[str, ...] = ()) -> Any:
    """The kernels of a text, compiled for an architecture ("sm_90"), as an ObjectCode of cuda.core.

    BuildError if neither NVRTC nor nvcc is available, or the text is refused."""
    return core().ObjectCode.from_cubin(cubin_of(text, architecture, flags))


def cubin_of(text: str, architecture: str, flags: tuple[str, ...] = ()) -> bytes:
    """The machine code of a text, or PTX for "compute_90" and the like, cached or built. BuildError as in `load`."""
    key, suffix = digest("cubin", architecture, *flags, text), f".{_kind(architecture)}"
    return ensure(key, suffix, lambda at: at.write_bytes(_compile(text, architecture, flags))).read_bytes()


def _kind(architecture: str) -> str:
    return "ptx" if architecture.startswith("compute_") else "cubin"


def _compile(text: str, architecture: str, flags: tuple[str, ...]) -> bytes:
    if flags:  # flags are arguments of nvcc
        return _by_nvcc(text, architecture, flags)
    try:
        options = core().ProgramOptions(std="c++17", arch=architecture, lineinfo=True)
        whole = text if "#include" in text else f'{_TYPES}#line 1 "kernel.cu"\n{text}'
        return bytes(core().Program(whole, "c++", options).compile(_kind(architecture)).code)
    except Exception as error:  # NVRTCError with its log, a missing library, or no cuda.core
        message = str(error)
        if shutil.which("nvcc") and (isinstance(error, MissingExtraError) or _NO_HEADER.search(message)):
            return _by_nvcc(text, architecture, flags)
        if isinstance(error, MissingExtraError):
            raise
        raise BuildError(f"NVRTC makes no machine code for {architecture}: {summary(message)}") from error


def _by_nvcc(text: str, architecture: str, flags: Sequence[str]) -> bytes:
    if (nvcc := shutil.which("nvcc")) is None:
        raise BuildError(f"there is no nvcc on the PATH, which takes flags ({' '.join(flags)}); leave them out")
    with tempfile.TemporaryDirectory() as folder:
        source, code = Path(folder, "kernel.cu"), Path(folder, "kernel.cubin")
        source.write_text(text, "utf-8")
        usual = f"-std=c++17 -arch={architecture} -{_kind(architecture)} -lineinfo".split()
        words = [nvcc, *usual, *flags, "-o", str(code), str(source)]
        try:
            ran = subprocess.run(words, capture_output=True, text=True, timeout=NVCC_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise BuildError(f"nvcc needs more than {NVCC_S:g} s, and was ended") from error
        if ran.returncode:
            message = summary(ran.stderr.replace(f"{folder}/", ""))
            raise BuildError(f"nvcc makes no machine code for {architecture}: {message}")
        return code.read_bytes()


_REGISTERS = 0x2F  # an attribute in the section .nv.info of a cubin
_USUAL_BYTES = 48 << 10


def resources_in(cubin: bytes) -> dict[str, tuple[int, int]]:
    """The registers of a thread and the bytes of shared memory of a block for each kernel of a cubin, by symbol, from
    its ELF file. MissingExtraError without pyelftools."""
    with dependency("pyelftools", "noyau-kernels[check-c]"):
        from elftools.elf.elffile import ELFFile
    sections = {section.name: section for section in ELFFile(BytesIO(cubin)).iter_sections()}
    reserved = 1024 if ".nv.shared.reserved.0" in sections else 0
    resources = dict[str, tuple[int, int]]()
    # An entry: a format, an attribute, a length of 8, a symbol, a value.
    for attribute, symbol, value in struct.iter_unpack("<xBxxII", sections[".nv.info"].data()):
        if attribute == _REGISTERS:
            name = sections[".symtab"].get_symbol(symbol).name
            shared = sections.get(f".nv.shared.{name}")
            resources[name] = value, shared["sh_size"] - reserved if shared else 0
    return resources


def symbol_of(cubin: bytes, name: str) -> str:
    """The symbol of a `__global__` function of a cubin. BuildError if there is none, or several of the name."""
    mangled = re.compile(rf"(?:{re.escape(name)}|_Z{len(name)}{re.escape(name)}[a-zA-Z0-9_$]*)\Z")
    symbols = [symbol for symbol in resources_in(cubin) if mangled.match(symbol)]
    if len(symbols) != 1:
        raise BuildError(f"the text has {len(symbols) or 'no'} kernels named {name}; give each a name of its own")
    return symbols[0]


class Launch:
    """A loaded kernel over a grid of blocks of threads; with `cluster`, the grid counts clusters of so many blocks."""

    def __init__(
        self, kernel: Any, grid: int | tuple[int, ...], block: tuple[int, ...], shared_bytes: int = 0, cluster: int = 1
    ) -> None:
        self.kernel = kernel
        if shared_bytes > _USUAL_BYTES:
            driver = import_module("cuda.bindings.driver")
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            (status,) = driver.cuKernelSetAttribute(attribute, shared_bytes, kernel.handle, driver.cuCtxGetDevice()[1])
            if status:
                raise BuildError(f"a kernel gets no {shared_bytes} bytes of shared memory: {status.name}")
        in_clusters = {"cluster": cluster} if cluster > 1 else {}
        self.grid = core().LaunchConfig(grid=grid, block=block, shmem_size=shared_bytes, **in_clusters)

    def __call__(self, stream: int, arguments: Sequence[Any]) -> None:
        """Launch on a stream, by its handle. Pointers are ints, sizes are NumPy numbers."""
        core().launch(_stream(stream), self.grid, self.kernel, *arguments)


@lru_cache(maxsize=64)
def _stream(handle: int) -> Any:
    return core().Stream.from_handle(handle)
