"""Calls of kernels on tensors, in C where torch lets C read its tensors."""

import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from noyau.frontends.torch.tensors import TO_TORCH
from noyau.hosts.numpy import fast_calls
from noyau.hosts.numpy.c_library import FILES, Library, Loader, capsule_address, open_texts
from noyau.hosts.numpy.fast_calls import MISS, Argument, FastCall, LibraryCall, ResultEnd, ends_of, failures
from noyau.hosts.torch.tensors import array_of, tensor_of

_MAJOR = 1  # of DLPack, whose tables only grow within one
_READ = 5  # the word of DLPackExchangeAPI that reads a tensor, behind version, older table and three functions
_POINTER = ctypes.c_void_p


def _build() -> Library | None:
    """The C library, loaded; None where it cannot be built, or this torch has no exchange interface (before 2.10)."""
    read = reads_tensors()
    result = open_texts(*FILES, "hosts/torch/fast_call.c") if read else None
    if result is None or not result.fast_calls:
        return None
    tensor_fast_calls = result.code.noyau_tensor_fast_call_open
    tensor_fast_calls.argtypes = (_POINTER, _POINTER, _POINTER)
    tensor_fast_calls(read, id(torch.Tensor), id(torch.nn.Parameter))
    share_threads(result.code)
    return result


library = Loader("tensors", _build)


@contextmanager
def mark_calls() -> Iterator[None]:
    """Make calls of kernels in C events of torch's profiler, `noyau::` and the name of the op or the kernel."""
    opens, result = torch.ops.profiler._record_function_enter_new, library()
    if result is not None:
        result.code.noyau_tensor_fast_call_mark(ctypes.py_object(opens))
    try:
        yield
    finally:
        if result is not None:
            result.code.noyau_tensor_fast_call_mark(None)


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
    """Run launches on the threads of the OpenMP that torch has loaded, as many as torch may use; without one, on
    threads of noyau's. The result: whether there is one."""
    team = openmp()
    if team is None:
        return False
    c_library.noyau_team_open(*(ctypes.cast(each, _POINTER) for each in (team.GOMP_parallel, team.omp_get_max_threads)))
    return True


@cache
def openmp() -> ctypes.CDLL | None:
    """The library of torch's threads, loaded through torch's own library, so that there is never a second copy."""
    folder = Path(torch.__file__).parent / "lib"
    path = next((each for name in ("libtorch_cpu.so", "libtorch_cpu.dylib") if (each := folder / name).exists()), None)
    if path is None:
        return None
    torch.get_num_threads()  # sets their number, as torch does before its own first use
    c_library = ctypes.CDLL(str(path))
    return c_library if hasattr(c_library, "GOMP_parallel") and hasattr(c_library, "omp_get_max_threads") else None


MAPPED_BYTES = 32 << 20  # from here on, glibc's malloc always maps a new block
_CPU = torch.device("cpu")
Large: TypeAlias = Callable[[tuple[int, ...], torch.dtype, torch.device], torch.Tensor]


class TensorFastCall(LibraryCall):
    """A kernel of a built library on tensors of the CPU: `call(arguments)` takes a tuple of them, and Python numbers
    where `arguments` allows them, and returns a new tensor, or a tuple of several. MISS where a value does not fit
    `arguments`: of another dtype, rank or layout, of a subclass, on another device; or where the kernel refuses
    the sizes.

    The caller has to handle gradients, modes of torch and views that negate: the fast call sees memory alone. Launches
    run on torch's own threads, as many as `torch.get_num_threads()`; results of 1 MiB or more lie in memory that
    earlier ones have left, or are allocated by `large`.

    A call raises InputError where an index is out of bounds, MemoryError, CheckError for a status without a meaning.
    Construction raises BuildError where the library cannot be loaded, CheckError where the kernel has others."""

    def __init__(
        self, path: Path, symbol: str, arguments: Sequence[Argument], called: str = "", large: Large | None = None
    ) -> None:
        super().__init__(path, symbol, arguments, called)
        self.large, result = large or pooled_memory, library()
        self.in_c = result is not None
        otherwise = _Waiting if library.awaits_room() else in_python
        self.call: Callable[[tuple[Any, ...]], Any] = otherwise(self) if result is None else in_c(self, result)

    def __call__(self, arguments: tuple[Any, ...]) -> Any:
        return self.call(arguments)


def in_c(fast_call: TensorFastCall, library: Library) -> Callable[[tuple[Any, ...]], Any]:
    """The function in C of a fast call."""
    options = [{"dtype": TO_TORCH[dtype], "device": _CPU} for dtype in fast_call.results]
    results = [ResultEnd(id(each), dtype.bytes, 0) for each, dtype in zip(options, fast_call.results, strict=True)]
    result, kept = ends_of(fast_call, results)
    address, errors = ctypes.addressof(result), failures(fast_call.called)
    name = (f"noyau::{fast_call.called}",)
    held = (address, MISS, torch.empty, None, errors, fast_call.large, name, [*kept, options])
    return library.fast_call(held, "noyau_tensor_fast_call")


def in_python(fast_call: TensorFastCall) -> Callable[[tuple[Any, ...]], Any]:
    """The function in Python of a fast call, where C cannot read tensors: on NumPy arrays of their memory."""
    on_arrays = FastCall(fast_call.path, fast_call.symbol, fast_call.arguments, name=fast_call.called)
    return partial(through_arrays, on_arrays.call)


class _Waiting:
    """The function in Python of a fast call while there is no room for the C library; it is replaced once there is."""

    def __init__(self, fast_call: TensorFastCall) -> None:
        self.fast_call, self.call = fast_call, in_python(fast_call)

    def __call__(self, arguments: tuple[Any, ...]) -> Any:
        if not self.fast_call.in_c and (result := library()) is not None:
            self.call = self.fast_call.call = in_c(self.fast_call, result)
            self.fast_call.in_c = True
        return self.call(arguments)


def through_arrays(call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Results of a fast call for arrays on tensors, as tensors; or MISS."""
    if any(isinstance(each, torch.Tensor | np.ndarray | np.generic) and not is_plain(each) for each in arguments):
        return MISS
    result = call(tuple(array_of(each) if isinstance(each, torch.Tensor) else each for each in arguments))
    if isinstance(result, tuple):
        return tuple(tensor_of(np.asarray(each)) for each in result)
    return MISS if result is MISS else tensor_of(np.asarray(result))


def is_plain(tensor: Any) -> bool:
    """Whether a value is a tensor or Parameter in plain memory of the CPU, of a dtype that noyau has."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return False
    dense = tensor.device.type == "cpu" and tensor.layout is torch.strided
    return dense and not tensor.is_neg() and not tensor._is_zerotensor() and tensor.dtype in TO_TORCH.values()


def pooled_memory(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Like torch.empty, for a large result: in memory that may have been used before. MemoryError without enough."""
    del device  # the CPU, as the memory is
    return tensor_of(fast_calls.empty(shape, _NUMPY[dtype]))


def mapped_memory(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """`pooled_memory` from MAPPED_BYTES on, else torch.empty: torch reuses the memory that it frees."""
    if math.prod(shape) * dtype.itemsize < MAPPED_BYTES:
        return torch.empty(shape, dtype=dtype, device=device)
    return pooled_memory(shape, dtype, device)


_NUMPY: dict[torch.dtype, np.dtype] = {spelling: dtype.numpy for dtype, spelling in TO_TORCH.items()}
