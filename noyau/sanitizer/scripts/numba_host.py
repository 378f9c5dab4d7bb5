"""Stand-ins for host calls of a script that Numba's CUDA simulator lacks, beside kernels and arrays: device queries,
events that take times, default streams, @vectorize and @guvectorize."""

from __future__ import annotations

import linecache
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any
from weakref import WeakValueDictionary

import numba
import numpy as np
from numba import cuda
from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray, managed_array, pinned_array_like
from numba.np.numpy_support import as_dtype
from numba.np.ufunc.sigparse import parse_signature

from noyau.errors import InputError
from noyau.sanitizer.scripts.fakes import patch
from noyau.sanitizer.scripts.record import place_of
from noyau.sanitizer.scripts.streams import DEFAULT, FakeEvent, FakeStream


class SimulatedGpu(SimpleNamespace):
    """A device or context with attributes, usable as a context manager."""

    def __enter__(self) -> SimulatedGpu:
        return self

    def __exit__(self, *fault: Any) -> None: ...


def _ignore(*wishes: Any, **named: Any) -> None: ...


DEVICE = SimulatedGpu(
    id=0, name=b"no GPU: watched by noyau", compute_capability=(9, 0), COMPUTE_CAPABILITY=(9, 0), WARP_SIZE=32,
    MULTIPROCESSOR_COUNT=2, MAX_THREADS_PER_BLOCK=1024, MAX_BLOCK_DIM_X=1024, MAX_BLOCK_DIM_Y=1024, MAX_BLOCK_DIM_Z=64,
    MAX_GRID_DIM_X=2**31 - 1, MAX_GRID_DIM_Y=65535, MAX_GRID_DIM_Z=65535, MAX_SHARED_MEMORY_PER_BLOCK=48 << 10,
    TOTAL_MEMORY=80 << 30, uuid="GPU-00000000-0000-0000-0000-000000000000", reset=_ignore,
)  # fmt: skip
CONTEXT = SimulatedGpu(
    id=0, device=DEVICE, **dict.fromkeys(("reset", "synchronize", "push", "pop"), _ignore),
    **dict.fromkeys(("trashing", "deallocations"), SimpleNamespace(clear=_ignore)),
    get_memory_info=lambda: (DEVICE.TOTAL_MEMORY, DEVICE.TOTAL_MEMORY),
    get_compute_capability=lambda: DEVICE.compute_capability,
)  # fmt: skip


def _detect() -> bool:
    sys.stdout.write(f"Found 1 CUDA devices\nid 0  {DEVICE.name.decode()}\n")
    return True


class NumbaStream(FakeStream):
    """A stream of Numba, which synchronizes with the default stream in both directions."""

    blocks = True

    @contextmanager
    def auto_synchronize(self) -> Iterator[NumbaStream]:
        yield self
        self.synchronize()


_STREAMS = ("default_stream", "legacy_default_stream", "per_thread_default_stream", "external_stream")
WORDS: dict[str, Any] = {
    "gpus": [DEVICE],
    "list_devices": lambda: [DEVICE],
    **dict.fromkeys(("select_device", "current_context"), lambda *_: CONTEXT),
    **dict.fromkeys(("close", "profile_start", "profile_stop"), _ignore),
    "detect": _detect,
    "as_cuda_array": lambda obj, sync=True: (  # a tensor that stands in for one on a GPU has no interface
        obj if isinstance(obj, FakeCUDAArray) else FakeCUDAArray(np.asarray(in_numpy(obj)))
    ),
    "is_cuda_array": lambda value: (
        isinstance(value, FakeCUDAArray) or isinstance(getattr(value, "__cuda_array_interface__", None), dict)
    ),
    "is_supported_version": lambda: True,
    "get_current_device": lambda: DEVICE,
    "event": FakeEvent,
    "event_elapsed_time": FakeEvent.elapsed_time,
    "managed_array": managed_array,
    **dict.fromkeys(("pinned_array_like", "mapped_array_like"), pinned_array_like),
    "mapped": lambda *arrays, **_: nullcontext(arrays[0] if len(arrays) == 1 else arrays),
    **dict.fromkeys(_STREAMS, lambda *_: NumbaStream(number=DEFAULT)),
    "stream": lambda *_: NumbaStream(),
    "synchronize": lambda *_: FakeStream.order.synchronize(),
    "profiling": nullcontext,
}


Plain = Callable[..., Any]
Note = Callable[[str], None]
_NUMBERS = "of numbers, which touches no memory: called cell by cell"


@contextmanager
def stood_in(note: Note, jit: Plain) -> Iterator[None]:
    """Replace both decorators by versions for target="cuda" that need no GPU. `note` receives a line per call. `jit`:
    makes the kernels for generalised functions."""
    with ExitStack() as undone:
        many, what = partial(_generalise, jit), "of arrays, launched with a thread for each"
        patch(undone, numba, "vectorize", _decorator(numba.vectorize, _elementwise, note, _NUMBERS))
        patch(undone, numba, "guvectorize", _decorator(numba.guvectorize, many, note, what))
        if hasattr(cuda, "vectorize"):  # of the package numba-cuda, without a choice of target
            patch(undone, cuda, "vectorize", _decorator(None, _elementwise, note, _NUMBERS))
            patch(undone, cuda, "guvectorize", _decorator(None, many, note, what))
        yield


def _decorator(plain: Plain | None, make: Callable[..., Plain], note: Note, what: str) -> Plain:
    def noting(function: Plain, *arguments: Any) -> Plain:
        ufunc, line = make(function, *arguments), function.__code__.co_firstlineno

        def called(*args: Any, **named: Any) -> Any:
            note(f"{function.__name__} (line {line}) is a function {what}")
            return ufunc(*args, **named)

        called.__name__ = function.__name__
        return called

    def decorator(*arguments: Any, **options: Any) -> Any:
        if plain is not None and options.get("target") != "cuda":
            return plain(*arguments, **options)
        if arguments and hasattr(arguments[0], "__code__"):
            return noting(arguments[0])
        return lambda function: noting(function, *arguments)

    return decorator


def _elementwise(function: Plain, signatures: Any = None) -> Plain:
    def called(*args: Any, out: Any = None, stream: Any = 0) -> Any:
        arrays = [np.asarray(in_numpy(each)) for each in args]
        with np.errstate(all="ignore"):
            results = np.vectorize(function, otypes=_results(signatures, arrays, 1) if signatures else None)(*arrays)
        return _as_result(results, out, args)

    return called


def _over_batch(function: Plain, count: int, jit: Plain) -> Any:
    """Return a kernel whose threads each call a function on their elements of `count` arrays."""
    names, file = function.__code__.co_varnames[:count], f"<{function.__name__} over a batch>"
    text = f"def {function.__name__}({', '.join(names)}):\n    noyau_at = cuda.grid(1)\n"
    text += f"    if noyau_at < len({names[0]}):\n        noyau_call({', '.join(f'{x}[noyau_at]' for x in names)})\n"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    scope: dict[str, Any] = {"__name__": file, "cuda": cuda, "noyau_call": jit(function, device=True)}
    exec(compile(text, file, "exec"), scope)  # noqa: S102  the text above
    scope[function.__name__].noyau_place = place_of(function)
    return jit(scope[function.__name__])


def _generalise(jit: Plain, function: Plain, signatures: Any, layout: str, *_: Any) -> Plain:
    inputs, outputs = parse_signature(layout)

    def called(*args: Any, out: Any = None, stream: Any = 0) -> Any:
        if len(args) not in (len(inputs), len(inputs) + len(outputs)):
            raise InputError(f"{function.__name__} takes {len(inputs)} arrays: {layout}")
        outs = args[len(inputs) :] or (out if isinstance(out, tuple) else (out,) * len(outputs))
        arrays = [np.asarray(in_numpy(each)) for each in args[: len(inputs)]]
        types, kinds = _types(signatures, arrays), _results(signatures, arrays, len(outputs))
        cores = [len(names) for names in inputs]
        batch = np.broadcast_shapes(*(a.shape[: a.ndim - core] for a, core in zip(arrays, cores, strict=True)))
        sizes = dict[str, int]()
        for names, array in zip(inputs, arrays, strict=True):
            sizes |= zip(names, array.shape[array.ndim - len(names) :], strict=True)
        shapes = [(*batch, *(sizes[name] for name in names)) for names in outputs]
        results = [_on_device(*wanted) for wanted in zip(outs, shapes, kinds, strict=True)]
        count, axes = math.prod(batch), len(batch)
        wide = [np.broadcast_to(a, (*batch, *a.shape[a.ndim - core :])) for a, core in zip(arrays, cores, strict=True)]
        wide += [in_numpy(each) for each in results]
        is_number = [not isinstance(kind, numba.types.Array) for kind in types] or [True] * len(arrays)
        ends = [(), (1,)]  # shapes without core axes: a number, or an array of one element
        ends = [a.shape[axes:] or ends[at >= len(arrays) or not is_number[at]] for at, a in enumerate(wide)]
        rows = [a.reshape(count, *end) for a, end in zip(wide, ends, strict=True)]
        if count:
            _over_batch(function, len(rows), jit)[-(-count // 128), 128](*rows)
        stays = any(isinstance(each, FakeCUDAArray) for each in args)  # results stay there until the host reads them
        pairs = ((each, each if to is None and stays else to) for each, to in zip(results, outs, strict=True))
        values = tuple(to if to is each else _as_result(each.copy_to_host(), to, args) for each, to in pairs)
        return values if len(values) > 1 else values[0]

    return called


def _on_device(wanted: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """Return the requested output if it is a contiguous device array of this shape and dtype, else an empty one."""
    own = in_numpy(wanted) if isinstance(wanted, FakeCUDAArray) else None
    is_it = own is not None and (own.shape, own.dtype, own.flags.c_contiguous) == (shape, dtype, True)
    return wanted if is_it else cuda.device_array(shape, dtype)


def _types(signatures: Any, arrays: Sequence[np.ndarray]) -> list[Any]:
    """Return the parameter and return types of the first signature that accepts the arguments; [] without one."""
    for each in signatures if isinstance(signatures, list | tuple) else [signatures] if signatures else []:
        types, gives = numba.core.sigutils.normalize_signature(each)
        pairs = zip(types, arrays, strict=False)
        if all(np.can_cast(a.dtype, as_dtype(getattr(kind, "dtype", kind)), "same_kind") for kind, a in pairs):
            return [*types, *([gives] if gives not in (None, numba.types.void) else [])]
    return []


def _results(signatures: Any, arrays: Sequence[np.ndarray], count: int) -> list[np.dtype]:
    """Return the dtypes of the results: the last types of the first signature that accepts the arguments."""
    types = _types(signatures, arrays)[-count:]
    return [np.dtype(as_dtype(getattr(kind, "dtype", kind))) for kind in types] or [np.result_type(*arrays)] * count


_LENT = WeakValueDictionary[tuple[Any, ...], np.ndarray]()  # arrays whose interface a script has read


def _place(face: dict[str, Any]) -> tuple[Any, ...]:
    return face["data"][0], face["typestr"], face["shape"], face.get("strides")


def lend(array: Any) -> dict[str, Any]:
    """Return the CUDA array interface of a simulator array."""
    face: dict[str, Any] = array._ary.__array_interface__
    _LENT[_place(face)] = array._ary
    return face


def in_numpy(each: Any) -> Any:
    """Return the NumPy array behind a simulator array or a CUDA array interface; other values are unchanged."""
    if isinstance(each, FakeCUDAArray):
        return each._ary
    face = getattr(each, "__cuda_array_interface__", None)
    if not isinstance(face, dict):
        return each
    known = _LENT.get(_place(face))  # the same object, since arrays are recognised by identity
    return np.asarray(SimpleNamespace(__array_interface__=face, holder=each)) if known is None else known


def _as_result(results: Any, out: Any, args: Sequence[Any]) -> Any:
    """Store the result in `out`, if there is one; else return it, on the device if an argument is there."""
    if out is not None:
        in_numpy(out)[...] = results
        return out
    return FakeCUDAArray(np.asarray(results)) if any(isinstance(each, FakeCUDAArray) for each in args) else results
