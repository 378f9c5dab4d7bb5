"""The C that calls kernels on tensors: built once, and handed what it needs of torch."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch

from noyau.hosts.numpy.c_library import FILES, Library, Loader, capsule_address, open_texts

_MAJOR = 1  # of DLPack, whose tables only grow within one
_READ = 5  # the word of DLPackExchangeAPI that reads a tensor, behind version, older table and three functions
_POINTER = ctypes.c_void_p


def _build() -> Library | None:
    """The C, opened; None where it cannot be built, or this torch has no exchange interface (before 2.10)."""
    read = reads_tensors()
    result = open_texts(*FILES, ("hosts", "torch", "fast_call.c")) if read else None
    if result is None or not result.fast_calls:
        return None
    tensor_fast_calls = result.code.noyau_tensor_fast_call_open
    tensor_fast_calls.argtypes = (_POINTER, _POINTER, _POINTER)
    tensor_fast_calls(read, id(torch.Tensor), id(torch.nn.Parameter))
    share_threads(result.code)
    return result


library = Loader("tensors", _build)


def reads_tensors() -> int:
    """Address of DLPack's function for reading a tensor, or 0."""
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return 0
    table = capsule_address(capsule, b"dlpack_exchange_api")
    if ctypes.c_uint32.from_address(table).value != _MAJOR:
        return 0
    return int(_POINTER.from_address(table + _READ * ctypes.sizeof(_POINTER)).value or 0)


def share_threads(c_library: ctypes.CDLL) -> bool:
    """Let launches run on the threads of the OpenMP that torch has loaded, as many as torch may have; without one, on
    threads of noyau's. The result: whether there is one."""
    team = openmp()
    if team is None:
        return False
    c_library.noyau_team_open(*(ctypes.cast(each, _POINTER) for each in (team.GOMP_parallel, team.omp_get_max_threads)))
    return True


@cache
def openmp() -> ctypes.CDLL | None:
    """The library that gives torch its threads, by way of torch's own: never a second copy."""
    folder = Path(torch.__file__).parent / "lib"
    path = next((each for name in ("libtorch_cpu.so", "libtorch_cpu.dylib") if (each := folder / name).exists()), None)
    if path is None:
        return None
    torch.get_num_threads()  # sets their number, as torch does before its own first use
    c_library = ctypes.CDLL(str(path))
    return c_library if hasattr(c_library, "GOMP_parallel") and hasattr(c_library, "omp_get_max_threads") else None
