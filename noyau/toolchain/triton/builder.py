"""The builder of Triton's interpreter, whatever its release, on cells of NumPy: it calculates in bfloat16 and float8 as
in dtypes of NumPy, and types of blocks and tensors, which take most of its time, are made once for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

import ml_dtypes
import numpy as np

from noyau.errors import MissingExtraError, UnsupportedError
from noyau.ir.operators import OPERATORS

try:
    import triton.language
    from triton.runtime import interpreter as triton_interpreter
except ImportError as error:
    raise MissingExtraError("triton, or torch, is not installed; run: pip install 'noyau-kernels[triton]'") from error

tl: Any = triton.language  # for all files here
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
    if not is_block or not data.shape:
        return tl.core.tensor(Handle(np.atleast_1d(data), dtype), dtype)
    return tl.core.tensor(Handle(data, dtype), tl.core.block_type(dtype, list(data.shape)))


@cache
def patch_builder() -> None:
    """Mend methods of the interpreter's builder, and spare it two things that take most of its time: a table of all
    dtypes whenever it asks for one, and whether each sum overflowed, which only assertions ask for."""
    kind, one = interpreter.InterpreterBuilder, interpreter.interpreter_builder
    interpreter._get_np_dtype = _numpy_dtype
    for name, function in _BUILDER.items():
        setattr(kind, name, function)
    if getattr(one.options, "sanitize_overflow", False):
        one.options = replace(one.options, sanitize_overflow=False)
    semantic = interpreter.interpreter_semantic
    semantic.broadcast_impl_value = partial(_broadcast, semantic.broadcast_impl_value)
    tl.core.block_type.__init__ = _recalled_type(tl.core.block_type.__init__)
    tl.core.tensor.__init__ = _recalled_tensor(tl.core.tensor.__init__)


def _numpy_dtype(dtype: Any) -> np.dtype:
    dtype = getattr(dtype, "element_ty", dtype) if isinstance(dtype, tl.core.block_type) else dtype
    return np.dtype(np.uint64) if isinstance(dtype, tl.core.pointer_type) else np.dtype(DTYPES[dtype.name])


def _cast(self: Any, source: Any, target: Any, *rest: Any, **options: Any) -> Any:
    dtype = target.scalar
    return Handle(source.data.astype(_numpy_dtype(dtype)), dtype)


def _splat(self: Any, kind: Any, value: Any) -> Any:
    return Handle(np.broadcast_to(value.data.reshape(()), kind.shape), kind.scalar)


def _dot(self: Any, left: Any, right: Any, into: Any, *rest: Any, **options: Any) -> Any:
    dtype = into.data.dtype
    wide = np.dtype(np.float64) if dtype.kind in "iu" else np.promote_types(dtype, np.float32)
    product = np.matmul(left.data.astype(wide, copy=False), right.data.astype(wide, copy=False))
    return Handle(product.astype(dtype, copy=False) + into.data, into.dtype.scalar)


def _erf(self: Any, value: Any) -> Any:
    evaluate: Any = OPERATORS["erf"].evaluate
    return Handle(np.asarray(evaluate(value.data.astype(np.float64))).astype(value.data.dtype), value.dtype.scalar)


def _loaded(self: Any, pointers: Any, mask: Any, other: Any, *rest: Any, **options: Any) -> Any:
    dtype = pointers.get_element_ty()
    cell = _numpy_dtype(dtype)
    bits = _bits(np.zeros(pointers.data.shape, cell) if other is None else other.data)
    return Handle(interpreter._interpreter.load(pointers.data, _lanes(mask), bits, bits.dtype).view(cell), dtype)


def _lanes(mask: Any) -> np.ndarray:
    return mask if isinstance(mask, np.ndarray) else mask.data


def _bits(array: np.ndarray) -> np.ndarray:
    """Cells as Triton's own code in C++ takes them: it knows the dtypes of NumPy alone."""
    is_numpys = array.dtype.isbuiltin == 1  # ml_dtypes has float8_e5m2 of kind f
    return array if is_numpys else np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def _stored(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any, **options: Any) -> Any:
    return interpreter._interpreter.store(pointers.data, _bits(value.data), _lanes(mask))


def _merged(self: Any, how: Any, pointers: Any, value: Any, mask: Any, *rest: Any, **options: Any) -> Any:
    """An atomic in a dtype that NumPy does not have: lane after lane."""
    if value.data.dtype.isbuiltin == 1:
        return _PLAIN_MERGE(self, how, *map(_packed, (pointers, value, mask)), *rest, **options)
    result, merge = value.data.copy(), _MERGES.get(str(how).rpartition(".")[2])
    if merge is None:
        raise UnsupportedError(f"an atomic {how} in {value.dtype} cannot be interpreted")
    for lane in zip(*np.nonzero(mask.data), strict=True):
        pointer, one = Handle(np.atleast_1d(pointers.data[lane]), pointers.dtype), Handle(np.ones(1, bool), tl.int1)
        result[lane] = _loaded(self, pointer, one, None).data[0]
        _stored(self, pointer, Handle(np.atleast_1d(merge(result[lane], value.data[lane])), value.dtype), one)
    return Handle(result, value.dtype.scalar)


def _swapped(self: Any, pointers: Any, expected: Any, value: Any, *rest: Any, **options: Any) -> Any:
    return _PLAIN_SWAP(self, *map(_packed, (pointers, expected, value)), *rest, **options)


def _packed(handle: Any) -> Any:
    """Cells one after the other: Triton's atomics in C++ read them so, whatever their strides, before 3.9."""
    return Handle(np.require(handle.data, requirements="C"), handle.dtype)


def _constant_of(name: str) -> Callable[..., Any]:
    return lambda self, value: Handle(np.array([value]).astype(DTYPES[name]), tl.dtype(name))


_PLAIN_MERGE = interpreter.InterpreterBuilder.create_atomic_rmw
_PLAIN_SWAP = interpreter.InterpreterBuilder.create_atomic_cas
_MERGES: Mapping[str, Any] = {"FADD": np.add, "MAX": np.maximum, "MIN": np.minimum, "XCHG": lambda old, new: new}


def _recalled_type(plain: Callable[..., None]) -> Callable[..., None]:
    """The constructor of types of blocks, which takes long, once for each."""
    known: dict[Any, dict[str, Any]] = {}

    def construct(self: Any, element: Any, shape: Any) -> None:
        key = (id(element), *map(number_of, shape))  # it lives as long as what is known of it
        if key not in known:
            plain(self, element, shape)
            known[key] = {**vars(self), _FIELDS: {}}
        vars(self).update(known[key])

    return construct


def _recalled_tensor(plain: Callable[..., None]) -> Callable[..., None]:
    """The constructor of tensors: all but its handle once for each type."""

    def construct(self: Any, handle: Any, kind: Any) -> None:
        fields = vars(kind).setdefault(_FIELDS, {})
        if not fields:
            plain(self, handle, kind)
            fields.update(vars(self))
        vars(self).update(fields)
        self.handle, self.type = handle, kind

    return construct


def _broadcast(plain: Callable[..., Any], left: Any, right: Any) -> Any:
    """Two tensors in one shape: as views, which Triton's own interpreter copies. What does not fit is in its words."""
    shapes = [tuple(each.type.shape) if each.type.is_block() else () for each in (left, right)]
    if shapes[0] == shapes[1]:
        return left, right
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        return plain(left, right)
    return tuple(
        each if own == shape else tensor_of(np.broadcast_to(each.handle.data.reshape(own), shape), each.dtype)
        for each, own in zip((left, right), shapes, strict=True)
    )


_FIELDS = "_noyau_fields"
_BUILDER: Mapping[str, Any] = {
    "create_splat": _splat,
    "create_dot": _dot,
    "create_erf": _erf,
    "create_masked_load": _loaded,
    "create_masked_store": _stored,
    "create_atomic_rmw": _merged,
    "create_atomic_cas": _swapped,
    "cast_impl": _cast,
    "create_fp_to_fp": _cast,
    "create_minnumf": lambda self, left, right: self.binary_op(left, right, np.fmin),
    "create_maxnumf": lambda self, left, right: self.binary_op(left, right, np.fmax),
    **{f"get_{name}": _constant_of(name) for name in DTYPES if name.startswith(("bf", "fp8"))},
}
