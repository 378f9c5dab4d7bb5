"""Triton's interpreter, for any release: noyau supplies the parts that are missing there.

A kernel runs as Triton's compiler reads it (`programs.py`), on arguments in the compiler's dtypes; its programs run by
`programs.py`, on `builder.py`; block pointers and blocks of descriptors are implemented here, for any release."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partial, reduce
from importlib import import_module
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, NoReturn

import numpy as np

from noyau.errors import CheckError, UnsupportedError
from noyau.toolchain.libdevice import function_of
from noyau.toolchain.triton import builder
from noyau.toolchain.triton.builder import DTYPES, WORDS, Handle, interpreter, is_tensor, number_of, tensor_of, tl
from noyau.toolchain.triton.programs import BATCH, Programs, rewritten


@dataclass(frozen=True)
class BlockPointer:
    """A block of a tensor at `base`, of that `shape` and `strides`, in cells; `offsets`: of the block's first cell."""

    base: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offsets: tuple[int, ...]
    block_shape: tuple[int, ...]

    @property
    def dtype(self) -> Any:
        return tl.pointer_type(tl.block_type(self.base.dtype.element_ty, list(self.block_shape)))

    type = dtype

    def advance(self, offsets: Any) -> BlockPointer:
        """The block moved by so many cells along each axis."""
        return replace(self, offsets=tuple(a + b for a, b in zip(self.offsets, _integers(offsets), strict=True)))

    def cells(self, boundary_check: Any) -> tuple[Any, Any]:
        """Pointers to its cells, and a mask of those inside the tensor along the checked axes."""
        checked = {number_of(each) % len(self.shape) for each in _sequence(boundary_check)}
        size = max(1, self.base.dtype.element_ty.primitive_bitwidth // 8)
        places, inside = np.zeros(self.block_shape, np.int64), np.ones(self.block_shape, bool)
        for axis, index in enumerate(np.ogrid[tuple(map(slice, self.block_shape))]):
            index = index + self.offsets[axis]
            places = places + size * index * self.strides[axis]
            inside = inside & (axis not in checked or ((index >= 0) & (index < self.shape[axis])))
        pointers = self.base.handle.data.reshape(()) + places.astype(np.uint64)
        return tensor_of(pointers, self.base.dtype), tensor_of(inside, tl.int1)


def _sequence(values: Any) -> Sequence[Any]:
    return values if isinstance(values, tuple | list | tl.core.tuple) else (values,)


def _integers(values: Any) -> tuple[int, ...]:
    """Numbers, constants and tensors of one cell, or their handles, as integers."""
    handles = (each.handle if is_tensor(each) else each for each in _sequence(values))
    return tuple(int(each.data.item() if isinstance(each, Handle) else number_of(each)) for each in handles)


def _make(base: Any, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any = (), **rest: Any) -> Any:
    return BlockPointer(base, *map(_integers, (shape, strides, offsets, block_shape)))


def _loading(plain: Callable[..., Any]) -> Callable[..., Any]:
    def load(pointer: Any, *rest: Any, **options: Any) -> Any:
        if not isinstance(pointer, BlockPointer):
            return plain(pointer, *rest, **options)
        words = {**dict(zip(("mask", "other", "boundary_check", "padding_option"), rest, strict=False)), **options}
        cells, inside = pointer.cells(words.get("boundary_check", ()))
        element = pointer.base.dtype.element_ty
        fill = np.nan if number_of(words.get("padding_option", "")) == "nan" else 0
        return plain(cells, inside, tensor_of(np.full(pointer.block_shape, fill, DTYPES[element.name]), element))

    return load


def _storing(plain: Callable[..., Any]) -> Callable[..., Any]:
    def store(pointer: Any, value: Any, *rest: Any, **options: Any) -> Any:
        if not isinstance(pointer, BlockPointer):
            return plain(pointer, value, *rest, **options)
        cells, inside = pointer.cells(options.get("boundary_check", rest[1] if len(rest) > 1 else ()))
        return plain(cells, value, inside)

    return store


@builder.alone
def descriptor_cells(descriptor: Any, offsets: Any) -> tuple[Any, ...]:
    """Pointers to the cells of a block of a tensor descriptor, and a mask of those inside its tensor. CheckError where
    a GPU refuses the descriptor."""
    base = tl.core.tensor(descriptor.base, descriptor.base.dtype)
    block = BlockPointer(base, *map(_integers, (descriptor.shape, descriptor.strides, offsets, descriptor.block_shape)))
    size, (*strides, last) = base.dtype.element_ty.primitive_bitwidth // 8, block.strides
    if last != 1 or any(each % 16 for each in (*_integers(base), *(size * each for each in strides))):
        fault = f"a tensor descriptor has the strides {block.strides}, in cells of {size} bytes"
        raise CheckError(f"{fault}: a GPU takes 1 as the last, and address and rows at multiples of 16 bytes alone")
    return tuple(each.handle for each in block.cells((*range(len(offsets)),)))


# Takes a kernel, its arguments, those by name, and a grid, None for a warm-up.
Launch = Callable[[Any, Sequence[Any], Mapping[str, Any], Any], Any]
_MISSING = object()
_AXES = 3  # of a grid
_INT32, _INT64 = range(-(2**31), 2**31), range(-(2**63), 2**63)

_CLASSES = ("tensor", "dtype", "tensor_descriptor_base", "condition")  # some releases lack some of these
_HOLDERS = (tl, tl.core, tl.math, *(getattr(tl.core, name) for name in _CLASSES if hasattr(tl.core, name)))
_METHODS = frozenset(name for name in dir(tl.core.tensor) if not name.startswith("_")) | {"dtype", "shape", "type"}


# Launches.


@cache
def install() -> None:
    """Let Triton's interpreter run kernels by this file from now on, including existing ones."""
    builder.patch_builder()
    interpreter.TensorDescHandle.materialize_pointers = descriptor_cells
    interpreter.TensorDescHandle.validate = lambda descriptor: None  # releases take strides for bytes, or for cells
    kind: Any = interpreter.InterpretedFunction
    # It replaces attributes that some releases set on each kernel.
    kind.run = property(lambda function: partial(run, function), lambda function, value: None)
    kind.__getitem__ = lambda function, grid: partial(function.run, grid=grid, warmup=False)
    kind.warmup = lambda function, *args, grid, **named: function.run(*args, grid=grid, warmup=True, **named)
    kind.__call__ = call_device


def run(function: Any, *args: Any, grid: Any, warmup: bool = False, **named: Any) -> Any:
    """Launch a kernel, or warm it up."""
    return LAUNCHES[-1](function, args, named, None if warmup else grid)


def interpret(function: Any, args: Sequence[Any], named: Mapping[str, Any], grid: Any) -> None:
    """Run the programs of a launch. Exceptions of the kernel propagate."""
    if grid is None:
        return
    body = body_of(function)
    signature = inspect.signature(function.fn)
    own = {name: value for name, value in named.items() if name in signature.parameters}
    executor = interpreter.GridExecutor(body, function.arg_names, grid)
    is_here = all(_is_here(each) for each in (*args, *own.values()))
    hosts, others = (list(args), own) if is_here else executor._init_args_hst(args, own)
    for hook in getattr(function, "pre_run_hooks", ()):
        hook(*hosts, **others)
    bound = inspect.getcallargs(body, *hosts, **others)
    extents = _extents(grid(bound) if callable(grid) else grid)
    with language():
        values = {name: _convert(each, signature.parameters[name].annotation) for name, each in bound.items()}
        grids = interpreter.interpreter_builder
        grids.set_grid_dim(*extents)
        programs = Programs(extents, lambda at: grids.set_grid_idx(*at), partial(body, **values), grids.settle)
        before, _MEANINGS.turn = _MEANINGS.turn, programs.turn
        _MEANINGS.warps = named.get("num_warps", 4)  # Triton's own default
        try:
            programs()
        finally:
            _MEANINGS.turn = before
    if not is_here:
        executor._restore_args_dev(args, hosts, own, others)


LAUNCHES: list[Launch] = [interpret]  # the last one handles launches


def call_device(function: Any, *args: Any, **named: Any) -> Any:
    """Call a function from a kernel."""
    with language():
        return body_of(function)(*args, **named)


def body_of(function: Any) -> FunctionType:
    """The function of a kernel as Triton's compiler reads it."""
    body: FunctionType | None = vars(function).get("_noyau_body")
    if body is None:
        body = function._noyau_body = rewritten(function.fn, _MEANINGS, _METHODS)
    return body


def _is_here(each: Any) -> bool:
    """Whether the tensors of an argument are in memory that NumPy can access."""
    if isinstance(each, tuple):
        return all(map(_is_here, each))
    tensor = each if hasattr(each, "device") else getattr(each, "base", each)
    return not hasattr(tensor, "data_ptr") or getattr(getattr(tensor, "device", None), "type", "cpu") == "cpu"


def _extents(grid: Any) -> tuple[int, int, int]:
    axes = [int(number_of(each)) for each in grid]
    if not 0 < len(axes) <= _AXES:
        raise ValueError(f"a grid has one to three axes, and this one is {grid!r}")
    x, y, z = (*axes, 1, 1)[:_AXES]
    return x, y, z


def _convert(each: Any, annotation: Any) -> Any:
    """An argument as the compiler has it: numbers are tensors of one cell, in the dtype of value or annotation."""
    if "constexpr" in str(annotation):
        return each
    if isinstance(each, bool | np.bool_):
        return _scalar(bool(each), tl.int1)
    if isinstance(each, int | float | np.integer | np.floating):
        name = str(annotation).strip("'\"").rpartition(".")[2]
        wished = next((kind for kind in _named_dtypes() if name in (str(kind), kind.name)), None)
        return _scalar(each, wished or _dtype_of_number(each))
    return tuple(_convert(part, "") for part in each) if type(each) is tuple else interpreter._implicit_cvt(each)


def _dtype_of_number(each: Any) -> Any:
    if isinstance(each, float | np.floating):
        return tl.float32
    return tl.int32 if int(each) in _INT32 else tl.int64 if int(each) in _INT64 else tl.uint64


@cache
def _named_dtypes() -> list[Any]:
    return [each for each in vars(tl).values() if isinstance(each, tl.dtype) and each.name in DTYPES]


def _scalar(value: Any, dtype: Any) -> Any:
    return tl.core.tensor(Handle(np.array([value]).astype(DTYPES[dtype.name]), dtype), dtype)


# The language while a kernel runs.


_depth = [0]


@contextmanager
def language() -> Iterator[None]:
    """Install this file's meanings of Triton's language within the block."""
    _depth[0] += 1
    try:
        if _depth[0] == 1:
            for holder, name, _, value in _words():
                setattr(holder, name, value)
        yield
    finally:
        _depth[0] -= 1
        if _depth[0] == 0:
            for holder, name, before, _ in _words():
                _restore(holder, name, before)


def _restore(holder: Any, name: str, before: Any) -> None:
    delattr(holder, name) if before is _MISSING else setattr(holder, name, before)


@cache
def _words() -> list[tuple[Any, str, Any, Any]]:
    """The attributes of Triton's language that a kernel sees differently: their holder, name, and both values."""
    befores = [dict(vars(holder)) for holder in _HOLDERS]
    scope = interpreter._patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    words = []
    for holder, before in zip(_HOLDERS, befores, strict=True):
        for name, value in list(vars(holder).items()):
            if (earlier := before.get(name, _MISSING)) is not value:
                words.append((holder, name, earlier, _own(before.get(name), value)))
    if scope is not None:
        scope.restore()
    else:
        for holder, name, earlier, _ in words:
            _restore(holder, name, earlier)
    tensor = tl.core.tensor
    own: list[tuple[Any, str, Any]] = [
        (tensor, "__index__", lambda each: int(BATCH.one_value(each.handle.data))),
        (tensor, "__bool__", lambda each: bool(number_of(each.numel) != 1 or BATCH.one_value(each.handle.data))),
        (tensor, "T", property(_plain(tl.trans))),
        (tl.core, "extern_elementwise", _extern),  # for functions that a file imports by name
    ]
    own += [(holder, name, value) for holder in (tl, tl.core) for name, value in _language_words().items()]
    own += [(tl.extra.cuda, name, value) for name, value in _cuda_words().items()]
    for module in _libdevices():
        functions = (name for name, value in vars(module).items() if callable(value) and not name.startswith("_"))
        own += [(module, name, libdevice_function(name)) for name in functions if function_of(name) is not None]
    replaced = {(id(holder), name) for holder, name, _ in own}
    words = [each for each in words if (id(each[0]), each[1]) not in replaced]
    return words + [(holder, name, vars(holder).get(name, _MISSING), value) for holder, name, value in own]


@cache
def _language_words() -> Mapping[str, Any]:
    words = {"make_block_ptr": builder.alone(_make), "advance": BlockPointer.advance}  # functions of block pointers
    return {**WORDS, **words, "load": _loading(_plain(tl.load)), "store": _storing(_plain(tl.store))}


def _own(builtin: Any, patched: Any) -> Any:
    """The stand-in for a builtin: our own wrapper if Triton wraps it too, else Triton's replacement."""
    is_wrapped = "member" in (getattr(patched, "__kwdefaults__", None) or {})
    return _plain(builtin) if is_wrapped and tl.core.is_builtin(builtin) else patched


def _plain(builtin: Any) -> Any:
    """A builtin of Triton as a function that needs no compiler."""
    semantic = {"_semantic": interpreter.interpreter_semantic}
    return lambda *args, **named: builtin(*args, **(named | semantic))


def _extern(library: str, path: str, operands: Any, symbols: Mapping[Any, Any], *rest: Any, **options: Any) -> Any:
    """Call a function of a GPU library, by its name there."""
    return libdevice_function(next(iter(symbols.values()))[0].removeprefix("__nv_"))(*operands)


@cache
def _libdevices() -> list[ModuleType]:
    modules = []
    for name in ("triton.language.extra.libdevice", "triton.language.extra.cuda.libdevice"):
        with suppress(ImportError):
            modules.append(import_module(name))
    return modules


@cache
def _cuda_words() -> Mapping[str, Any]:
    """The functions of CUDA alone: here programs run one after the other, on one multiprocessor."""
    builtins = (name for name, value in vars(tl.extra.cuda).items() if tl.core.is_builtin(value))
    return {
        **{name: partial(_refuse, f"tl.extra.cuda.{name}") for name in builtins},
        **dict.fromkeys(("gdc_wait", "gdc_launch_dependents"), lambda **options: None),
        "globaltimer": lambda **options: _scalar(time.perf_counter_ns(), tl.int64),
        "smid": lambda **options: _scalar(0, tl.int32),
        "num_threads": lambda **options: tl.constexpr(32 * _MEANINGS.warps),
        "num_warps": lambda **options: tl.constexpr(_MEANINGS.warps),
    }


def _refuse(name: str, *args: Any, **options: Any) -> NoReturn:
    raise UnsupportedError(f"{name} cannot be interpreted without a GPU: noyau has no stand-in for it")


class _Meanings:
    """The compiler's meanings of words of Python; see `Meanings` in programs.py."""

    def __init__(self) -> None:
        pairs = ((min, "minimum"), (max, "maximum"))
        self.names: Mapping[str, Any] = {plain.__name__: partial(_extreme, plain, name) for plain, name in pairs}
        self.turn: Callable[[], Any] = lambda: None
        self.warps = 4

    def both(self, *values: Callable[[], Any]) -> Any:
        return _join_values((value() for value in values), "and_", False)

    def either(self, *values: Callable[[], Any]) -> Any:
        return _join_values((value() for value in values), "or_", True)

    def negate(self, value: Any) -> Any:
        return interpreter.interpreter_semantic.invert(_truth(value)) if is_tensor(value) else not value

    def chain(self, first: Any, *links: tuple[Callable[[Any, Any], Any], Callable[[], Any]]) -> Any:
        def comparisons() -> Iterator[Any]:
            left = first
            for compare, value in links:
                right = value()
                yield compare(left, right)
                left = right

        return _join_values(comparisons(), "and_", False)

    def count(self, values: Any) -> Any:
        if not isinstance(values, range):
            return values
        is_wide = any(each not in _INT32 for each in (values.start, values.stop))
        return (_scalar(each, tl.int64 if is_wide else tl.int32) for each in values)

    def carry(self, value: Any) -> Any:
        is_number = isinstance(number := number_of(value), bool | int | float)
        return interpreter.interpreter_semantic.to_tensor(number) if is_number else value

    def methods(self, value: Any) -> Any:
        inner = number_of(value)  # an operation of a constant and a tensor gives a constant that holds a tensor
        return self.carry(inner) if isinstance(value, bool | int | float) or is_tensor(inner) else value

    def replace(self, value: Any) -> Any:
        if not callable(value):
            return None
        name = getattr(value, "__name__", "")
        if tl.core.is_builtin(value):
            return _language_words().get(name) or _cuda_words().get(name) or _plain(value)
        is_of_libdevice = str(getattr(value, "__module__", "")).endswith("libdevice")
        return libdevice_function(name) if is_of_libdevice and function_of(name) is not None else None


def _truth(value: Any) -> Any:
    """Convert a tensor to bools."""
    if value.dtype.is_int1():
        return value
    semantic = interpreter.interpreter_semantic
    return semantic.not_equal(value, semantic.to_tensor(0.0 if value.dtype.is_floating() else 0))


def _join_values(values: Iterator[Any], how: str, end: bool) -> Any:
    """The value of `and` and `or`: tensors are combined; other values short-circuit as in Python."""
    value, tensors = None, []
    for value in values:
        if is_tensor(value):
            tensors.append(_truth(value))
        elif bool(value) is end:
            return value
    return reduce(getattr(interpreter.interpreter_semantic, how), tensors) if tensors else value


def _extreme(plain: Callable[..., Any], name: str, *values: Any, **named: Any) -> Any:
    if len(values) > 1 and any(map(is_tensor, values)):
        return reduce(getattr(tl, name), values)
    return plain(*values, **named)


_MEANINGS = _Meanings()


# Functions of libdevice.


@cache
def libdevice_function(name: str) -> Callable[..., Any]:
    """A function of libdevice on tensors, by NumPy, rounded once; UnsupportedError where noyau lacks it."""
    function = function_of(name)

    def call(*operands: Any, **options: Any) -> Any:
        if function is None:
            _refuse(f"libdevice.{name}")
        values = [operand.handle.data if is_tensor(operand) else number_of(operand) for operand in operands]
        with np.errstate(all="ignore"):
            result = np.asarray(function(*values))
        floats = [value.dtype for value in values if isinstance(value, np.ndarray) and value.dtype.kind == "f"]
        if result.dtype == np.float64 and floats:  # the functions compute in float64
            result = result.astype(max(floats))
        is_block = any(is_tensor(operand) and operand.type.is_block() for operand in operands)
        return tensor_of(result, next(each for each in _named_dtypes() if DTYPES[each.name] == result.dtype), is_block)

    return call
