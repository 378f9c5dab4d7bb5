"""The builder of Triton's interpreter, for any release, on cells of NumPy: it computes in bfloat16 and float8 as in
dtypes of NumPy, and memoises types of blocks and tensors, whose construction takes most of its time. Reductions and
scans work on whole slices: a function combines halves of an axis, not cell by cell."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

from noyau.errors import CheckError, UnsupportedError, dependency
from noyau.ir.operators import OPERATORS
from noyau.toolchain.triton.programs import BATCH

with dependency("triton, or torch,", "noyau-kernels[triton]"):
    import triton.language
    from triton.runtime import interpreter as triton_interpreter

tl: Any = triton.language  # for all files of this folder
interpreter: Any = triton_interpreter
Handle = interpreter.TensorHandle
DTYPES: Mapping[str, Any] = {
    "int1": np.bool_, "fp16": np.float16, "fp32": np.float32, "fp64": np.float64,
    **{f"{sign}int{bits}": np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "bf16": ml_dtypes.bfloat16, "fp8e5": ml_dtypes.float8_e5m2, "fp8e4nv": ml_dtypes.float8_e4m3fn,
    "fp8e5b16": ml_dtypes.float8_e5m2fnuz, "fp8e4b8": ml_dtypes.float8_e4m3fnuz, "fp8e4b15": np.uint8,
}  # fmt: skip


def number_of(each: Any) -> Any:
    return each.value if isinstance(each, tl.constexpr) else each


def is_tensor(value: Any) -> bool:
    return isinstance(value, tl.core.tensor)


def tensor_of(data: np.ndarray, dtype: Any, is_block: bool = True) -> Any:
    if not is_block or data.ndim == BATCH.axes:
        return tl.core.tensor(Handle(np.atleast_1d(data), dtype), dtype)
    return tl.core.tensor(Handle(data, dtype), tl.core.block_type(dtype, list(data.shape[BATCH.axes :])))


def reshape_block(data: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """The cells of a block in another shape."""
    return data.reshape(-1, *shape) if BATCH.size else data.reshape(shape)


def spread(data: np.ndarray, own: Sequence[int], shape: Sequence[int]) -> np.ndarray:
    """The cells of a block of the shape `own`, broadcast to another shape."""
    cells = reshape_block(data, (*(1,) * (len(shape) - len(own)), *own))
    return np.broadcast_to(cells, (*cells.shape[: BATCH.axes], *shape))


@cache
def patch_builder() -> None:
    """Patch methods of the interpreter's builder, and remove two costs that take most of its time: a table of all
    dtypes at each lookup of one, and overflow checks of each sum, which only assertions need."""
    kind, one = interpreter.InterpreterBuilder, interpreter.interpreter_builder
    interpreter._get_np_dtype = _numpy_dtype
    for name, function in _BUILDER.items():
        setattr(kind, name, function)
    for name in (f"create_{each}" for each in _ALONE if hasattr(kind, f"create_{each}")):
        setattr(kind, name, alone(getattr(kind, name)))
    if getattr(one.options, "sanitize_overflow", False):
        one.options = replace(one.options, sanitize_overflow=False)
    semantic = interpreter.interpreter_semantic
    semantic.broadcast_impl_value = partial(_broadcast, semantic.broadcast_impl_value)
    tl.core.block_type.__init__ = _cache_type(tl.core.block_type.__init__)
    tl.core.tensor.__init__ = _cache_tensor(tl.core.tensor.__init__)


def _numpy_dtype(dtype: Any) -> np.dtype:
    dtype = getattr(dtype, "element_ty", dtype) if isinstance(dtype, tl.core.block_type) else dtype
    return np.dtype(np.uint64) if isinstance(dtype, tl.core.pointer_type) else np.dtype(DTYPES[dtype.name])


def _cast(self: Any, source: Any, target: Any, *rest: Any, **options: Any) -> Any:
    dtype = target.scalar
    return Handle(source.data.astype(_numpy_dtype(dtype)), dtype)


def _move_cells(change: Callable[..., np.ndarray]) -> Callable[..., Any]:
    """A builder method that reshapes or reorders the cells of a block."""
    return lambda self, value, *rest: Handle(change(value.data, *rest), value.dtype.scalar)


def alone(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Restrict a function to one program at a time."""

    def call(*args: Any, **options: Any) -> Any:
        if BATCH.size:
            raise UnsupportedError(_NO_BATCH)
        return plain(*args, **options)

    return call


def _enter(self: Any, *place: Any) -> None:
    self.grid_idx = place


def _settle(self: Any, is_whole: bool) -> None:
    """End a batch of programs: their stores stay, or are rolled back."""
    while BATCH.undo:
        restore = BATCH.undo.pop()
        if not is_whole:
            restore()


def _dot(self: Any, left: Any, right: Any, into: Any, *rest: Any, **options: Any) -> Any:
    dtype = into.data.dtype
    wide = np.dtype(np.float64) if dtype.kind in "iu" else np.promote_types(dtype, np.float32)
    product = np.matmul(left.data.astype(wide, copy=False), right.data.astype(wide, copy=False))
    return Handle(product.astype(dtype, copy=False) + into.data, into.dtype.scalar)


def _erf(self: Any, value: Any) -> Any:
    evaluate: Any = OPERATORS["erf"].evaluate
    return Handle(np.asarray(evaluate(value.data.astype(np.float64))).astype(value.data.dtype), value.dtype.scalar)


def _load(self: Any, pointers: Any, mask: Any, other: Any, *rest: Any, **options: Any) -> Any:
    dtype = pointers.get_element_ty()
    cell, lanes = _numpy_dtype(dtype), mask.data.astype(bool, copy=False)
    if lanes.all():
        return Handle(_cells_at(pointers.data, cell), dtype)
    other_cells = np.zeros(pointers.data.shape, cell) if other is None else other.data
    addresses, lanes, other_cells = np.broadcast_arrays(pointers.data, lanes, other_cells)
    cells = other_cells.copy()
    cells[lanes] = _cells_at(addresses[lanes], cell)
    return Handle(cells, dtype)


@cache
def _space(size: int) -> np.ndarray:
    """All memory from the address `size` on, in cells of so many bytes: NumPy accesses lanes ten times as fast as
    Triton's own code."""
    facts = {"data": (size, False), "typestr": f"u{size}", "shape": ((1 << 56) // size,), "version": 3}
    return np.asarray(SimpleNamespace(__array_interface__=facts))


def _places(addresses: np.ndarray, size: int) -> np.ndarray:
    """The positions of addresses among cells of so many bytes. CheckError if one is not aligned to a cell."""
    numbers: np.ndarray = addresses.view(np.int64)
    if size > 1 and np.bitwise_or.reduce(numbers, axis=None) & (size - 1):
        raise CheckError(f"{size} bytes are accessed at an address that is no multiple of that: a GPU refuses it")
    return (numbers >> (size.bit_length() - 1)) - 1


def _cells_at(addresses: np.ndarray, dtype: Any) -> np.ndarray:
    size = dtype.itemsize
    return _space(size).take(_places(addresses, size)).view(dtype)


def _put(addresses: np.ndarray, cells: np.ndarray) -> None:
    size = cells.dtype.itemsize
    _space(size)[_places(addresses, size)] = np.ascontiguousarray(cells).view(f"u{size}")


def _store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any, **options: Any) -> Any:
    addresses, lanes, cells = np.broadcast_arrays(pointers.data, mask.data, value.data)
    chosen = ... if lanes.all() else lanes
    _remember(addresses[chosen], cells.dtype)
    _put(addresses[chosen], cells[chosen])


def _remember(addresses: np.ndarray, dtype: Any) -> None:
    """Save the cells at addresses, in case the programs of a batch diverge."""
    if BATCH.size:
        BATCH.undo.append(partial(_put, addresses, _cells_at(addresses, dtype)))


def _atomic_merge(self: Any, how: Any, pointers: Any, value: Any, mask: Any, *rest: Any, **options: Any) -> Any:
    """An atomic in a dtype that NumPy lacks: lane after lane."""
    if BATCH.size:
        handles = (pointers, value, mask)
        every = (np.broadcast_to(each.data, (BATCH.size, *each.data.shape[1:])) for each in handles)
        pointers, value, mask = (Handle(data, each.dtype) for data, each in zip(every, handles, strict=True))
        _remember(pointers.data[mask.data], value.data.dtype)
    if value.data.dtype.isbuiltin == 1:
        return _PLAIN_MERGE(self, how, *map(_pack, (pointers, value, mask)), *rest, **options)
    result, merge = value.data.copy(), _MERGES.get(str(how).rpartition(".")[2])
    if merge is None:
        raise UnsupportedError(f"an atomic {how} in {value.dtype} cannot be interpreted")
    for lane in zip(*np.nonzero(mask.data), strict=True):
        pointer, one = Handle(np.atleast_1d(pointers.data[lane]), pointers.dtype), Handle(np.ones(1, bool), tl.int1)
        result[lane] = _load(self, pointer, one, None).data[0]
        _store(self, pointer, Handle(np.atleast_1d(merge(result[lane], value.data[lane])), value.dtype), one)
    return Handle(result, value.dtype.scalar)


def _atomic_reduce(self: Any, kind: Any, descriptor: Any, value: Any, offsets: Any) -> Any:
    """An atomic on a tile of a tensor descriptor."""
    name, sign = str(kind).rpartition(".")[2], value.data.dtype.kind.upper()
    signs = {"ADD": "F", "MIN": "U", "MAX": "U"}
    how = getattr(interpreter._ir.ATOMIC_OP, sign * (sign == signs.get(name)) + name)
    pointers, mask = descriptor.materialize_pointers(offsets)
    self.create_atomic_rmw(how, pointers, value, mask, interpreter._ir.MEM_SEMANTIC.RELAXED, None)


def _compare_and_swap(self: Any, pointers: Any, expected: Any, value: Any, *rest: Any, **options: Any) -> Any:
    return _PLAIN_SWAP(self, *map(_pack, (pointers, expected, value)), *rest, **options)


def _multiply_scaled(self: Any, left: Any, scale: Any, kind: Any, right: Any, *rest: Any) -> Any:
    return _PLAIN_SCALED(self, _encode(left), scale, kind, _encode(right), *rest)


def _encode(handle: Any) -> Any:
    """The cells in the encoding of Triton's interpreter: float8 and bfloat16 as unsigned integers of their bits."""
    cells = handle.data if handle.data.dtype.isbuiltin == 1 else handle.data.view(f"u{handle.data.itemsize}")
    return Handle(cells, handle.dtype)


def _pack(handle: Any) -> Any:
    """Contiguous cells: before 3.9 Triton's atomics in C++ ignore strides."""
    return Handle(np.require(handle.data, requirements="C"), handle.dtype)


def _constant_of(name: str) -> Callable[..., Any]:
    return lambda self, value: Handle(np.array([value]).astype(DTYPES[name]), tl.dtype(name))


_PLAIN_MERGE = interpreter.InterpreterBuilder.create_atomic_rmw
_PLAIN_SWAP = interpreter.InterpreterBuilder.create_atomic_cas
_PLAIN_SCALED: Any = getattr(interpreter.InterpreterBuilder, "create_dot_scaled", None)
_MERGES: Mapping[str, Any] = {"FADD": np.add, "MAX": np.maximum, "MIN": np.minimum, "XCHG": lambda old, new: new}


def _cache_type(plain: Callable[..., None]) -> Callable[..., None]:
    """Memoise the slow constructor of block types."""
    known: dict[Any, dict[str, Any]] = {}

    def construct(self: Any, element: Any, shape: Any) -> None:
        key = (id(element), *map(number_of, shape))  # the element outlives its entries
        if key not in known:
            plain(self, element, shape)
            known[key] = {**vars(self), _FIELDS: {}}
        vars(self).update(known[key])

    return construct


def _cache_tensor(plain: Callable[..., None]) -> Callable[..., None]:
    """Memoise the constructor of tensors by type, except for the handle."""

    def construct(self: Any, handle: Any, kind: Any) -> None:
        fields = vars(kind).setdefault(_FIELDS, {})
        if not fields:
            plain(self, handle, kind)
            fields.update(vars(self))
        if BATCH.size and (data := getattr(handle, "data", None)) is not None:
            shape = tuple(map(number_of, kind.shape)) if isinstance(kind, tl.core.block_type) else ()
            if data.shape[1:] != shape or len(data) not in (1, BATCH.size):
                raise UnsupportedError(_NO_BATCH)
            BATCH.meet(data)
        vars(self).update(fields)
        self.handle, self.type = handle, kind

    return construct


def _broadcast(plain: Callable[..., Any], left: Any, right: Any) -> Any:
    """Broadcast two tensors, as views, which Triton's own interpreter copies. Its error for shapes that do not fit."""
    shapes = [tuple(each.type.shape) if each.type.is_block() else () for each in (left, right)]
    if shapes[0] == shapes[1]:
        return left, right
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        return plain(left, right)
    return tuple(
        each if own == shape else tensor_of(spread(each.handle.data, own, shape), each.dtype)
        for each, own in zip((left, right), shapes, strict=True)
    )


_FIELDS = "_noyau_fields"
_NO_BATCH = "it is of one program at a time"
# Other methods without support for batches give values of another shape.
_ALONE = "atomic_cas atomic_poll gather print descriptor_store descriptor_scatter".split()
_BUILDER: Mapping[str, Any] = {
    "create_splat": lambda self, kind, value: Handle(spread(value.data, (), kind.shape), kind.scalar),
    "create_broadcast": _move_cells(lambda cells, shape: spread(cells, cells.shape[BATCH.axes :], shape)),
    "create_reshape": _move_cells(lambda cells, shape, *rest: reshape_block(cells, shape)),
    "create_expand_dims": _move_cells(lambda cells, axis: np.expand_dims(cells, BATCH.axes + axis)),
    "create_trans": _move_cells(
        lambda cells, order: np.transpose(cells, (*range(BATCH.axes), *(BATCH.axes + axis for axis in order)))
    ),
    "create_make_range": lambda self, kind, start, end: Handle(
        reshape_block(np.arange(start, end, dtype=np.int32), (end - start,)), tl.int32
    ),
    "create_get_program_id": lambda self, axis: Handle(np.array(self.grid_idx[axis], np.int32, ndmin=1), tl.int32),
    "set_grid_idx": _enter,
    "settle": _settle,
    "create_dot": _dot,
    "create_erf": _erf,
    **({"create_dot_scaled": alone(_multiply_scaled)} if _PLAIN_SCALED else {}),
    "create_masked_load": _load,
    "create_masked_store": _store,
    "create_atomic_rmw": _atomic_merge,
    "create_atomic_cas": _compare_and_swap,
    "create_descriptor_reduce": alone(_atomic_reduce),
    "cast_impl": _cast,
    "create_fp_to_fp": _cast,
    "create_minnumf": lambda self, left, right: self.binary_op(left, right, np.fmin),
    "create_maxnumf": lambda self, left, right: self.binary_op(left, right, np.fmax),
    **{f"get_{name}": _constant_of(name) for name in DTYPES if name.startswith(("bf", "fp8"))},
}


def _reduce(values: Any, axis: Any, combine: Any, keep_dims: bool = False, **options: Any) -> Any:
    """tl.reduce: neighbouring halves of an axis are combined until one slice is left."""
    parts = values if isinstance(values, tuple | tl.core.tuple) else (values,)
    axis, keep_dims, lead = number_of(axis), bool(number_of(keep_dims)), BATCH.axes
    rank = parts[0].handle.data.ndim - lead
    place = lead + (0 if axis is None else int(axis) % rank)
    arrays = [
        reshape_block(each.handle.data, (number_of(each.numel),)) if axis is None else each.handle.data
        for each in parts
    ]
    known = _KNOWN.get(_name(combine)) if len(parts) == 1 else None
    slices = [known(arrays[0], place)] if known else _fold(combine, parts, arrays, place)
    shape = (1,) * rank if axis is None else slices[0].shape[lead:]
    if not keep_dims:
        shape = () if axis is None else (*shape[: place - lead], *shape[place - lead + 1 :])
    results = tuple(
        tensor_of(reshape_block(each, shape).astype(DTYPES[part.dtype.name], copy=False), part.dtype, bool(shape))
        for each, part in zip(slices, parts, strict=True)
    )
    return results if isinstance(values, tuple | tl.core.tuple) else results[0]


def _fold(combine: Any, parts: Sequence[Any], arrays: list[np.ndarray], axis: int) -> list[np.ndarray]:
    even, odd = _cut(axis, slice(0, None, 2)), _cut(axis, slice(1, None, 2))
    while arrays[0].shape[axis] > 1:  # a power of two, as all extents of blocks
        arrays = _combine(combine, parts, [each[even] for each in arrays], [each[odd] for each in arrays])
    return arrays


def _scan(values: Any, axis: Any, combine: Any, reverse: bool = False, **options: Any) -> Any:
    """tl.associative_scan: each cell is combined with the one 1, 2, 4, ... cells before it."""
    parts = values if isinstance(values, tuple | tl.core.tuple) else (values,)
    axis, reverse = int(number_of(axis)) % len(parts[0].shape) + BATCH.axes, bool(number_of(reverse))
    back = _cut(axis, slice(None, None, -1)) if reverse else ()
    arrays = [each.handle.data[back].copy() for each in parts]
    step, known = 1, _KNOWN_SCANS.get(_name(combine)) if len(parts) == 1 else None
    if known is not None:
        arrays, step = [known(arrays[0], axis)], arrays[0].shape[axis]
    while step < arrays[0].shape[axis]:
        last = _cut(axis, slice(step, None))
        joined = _combine(combine, parts, [np.roll(each, step, axis) for each in arrays], arrays)
        for array, each in zip(arrays, joined, strict=True):
            array[last] = each[last]
        step *= 2
    pairs = zip(arrays, parts, strict=True)
    results = tuple(tensor_of(np.ascontiguousarray(each[back]), part.dtype) for each, part in pairs)
    return results if isinstance(values, tuple | tl.core.tuple) else results[0]


def _combine(
    combine: Any, parts: Sequence[Any], left: Sequence[np.ndarray], right: Sequence[np.ndarray]
) -> list[np.ndarray]:
    tensors = [tensor_of(each, part.dtype) for side in (left, right) for each, part in zip(side, parts, strict=True)]
    results = combine(*tensors)
    results = results if isinstance(results, tuple | tl.core.tuple) else (results,)
    arrays = [each.handle.data if is_tensor(each) else np.asarray(number_of(each)) for each in results]
    pairs = zip(arrays, parts, strict=True)
    return [np.broadcast_to(each, left[0].shape).astype(DTYPES[part.dtype.name], copy=False) for each, part in pairs]


def _cut(axis: int, part: slice) -> tuple[slice, ...]:
    return (*(slice(None),) * axis, part)


def _name(combine: Any) -> str:
    function = getattr(combine, "fn", combine)
    return function.__name__ if getattr(function, "__module__", "") == "triton.language.standard" else ""


_KNOWN: Mapping[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "_sum_combine": lambda array, axis: np.sum(array, axis, dtype=array.dtype, keepdims=True),
    "_elementwise_max": lambda array, axis: np.fmax.reduce(array, axis, keepdims=True),
    "_elementwise_min": lambda array, axis: np.fmin.reduce(array, axis, keepdims=True),
    "_xor_combine": lambda array, axis: np.bitwise_xor.reduce(array, axis, keepdims=True),
}
_KNOWN_SCANS: Mapping[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "_sum_combine": lambda array, axis: np.cumsum(array, axis, dtype=array.dtype),
    "_prod_combine": lambda array, axis: np.cumprod(array, axis, dtype=array.dtype),
}
WORDS: Mapping[str, Any] = {"reduce": _reduce, "associative_scan": _scan}
