"""The C that calls kernels on tensors: built once, and handed what it needs of torch."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch

from noyau.runtimes.numpy.library import FILES, Library, Loading, opened

_MAJOR = 1  # of DLPack, whose tables only grow within one
_READ = 5  # the word of DLPackExchangeAPI that reads a tensor, behind version, older table and three functions
_POINTER = ctypes.c_void_p
_PYTHON = ctypes.PyDLL(None, handle=ctypes.pythonapi._handle)


def _opened() -> Library | None:
    """The C, opened; None where it cannot be built, or this torch has no exchange interface (before 2.10)."""
    read = reads_tensors()
    made = opened(*FILES, ("runtimes", "torch", "door.c")) if read else None
    if made is None or not made.doors:
        return None
    tensor_doors = made.loaded.noyau_tensor_door_open
    tensor_doors.argtypes = (_POINTER, _POINTER, _POINTER)
    tensor_doors(read, id(torch.Tensor), id(torch.nn.Parameter))
    share_threads(made.loaded)
    return made


library = Loading("tensors", _opened)


def reads_tensors() -> int:
    """Where DLPack's function for reading a tensor is, or 0."""
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return 0
    pointer = _PYTHON.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = _POINTER, (ctypes.py_object, ctypes.c_char_p)
    table = pointer(capsule, b"dlpack_exchange_api")
    if ctypes.c_uint32.from_address(table).value != _MAJOR:
        return 0
    return int(_POINTER.from_address(table + _READ * ctypes.sizeof(_POINTER)).value or 0)


def share_threads(loaded: ctypes.CDLL) -> bool:
    """Let launches run on the threads of the OpenMP that torch has loaded, as many as torch may have; without one, on
    threads of noyau's. The result: whether there is one."""
    team = openmp()
    if team is None:
        return False
    loaded.noyau_team_open(ctypes.cast(team.GOMP_parallel, _POINTER), ctypes.cast(team.omp_get_max_threads, _POINTER))
    return True


@cache
def openmp() -> ctypes.CDLL | None:
    """The library that gives torch its threads, by way of torch's own: never a second copy."""
    folder = Path(torch.__file__).parent / "lib"
    path = next((each for name in ("libtorch_cpu.so", "libtorch_cpu.dylib") if (each := folder / name).exists()), None)
    if path is None:
        return None
    torch.get_num_threads()  # sets their number, as torch does before its own first use
    loaded = ctypes.CDLL(str(path))
    return loaded if hasattr(loaded, "GOMP_parallel") and hasattr(loaded, "omp_get_max_threads") else None
