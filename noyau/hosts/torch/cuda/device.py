"""A CUDA device: whether it is there, and its errors, in one line each: the demand, the limit, and a remedy; and the
protection of CUDA graphs that other threads capture meanwhile."""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from noyau.errors import DeviceError, NoyauError, SignatureError, UnsupportedError, dependency
from noyau.workers.import_path import LazyModule

with dependency("torch", "torch"):
    if TYPE_CHECKING:
        import torch
    else:
        torch = LazyModule("torch")

_TRAPPED = re.compile(
    r"illegal memory access|misaligned address|device-side assert|unspecified launch failure|illegal instruction"
    r"|illegal address|invalid program counter|hardware stack error|launch timed out"
    r"|operation not supported on global/shared address space",
    re.IGNORECASE,
)
Shapes: TypeAlias = "Sequence[tuple[Sequence[int], torch.dtype]]"  # with dtypes
_SHORT = re.compile(r".*?out of memory(\. Tried to allocate [\d.]+ \w+)?")
MOST_PROGRAMS = (2**31 - 1, 65535, 65535)  # of a grid, along x, y and z
_LEAST = (7, 0)  # the compute capability that Triton compiles for
_OWN_ALONE = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL


def has_early_launches(device: torch.device | int) -> bool:
    """Whether a launch on a GPU may begin before the one before it has ended (programmatic dependent launch)."""
    return not torch.version.hip and torch.cuda.get_device_capability(device) >= (9, 0)


@contextmanager
def device_errors(called: str, device: object, results: Shapes = ()) -> Iterator[None]:
    """Translate errors of torch, Triton and the driver into errors of an op with these results: torch.OutOfMemoryError
    with their bytes; DeviceError for a launch beyond a limit, and for a context that is lost."""
    try:
        yield
    except NoyauError:
        raise
    except torch.OutOfMemoryError as error:
        if isinstance(error.__cause__, torch.OutOfMemoryError):  # the allocation has reported it already
            raise
        raise torch.OutOfMemoryError(short_of_memory(called, device, results, error)) from error
    except Exception as error:
        fault = fault_of(error, called, device)
        if fault is None:
            raise
        raise DeviceError(fault) from error


def short_of_memory(called: str, device: object, results: Shapes, error: Exception) -> str:
    """`softmax needs 4.0 GiB on cuda:0 for f32[...]; ...`."""
    sizes = [torch.Size(shape).numel() * dtype.itemsize for shape, dtype in results]
    kinds = ", ".join(f"{str(dtype).removeprefix('torch.')}{list(shape)}" for shape, dtype in results)
    words = " ".join(str(error).split())
    first = match[0] if (match := _SHORT.match(words)) else words.split(". ")[0]
    lacks = f"needs more memory than {device} has"
    if sizes:
        lacks = f"needs {_bytes(sum(sizes))} ({sum(sizes)} bytes) on {device} for {kinds}, and they are not there"
    return f"{called} {lacks} ({first}); free tensors, or give it a part at a time"


def fault_of(error: Exception, called: str, device: object) -> str | None:
    """The message for a known error of the driver or of Triton, or None."""
    if type(error).__name__ == "OutOfResources":
        needed, limit, name = (getattr(error, each, "?") for each in ("required", "limit", "name"))
        what = {"threads": f"{needed} threads a program", "shared memory": f"{needed} bytes of shared memory a program"}
        demand = what.get(str(name), f"{needed} of {name} a program")
        return f"{called}: a launch asks for {demand}, and {device} has {limit}; give smaller tiles, or fewer warps"
    match = _TRAPPED.search(str(error))
    if match is not None:
        return (
            f"{called}: a kernel that ran on {device} before trapped ({match[0].lower()}), and the context of this "
            "process is lost: nothing runs on the GPU until the process is started again. To find the kernel, run it "
            "with CUDA_LAUNCH_BLOCKING=1, or under compute-sanitizer"
        )
    return None


def guard(device: torch.device) -> AbstractContextManager[Any]:
    """Make this device the current one, in a `with`."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


@contextmanager
def on_stream(called: str, stream: Any, tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """Make a stream of torch, CuPy or Numba, or the stream of a handle, the current one, in a `with`, and record that
    it reads these tensors, so that their memory is not reused before. SignatureError for any other object, or where no
    tensor lies on a GPU."""
    on_gpu = [each for each in tensors if each.is_cuda]
    if not on_gpu:
        raise SignatureError(f"{called}: stream= is of a GPU, and no tensor lies on one; leave it out")
    if not isinstance(stream, torch.cuda.Stream):
        handle: Any = getattr(stream, "ptr", getattr(stream, "handle", stream))  # of CuPy, of Numba
        handle = getattr(handle, "value", handle)
        if isinstance(handle, bool) or not hasattr(handle, "__index__"):
            remedy = "give a stream of torch, CuPy or Numba, or its handle"
            raise SignatureError(f"{called}: stream= is {stream!r}; {remedy}")
        stream = torch.cuda.ExternalStream(int(handle), device=on_gpu[0].device)
    for each in on_gpu:
        each.record_stream(stream)
    with torch.cuda.stream(stream):
        yield


def device_of(tensors: Sequence[torch.Tensor]) -> torch.device:
    """The device of some tensors; the current CUDA device where there are none."""
    return tensors[0].device if tensors else torch.device("cuda", torch.cuda.current_device())


def require_grid(called: str, grid: Sequence[int]) -> None:
    """Raise DeviceError for a launch of more programs along an axis than CUDA takes."""
    for axis, programs, most in zip("xyz", grid, MOST_PROGRAMS, strict=False):
        if programs > most:
            demand = f"a launch has {programs} programs along {axis}, and CUDA takes {most}"
            raise DeviceError(f"{called}: {demand}; give it a part at a time")


def require_free(called: str) -> None:
    """Raise UnsupportedError while a CUDA graph is captured: nothing is built or tried then."""
    if "torch" in sys.modules and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        remedy = "call it once before the capture, with tensors of these shapes, strides and dtypes"
        raise UnsupportedError(f"{called}: a CUDA graph is being captured, and nothing is built then; {remedy}")


def missing_device(device: torch.device) -> str:
    """Why kernels cannot run on a device, or an empty text."""
    if device.type != "cuda":
        return ""
    if why := absence(device.index or 0):
        return why
    capability = torch.cuda.get_device_capability(device)
    if torch.version.hip is None and capability < _LEAST:
        name = torch.cuda.get_device_properties(device).name
        least, own = (".".join(map(str, each)) for each in (_LEAST, capability))
        return f"{device} is an {name} of compute capability {own}, and Triton compiles for {least} and later"
    return ""


def absence(index: int = 0) -> str:
    """Why torch can use no CUDA device of this number, in one line, or an empty text. CUDA is initialised for that, as
    the error has the reason; torch's question whether CUDA is available would only warn."""
    if not torch.backends.cuda.is_built():
        return f"this torch ({torch.__version__}) is built without CUDA; install one that has it, from pytorch.org"
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        first = " ".join(str(error).split()).split(" Please ")[0].split(". Alternatively")[0].rstrip(".")
        return f"no CUDA device can be used by torch {torch.__version__}: {first}"
    count = torch.cuda.device_count()
    return "" if index < count else f"there is no cuda:{index}: the last one is cuda:{count - 1}"


def _bytes(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.3g} {unit}"


@contextmanager
def beside_captures() -> Iterator[None]:
    """Restrict the capture mode of this thread to its own captures, in a `with`. No effect where there is no CUDA yet.

    While a thread captures in torch's default mode, CUDA fails allocations, frees and waits in any other thread, and
    that capture with them, except in threads in this mode. A kernel that torch runs for the first time beside a capture
    may still end it: the driver loads it then."""
    exchange = _exchange() if torch.cuda.is_initialized() else None
    mode = ctypes.c_int(_OWN_ALONE)
    changed = exchange is not None and not exchange(ctypes.byref(mode))  # `mode` has the former mode then
    try:
        yield
    finally:
        if changed and exchange is not None:
            exchange(ctypes.byref(mode))


@cache
def _exchange() -> Callable[[Any], int] | None:
    """The driver's function that exchanges the capture mode of a thread; None without it."""
    with suppress(OSError, AttributeError):
        return cast("Callable[[Any], int]", ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode)
    return None
