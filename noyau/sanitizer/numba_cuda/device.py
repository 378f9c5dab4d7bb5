"""The stand-in for numba.cuda within a watched kernel, and the stand-ins for its names."""

import inspect
import math
import operator
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib import import_module
from types import FrameType, FunctionType, SimpleNamespace
from typing import Any

import numba
import numpy as np
from numba import cuda
from numba.core.typing import templates
from numba.cuda import libdevice, libdevicefuncs
from numba.cuda.simulator.kernelapi import FakeCUDAFp16
from numba.cuda.simulator.vector_types import vector_types
from numba.np.numpy_support import as_dtype

from noyau.errors import UnsupportedError
from noyau.kernels.user_kernel import Three
from noyau.sanitizer.compiled_numbers import MATH
from noyau.sanitizer.numba_cuda.arrays import DeviceArray, LaunchRecorder, convert_number, number_of
from noyau.sanitizer.numba_cuda.lockstep import WAITING, WARP
from noyau.sanitizer.records import Access
from noyau.toolchain.libdevice import OF_PATTERNS, function_of

AXES = ("x", "y", "z")
_REGISTRIES = [templates.builtin_registry]
with suppress(ImportError, AttributeError):  # numba-cuda may have its own registry
    _REGISTRIES.insert(0, import_module("numba.cuda.typing.templates").builtin_registry)
_DYNAMIC = (0, 0)  # the key of the first array of dynamic shared memory


class Dim3:
    """Three numbers by name; those of threadIdx and blockIdx change with the running thread."""

    __slots__ = AXES

    def __init__(self, x: int = 0, y: int = 0, z: int = 0) -> None:
        self.x, self.y, self.z = x, y, z

    def __iter__(self) -> Any:
        return iter((self.x, self.y, self.z))

    def __str__(self) -> str:
        return str(tuple(self))


class SimulatedDevice:
    """The words of numba.cuda for the running thread. Words that wait are not called: see rewrite.py. `fill`: the byte
    that unset memory of blocks and threads holds."""

    def __init__(self, recorder: LaunchRecorder, grid: Three, block: Three, dynamic_bytes: int = 0) -> None:
        self._recorder, self.dynamic_bytes, self.fill = recorder, dynamic_bytes, 0
        self.gridDim, self.blockDim = Dim3(*grid), Dim3(*block)
        self._sizes = tuple(blocks * threads for blocks, threads in zip(grid, block, strict=True))
        self.threadIdx, self.blockIdx = Dim3(), Dim3()
        self.warpsize = WARP
        self.atomic = ATOMIC
        self.shared = SimpleNamespace(array=self._shared_array)
        self.local = SimpleNamespace(array=self._local_array)
        self.const = SimpleNamespace(array_like=self._constant)
        self.cg = SimpleNamespace(this_grid=lambda: None)  # whose sync() is a word that waits
        self._shared: dict[tuple[int, int], DeviceArray] = {}
        self._constants: dict[int, DeviceArray] = {}
        self._private: list[int] = []

    def __getattr__(self, name: str) -> Any:
        """Return half precision and short vectors of Numba's simulator; UnsupportedError for other names."""
        if name == "fp16":
            return FakeCUDAFp16()
        if name in _WORDS:
            return _WORDS[name]
        frame = sys._getframe(1)
        place = f"line {frame.f_lineno} of {frame.f_code.co_filename}"
        raise UnsupportedError(f"numba.cuda.{name} cannot be watched without a GPU ({place})")

    # The place of the running thread.

    @property
    def laneid(self) -> int:
        block, thread = self.blockDim, self.threadIdx
        return (thread.x + block.x * (thread.y + block.y * thread.z)) % WARP

    def grid(self, ndim: int) -> Any:
        """Return the thread's index in the whole grid."""
        thread, block, size = self.threadIdx, self.blockIdx, self.blockDim
        x = thread.x + block.x * size.x
        return x if ndim == 1 else (x, thread.y + block.y * size.y, thread.z + block.z * size.z)[:ndim]

    def gridsize(self, ndim: int) -> Any:
        """Return the number of threads of the whole grid."""
        return self._sizes[0] if ndim == 1 else self._sizes[:ndim]

    def lanemask_lt(self) -> int:
        return (1 << self.laneid) - 1

    # Memory.

    def begin_block(self, at: Three) -> None:
        """Begin a block: reset shared arrays, and drop local ones."""
        self.blockIdx.x, self.blockIdx.y, self.blockIdx.z = at
        for array in self._shared.values():
            self._recorder.clear(array.memory)
            if self.fill:
                array.data[...] = self._unset(array.data.shape, array.data.dtype)
        if self._private:
            self._recorder.play()
        for memory in self._private:
            self._recorder.shadow.forget(memory)
        self._private.clear()

    @contextmanager
    def other_blocks(self) -> Iterator[None]:
        """Let other blocks run within the context, with memory of their own."""
        at, shared, private = tuple(self.blockIdx), self._shared, self._private
        self._shared, self._private = {}, []
        yield
        self.blockIdx.x, self.blockIdx.y, self.blockIdx.z = at
        self._shared, self._private = shared, private

    def _shared_array(self, shape: Any, dtype: Any, alignment: int | None = None) -> DeviceArray:
        """Return the array of a call site, which all threads of a block share."""
        frame = sys._getframe(1)
        key = (id(frame.f_code), frame.f_lasti)  # hashing a code object would hash all of its contents
        if key not in self._shared:
            cells, name = self._unset(shape, _dtype(dtype)), _name_in(frame, "shared")
            if cells.size:
                self._shared[key] = self._recorder.array(cells, name, is_set=False)
            else:
                self._shared[key] = self._dynamic_array(cells.dtype, name)
        return self._shared[key]

    def _dynamic_array(self, dtype: np.dtype, name: str) -> DeviceArray:
        """Return an array over all of the launch's dynamic shared bytes, as are the others of the block."""
        first, count = self._shared.get(_DYNAMIC), self.dynamic_bytes // dtype.itemsize
        width, rest = divmod(dtype.itemsize, dtype.itemsize if first is None else first.data.itemsize // first.width)
        if first is None or rest:  # of a narrower dtype than the watched cells: overlaps are not seen
            whole = self._recorder.array(self._unset(count, dtype), name, is_set=False)
            return self._shared.setdefault(_DYNAMIC, whole) if first is None else whole
        data = first.data.view(np.uint8)[: count * dtype.itemsize].view(dtype)
        return DeviceArray(self._recorder, first.memory, data, width * np.arange(count), width)

    def _unset(self, shape: Any, dtype: np.dtype) -> np.ndarray:
        byte = min(self.fill, 1) if dtype == np.bool_ else self.fill
        return np.full(int(np.prod(shape)) * dtype.itemsize, byte, np.uint8).view(dtype).reshape(shape)

    def _local_array(self, shape: Any, dtype: Any, alignment: int | None = None) -> DeviceArray:
        cells = self._unset(shape, _dtype(dtype))
        array = self._recorder.array(cells, _name_in(sys._getframe(1), "local"), is_set=False)
        self._private.append(array.memory)
        return array

    def _constant(self, array: np.ndarray) -> DeviceArray:
        if id(array) not in self._constants:
            self._constants[id(array)] = self._recorder.array(np.array(array), _name_in(sys._getframe(1), "constant"))
        return self._constants[id(array)]

    def threadfence(self) -> None:
        self._recorder.fence()

    threadfence_system = threadfence

    def threadfence_block(self) -> None:
        """Do nothing: within a block barriers order, and a fence of the block orders nothing more."""

    def nanosleep(self, ns: int) -> None: ...

    # Arithmetic.

    popc, brev, clz, ffs = (
        staticmethod(lambda value, source=None, function=OF_PATTERNS[name]: function(*_pattern(value, source)))
        for name in ("popc", "brev", "clz", "ffs")
    )
    fma = staticmethod(lambda a, b, c: a * b + c)
    cbrt = staticmethod(np.cbrt)
    selp = staticmethod(lambda flag, a, b: a if flag else b)


def _pattern(value: Any, source: Any) -> tuple[int, int]:
    """Return the bits of an integer and their number: that of `source` (a number of bits, or the array that held it),
    else that of its dtype, of 32 at least, else 32 if they suffice."""
    holder = source.data if isinstance(source, DeviceArray) else value
    bits = (
        max(32, 8 * holder.dtype.itemsize) if hasattr(holder, "dtype") else 32 if -(1 << 31) <= value < 1 << 32 else 64
    )
    bits = source if isinstance(source, int) else bits
    return int(value) & ((1 << bits) - 1), bits


def _atomic(change: Callable[[Any, Any], Any], *, sums: bool = False) -> Callable[..., Any]:
    """Return a word of numba.cuda.atomic, from its operation on a cell and a value; it returns the old value."""

    def merge(array: DeviceArray, index: Any, value: Any) -> Any:
        return array.change(index, lambda now: change(now, value), sys._getframe(1), sums=sums)

    return merge


def _cas(array: DeviceArray, index: Any, old: Any, value: Any) -> Any:
    return array.change(index, lambda now: value if now == old else now, sys._getframe(1), how=Access.SWAP)


ATOMIC = SimpleNamespace(
    add=_atomic(operator.add, sums=True),
    sub=_atomic(operator.sub, sums=True),
    and_=_atomic(operator.and_),
    or_=_atomic(operator.or_),
    xor=_atomic(operator.xor),
    inc=_atomic(lambda now, value: 0 if now >= value else now + 1),
    dec=_atomic(lambda now, value: value if now == 0 or now > value else now - 1),
    exch=_atomic(lambda now, value: value),
    max=_atomic(max),  # NaN changes nothing, as in Numba
    min=_atomic(min),
    nanmax=_atomic(lambda now, value: value if math.isnan(now) else max(now, value)),
    nanmin=_atomic(lambda now, value: value if math.isnan(now) else min(now, value)),
    cas=_cas,
    compare_and_swap=lambda array, old, value: _cas(array, (0,) * array.data.ndim, old, value),  # on the first cell
)


def _dtype(dtype_like: Any) -> np.dtype:
    """Return a dtype of Numba or NumPy as NumPy's."""
    try:
        dtype: np.dtype = np.dtype(dtype_like)
    except TypeError:
        dtype = as_dtype(dtype_like)
    return dtype


def _name_in(frame: FrameType, otherwise: str) -> str:
    """Return the name that a statement gives to its result, or to one of several arrays that it makes."""
    info = inspect.getframeinfo(frame, context=31)
    lines, row = info.code_context or [""], info.index or 0
    text = "".join(lines[:row]) + lines[row][: info.positions.col_offset if info.positions else 0]
    for match in reversed(list(_ASSIGNED.finditer(text))):
        before = text[match.end() :]
        opened = re.sub(r"\([^()]*\)", "", re.sub(r"\([^()]*\)", "", before))
        if ")" not in opened and "\n" not in opened.partition("(")[0]:  # the line goes on to the call
            names = re.findall(r"\w+", match[1])
            place = before.count("array(") if len(names) > 1 else 0
            return names[place] if place < len(names) else otherwise
    return otherwise


_ASSIGNED = re.compile(r"^[ \t]*\(?\s*(\w+(?:\s*,\s*\w+)*)\s*\)?\s*=(?!=)", re.MULTILINE)
_STANDING = (
    *("threadIdx", "blockIdx", "blockDim", "gridDim", "grid", "gridsize", "atomic", "shared", "local", "const", "cg"),
    *("threadfence", "threadfence_block", "threadfence_system", "nanosleep", "lanemask_lt"),
    *("popc", "brev", "clz", "ffs", "fma", "cbrt", "selp", "fp16"),
)


# Loads and stores with a hint for the cache.
_HINTED: dict[str, Any] = dict.fromkeys(("ldca", "ldcg", "ldcs", "ldlu", "ldcv"), operator.getitem)
_HINTED |= dict.fromkeys(("stcg", "stcs", "stwb", "stwt"), operator.setitem)
_VECTORS = {name: each for key, each in vector_types.items() for name in (key, *getattr(each, "aliases", ()))}
_WORDS = _HINTED | _VECTORS


@cache
def _words() -> dict[int, str]:
    """Return the names of objects that wait, by identity: the objects live as long as their module."""
    return {id(getattr(cuda, name)): name for name in WAITING if hasattr(cuda, name)}


def word_of(value: Any) -> str | None:
    """Return the name of a word of numba.cuda that waits; None for other values."""
    return _words().get(id(value))


def stand_ins(device: SimulatedDevice) -> dict[int, Any]:
    """Return the stand-ins for objects in a kernel's globals, by identity."""
    with_device = SimpleNamespace(**{**vars(numba), "cuda": device})
    by_identity: dict[int, Any] = {id(cuda): device, id(numba): with_device, id(math): MATH}
    by_identity |= {id(getattr(cuda, name)): getattr(device, name) for name in _STANDING if hasattr(cuda, name)}
    by_identity |= {id(getattr(cuda.atomic, name)): word for name, word in vars(ATOMIC).items()}
    by_identity |= {id(getattr(cuda, name)): word for name, word in _WORDS.items() if hasattr(cuda, name)}
    by_identity |= {id(cuda.cg.this_grid): device.cg.this_grid} | _libdevice()
    by_identity |= {id(getattr(math, name)): word for name, word in vars(MATH).items() if callable(word)}
    return by_identity


def overloads_of(function: FunctionType) -> list[Callable[..., Any]]:
    """Return the @overload functions of a function: each maps argument types to an implementation or None."""
    registered = [kind for registry in _REGISTRIES for each, kind in registry.globals if each is function]
    known = [each for kind in registered for each in getattr(kind, "templates", ())]
    templates = [each for each in known if hasattr(each, "_overload_func")]
    templates.sort(key=lambda each: each.metadata.get("target") != "cuda")  # CUDA's own before those of any target
    return [each._overload_func for each in templates]


def type_of(value: Any) -> Any:
    """Return Numba's type of a value in a kernel."""
    return numba.typeof(value.data if isinstance(value, DeviceArray) else value)


def conversion_of(meant: Any) -> Callable[..., Any] | None:
    """Return the stand-in for a call of a numeric type of NumPy or Numba. As on a device, integers wrap around, a float
    that is too large becomes the limit of the type, or of 32 bits if the type is narrower, and NaN 0."""
    is_whole = isinstance(meant, numba.types.Integer) or (isinstance(meant, type) and issubclass(meant, np.integer))
    if not is_whole:
        return meant.cast_python_value if isinstance(meant, numba.types.Number | numba.types.Boolean) else None
    dtype = _dtype(meant)

    def converted(value: Any = 0) -> Any:
        whole = convert_number(value, dtype)
        return dtype.type(whole if isinstance(whole, int) else convert_number(int(whole), dtype))

    return converted


@cache
def _libdevice() -> dict[int, Any]:
    """Return the stand-ins for the module and its functions, by identity; cached, as every launch needs them."""
    names = [name for name, each in vars(libdevice).items() if inspect.isfunction(each)]
    by_numpy = {name: partial(_call_libdevice, name) for name in names}
    functions = {id(getattr(libdevice, name)): function for name, function in by_numpy.items()}
    return {id(libdevice): SimpleNamespace(**by_numpy), **functions}


def _call_libdevice(name: str, *operands: Any) -> Any:
    """Call a function of libdevice with the types of its signature; results through pointers are returned.
    UnsupportedError for a function that noyau does not know."""
    function, takes, gives, is_tuple = _signature(name)
    cells = [dtype.type(convert_number(cell, dtype)) for dtype, cell in zip(takes, operands, strict=True)]
    with np.errstate(all="ignore"):
        results = function(*cells)
    parts = results if isinstance(results, tuple) else (results,)
    numbers = tuple(number_of(dtype)(dtype.type(part)) for dtype, part in zip(gives, parts, strict=True))
    return numbers if is_tuple else numbers[0]


@cache
def _signature(name: str) -> tuple[Callable[..., Any], list[np.dtype], list[np.dtype], bool]:
    """Return the function of a name on arrays, its dtypes (arguments and results), and whether it gives a tuple."""
    function = function_of(name)
    if function is None or f"__nv_{name}" not in libdevicefuncs.functions:
        raise UnsupportedError(f"numba.cuda.libdevice.{name} cannot be watched without a GPU")
    kind, parameters = libdevicefuncs.functions[f"__nv_{name}"]
    pointers = [as_dtype(each.ty) for each in parameters if each.is_ptr]
    result = [] if kind == numba.types.none else [as_dtype(kind)]
    return function, [as_dtype(each.ty) for each in parameters if not each.is_ptr], [*result, *pointers], bool(pointers)
