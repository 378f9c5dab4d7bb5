"""The way from a call in Python to a kernel: arguments that are of its key go through C, and all others miss."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from noyau.compiler.lowering.input_layouts import PACKED, Layout, Order, layout_of
from noyau.dtypes import DType
from noyau.errors import CheckError, InputError, OutsideError
from noyau.hosts.numpy.c_library import Library, library, reads_scalars
from noyau.hosts.numpy.memory import LEAST_BYTES, empty
from noyau.toolchain.c.library import Native

_ORDERS = (Order.PACKED, Order.PERMUTED, Order.INNER, Order.STRIDED)  # as arguments.c counts them
_ARRAYS, _NUMBERS = 1, {bool: 2, int: 4, float: 8}
_PATIENCE: Any = 10_000  # attempts to find a cell that two arrays share
_FAILURES = (
    (CheckError, "returned the status 0"),
    (OutsideError, "an index is outside the axis that it looks into"),
    (MemoryError, "there is not enough memory for its scratch"),
    (CheckError, "returned a status that has no meaning"),
)


class _Miss:
    """The one value that says: these arguments are not of the fast call's key."""

    def __repr__(self) -> str:
        return "MISS"

    def __bool__(self) -> bool:
        return False


MISS: Final = _Miss()


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a compiled call.

    `arrays`: NumPy arrays, and for rank 0 NumPy's scalars, of the very dtype; `numbers`: the types of Python numbers
    that are taken for rank 0, where they are in range; `ones`: which axes have one cell, where the kernel was made for
    that; `equals`: the one value that it may have, of rank 0."""

    dtype: DType
    rank: int
    layout: Layout = PACKED
    arrays: bool = True
    numbers: tuple[type, ...] = ()
    ones: tuple[bool, ...] | None = None
    equals: int | None = None


class LibraryCall:
    """A kernel of a built library, and what a fast call of it takes. `called`: its name in messages; `results`: how
    many its caller has wishes for, or 0. BuildError and CheckError as for a FastCall."""

    def __init__(self, path: Path, symbol: str, arguments: Sequence[Argument], called: str, results: int = 0) -> None:
        self.path, self.symbol, self.native = path, symbol, Native(path, symbol)
        self.arguments, self.called = tuple(arguments), called or self.native.name
        expected = list(zip(self.native.dtypes, self.native.ranks, strict=True))[: self.native.inputs]
        if [(end.dtype, end.rank) for end in self.arguments] != expected or results not in (0, self.native.outputs):
            message = "its fast call has other arguments or results than its kernel"
            raise CheckError(f"{self.called}: {message}, {self.native.name}")

    @property
    def results(self) -> tuple[DType, ...]:
        return self.native.dtypes[self.native.inputs :]


class FastCall(LibraryCall):
    """A kernel of a built library as `fast_call(arguments, out=None)`: arguments in a tuple to a result, or to a tuple
    of several; MISS where the arguments are not as `arguments` says, or the kernel refuses their sizes.

    `scalars`: which results are NumPy scalars. `call` is the same function without a frame of Python, `out` by place.
    Results are written to `out` where it is given, an array or a tuple of them, of the very dtypes and shapes; it is
    what is returned. Where one is not packed, the kernel writes to memory of its own, which is then copied.

    A call raises InputError where `out` does not fit, shares memory with an argument or may not be written,
    OutsideError where an index is out of bounds; MemoryError; CheckError for a status without a meaning. Making it
    raises BuildError where the library cannot be loaded, CheckError where the kernel takes or gives something else."""

    def __init__(
        self, path: Path, symbol: str, arguments: Sequence[Argument], scalars: Sequence[bool] = (), name: str = ""
    ) -> None:
        super().__init__(path, symbol, arguments, name, len(scalars))
        self.scalars = tuple(scalars) or (False,) * self.native.outputs
        c_library = library()
        reads = c_library if c_library is not None and c_library.fast_calls else None
        self.in_c = reads is not None
        self.call: Callable[..., Any] = in_python(self) if reads is None else in_c(self, reads)

    def __call__(self, arguments: tuple[Any, ...], out: Any = None) -> Any:
        return self.call(arguments, out)


class ArgumentEnd(ctypes.Structure):
    """`argument_end` of arguments.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("descr", "scalar", "convert", "equals", "axes")),
        ("ones", ctypes.c_int64),
        *((name, ctypes.c_int32) for name in ("onnx", "item", "rank", "layout", "takes")),
    )


class ResultEnd(ctypes.Structure):
    """`result_end` of arguments.c."""

    _fields_ = (("descr", ctypes.c_void_p), ("item", ctypes.c_int32), ("scalar", ctypes.c_int32))


class FastCallEnds(ctypes.Structure):
    """`fast_call` of arguments.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("kernel", "arguments", "results")),
        *((name, ctypes.c_int64) for name in ("dims", "most_dims", "made_apart")),
    )


def in_c(fast_call: FastCall, library: Library) -> Callable[..., Any]:
    """The call of a fast call as a function in C."""
    pairs = zip(fast_call.results, fast_call.scalars, strict=True)
    results = [ResultEnd(id(dtype.numpy), dtype.bytes, scalar) for dtype, scalar in pairs]
    ends, alive = ends_of(fast_call.path, fast_call.symbol, fast_call.native, fast_call.arguments, results)
    alive.append([dtype.numpy for dtype in fast_call.results])
    state = (ctypes.addressof(ends), MISS, empty, partial(write, fast_call.called), failures(fast_call.called), alive)
    return library.fast_call(state)


def ends_of(
    path: Path, symbol: str, native: Native, arguments: Sequence[Argument], results: Sequence[ResultEnd]
) -> tuple[FastCallEnds, list[Any]]:
    """The description of a kernel for the compiled call, and the objects that must live as long as that."""
    alive, kernel = list[Any](), ctypes.CDLL(str(path))
    argument_ends = (ArgumentEnd * max(1, len(arguments)))(*(_argument(end, alive) for end in arguments))
    ends = (argument_ends, (ResultEnd * max(1, len(results)))(*results))
    dims = sum(2 * end.rank for end in arguments)
    most = max(native.ranks[native.inputs :], default=0)
    address = ctypes.addressof(ctypes.c_char.in_dll(kernel, symbol))
    fast_call_ends = FastCallEnds(address, *(ctypes.addressof(each) for each in ends), dims, most, LEAST_BYTES)
    return fast_call_ends, [*alive, fast_call_ends, *ends, kernel]


def failures(name: str) -> tuple[tuple[type[Exception], str], ...]:
    """The error for each status of a kernel."""
    return tuple((kind, f"{name}: {message}") for kind, message in _FAILURES)


def in_python(fast_call: FastCall) -> Callable[..., Any]:
    """The same, where there is no C for it."""
    call = partial(call_kernel, fast_call.native, fast_call.arguments, fast_call.scalars)

    def called(arguments: tuple[Any, ...], out: Any = None) -> Any:
        result = call(arguments)
        if result is None:
            return MISS
        return result if out is None else write(fast_call.called, result, out, arguments)

    return called


def _argument(end: Argument, alive: list[Any]) -> ArgumentEnd:
    """An argument for C; what it points to goes to `kept`."""
    dtype, integral = end.dtype.numpy, end.dtype.kind in ("int", "uint", "bool")
    axes = (ctypes.c_int32 * max(1, end.rank))(*(end.layout.axes or range(end.rank)))
    equals = None if end.equals is None else np.array(end.equals, dtype)
    by_python = None if integral or end.dtype in (DType.F32, DType.F64) else partial(cell_of_number, dtype)
    alive += [dtype, axes, equals, by_python]
    return ArgumentEnd(
        id(dtype),
        id(dtype.type) if end.rank == 0 and reads_scalars(dtype) else None,
        None if by_python is None else id(by_python),
        None if equals is None else equals.ctypes.data,
        ctypes.addressof(axes),
        -1 if end.ones is None else sum(one << axis for axis, one in enumerate(end.ones)),
        end.dtype.onnx,
        dtype.itemsize,
        end.rank,
        _ORDERS.index(end.layout.order),
        _ARRAYS * end.arrays + sum(_NUMBERS[kind] for kind in end.numbers),
    )


def write(label: str, value: Any, out: Any, arguments: Sequence[Any]) -> Any:
    """Copy results to the arrays of `out`, and return it. InputError where one does not fit, or shares memory."""
    results, targets = (each if isinstance(each, tuple) else (each,) for each in (value, out))
    if len(targets) != len(results):
        counts = f"has {len(results)} result{'' if len(results) == 1 else 's'}, and out= has {len(targets)}"
        raise InputError(f"{label} {counts}; give an array, or a tuple of one for each result")
    for at, (result, target) in enumerate(zip(results, targets, strict=True)):
        name = "out" if len(results) == 1 else f"out[{at}]"
        fault = misfit(np.asarray(result), target)
        if fault is not None:
            raise InputError(f"{label}: {name} {fault}")
        if any(shares_memory(target, other) for other in (*arguments, *targets[:at])):
            raise InputError(f"{label}: {name} shares memory with an argument or another result; give it its own")
    for result, target in zip(results, targets, strict=True):
        target[...] = result
    return out


def misfit(result: np.ndarray, target: object) -> str | None:
    """Why a result cannot be written to this, or None."""
    if not isinstance(target, np.ndarray):
        return f"is {type(target).__name__}, and results are written to NumPy arrays"
    if target.dtype != result.dtype or target.shape != result.shape:
        return f"is {target.dtype}{list(target.shape)}, and the result is {result.dtype}{list(result.shape)}"
    return None if target.flags.writeable else "may not be written; give an array that may"


def shares_memory(target: np.ndarray, other: object) -> bool:
    """Whether a cell of one may be a cell of the other: exactly, unless that takes long to find out."""
    if not isinstance(other, np.ndarray) or not np.may_share_memory(target, other):
        return False
    try:
        return np.shares_memory(target, other, max_work=_PATIENCE)
    except np.exceptions.TooHardError:
        return True


def call_kernel(native: Native, arguments: Sequence[Argument], scalars: Sequence[bool], values: object) -> Any:
    """The results of a kernel, one or a tuple; None where what is given is not as `arguments` says."""
    if type(values) is not tuple or len(values) != len(arguments):
        return None
    arrays = [array for array in map(read_argument, arguments, values) if array is not None]
    if len(arrays) != len(values):
        return None
    try:
        run = native.bound(*arrays)
    except InputError:  # no shapes of this kernel
        return None
    return in_caller_form(run(), scalars)


def in_caller_form(results: Sequence[np.ndarray], scalars: Sequence[bool]) -> Any:
    """Results as a caller gets them: one, or a tuple; those that are scalars as NumPy's."""
    values = tuple(result[()] if scalar else result for result, scalar in zip(results, scalars, strict=True))
    return values[0] if len(values) == 1 else values


def read_argument(end: Argument, value: Any) -> np.ndarray | None:
    """An argument as the kernel takes it, or None where it is none."""
    if type(value) is np.ndarray:
        array = value if end.arrays and _fits(end, value) else None
    elif end.rank:
        array = None
    elif type(value) is end.dtype.numpy.type:
        array = np.asarray(value) if end.arrays else None
    else:
        array = cell_of_number(end.dtype.numpy, value) if type(value) in end.numbers else None
    if array is None or (end.equals is not None and array != np.array(end.equals, array.dtype)):
        return None
    return end.layout.in_memory(array)


def cell_of_number(dtype: np.dtype, value: bool | int | float) -> np.ndarray | None:
    """A Python number in a dtype, as NumPy takes it beside arrays of it; None where it is out of range."""
    if (type(value) is bool) != (dtype.kind == "b") or (type(value) is float and dtype.kind in "iu"):
        return None
    limits = np.iinfo(dtype if dtype.kind in "iu" else np.int64)
    if type(value) is int and not limits.min <= value <= limits.max:
        return None
    with np.errstate(over="ignore"):
        return np.array(value).astype(dtype)


def _fits(end: Argument, array: np.ndarray) -> bool:
    if array.ndim != end.rank or array.dtype != end.dtype.numpy:
        return False
    layout = layout_of(array)
    if layout is not end.layout and layout != end.layout:  # most are the one PACKED
        return False
    return end.ones is None or end.ones == tuple([extent == 1 for extent in array.shape])
