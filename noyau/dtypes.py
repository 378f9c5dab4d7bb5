"""The element types of noyau: their NumPy dtypes, from whose names those of torch and Triton follow, and ONNX numbers.

float16 and bfloat16 are stored so and computed in float32. The float8 are of a kind of their own: values are cast to
them and from them, by way of float32, and moved, and nothing is computed in them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import ml_dtypes
import numpy as np

from noyau.errors import InputError


@dataclass(frozen=True, slots=True)
class Element:
    """One element type: its NumPy dtype, its number in ONNX's TensorProto, its kind."""

    numpy: np.dtype
    onnx: int
    kind: str  # "float", "float8", "int", "uint", "bool" or "other"


def _element(scalar: type, onnx: int, kind: str) -> Element:
    return Element(np.dtype(scalar), onnx, kind)


class DType(Enum):
    """An element type. `DType.F32.numpy`, `.onnx`, `.bytes`, `.kind` and `.compute` say the rest."""

    BOOL = "bool"
    I8 = "i8"
    I16 = "i16"
    I32 = "i32"
    I64 = "i64"
    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"
    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"
    F8E4M3FN = "f8e4m3fn"
    F8E4M3FNUZ = "f8e4m3fnuz"
    F8E5M2 = "f8e5m2"
    F8E5M2FNUZ = "f8e5m2fnuz"
    OTHER = "other"  # strings, sequences...: what only an Opaque makes and takes

    @property
    def numpy(self) -> np.dtype:
        return _ELEMENTS[self].numpy

    @property
    def onnx(self) -> int:
        return _ELEMENTS[self].onnx

    @property
    def bytes(self) -> int:
        return _ELEMENTS[self].numpy.itemsize

    @property
    def kind(self) -> str:
        return _ELEMENTS[self].kind

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_float8(self) -> bool:
        return self.kind == "float8"

    @property
    def is_half(self) -> bool:
        return self.is_float and self.bytes == 2

    @property
    def has_infinity(self) -> bool:
        """Whether a float has infinities: two of the float8 have none."""
        return bool(np.isinf(np.array(np.inf, np.float32).astype(self.numpy).astype(np.float32)))

    @property
    def compute(self) -> DType:
        """The type that arithmetic on this one is done in."""
        return DType.F32 if self.is_half else self

    @property
    def storage(self) -> DType:
        """The type that languages without this one keep its cells as: the bits of a short float, else itself."""
        return DType(f"u{8 * self.bytes}") if self.is_half or self.is_float8 else self


_ELEMENTS = {
    DType.BOOL: _element(np.bool_, 9, "bool"),
    DType.I8: _element(np.int8, 3, "int"),
    DType.I16: _element(np.int16, 5, "int"),
    DType.I32: _element(np.int32, 6, "int"),
    DType.I64: _element(np.int64, 7, "int"),
    DType.U8: _element(np.uint8, 2, "uint"),
    DType.U16: _element(np.uint16, 4, "uint"),
    DType.U32: _element(np.uint32, 12, "uint"),
    DType.U64: _element(np.uint64, 13, "uint"),
    DType.F16: _element(np.float16, 10, "float"),
    DType.BF16: _element(ml_dtypes.bfloat16, 16, "float"),
    DType.F32: _element(np.float32, 1, "float"),
    DType.F64: _element(np.float64, 11, "float"),
    DType.F8E4M3FN: _element(ml_dtypes.float8_e4m3fn, 17, "float8"),
    DType.F8E4M3FNUZ: _element(ml_dtypes.float8_e4m3fnuz, 18, "float8"),
    DType.F8E5M2: _element(ml_dtypes.float8_e5m2, 19, "float8"),
    DType.F8E5M2FNUZ: _element(ml_dtypes.float8_e5m2fnuz, 20, "float8"),
    DType.OTHER: _element(np.object_, 0, "other"),
}
HALVES = tuple(dtype for dtype in DType if dtype.is_half)
CELLS: tuple[DType, ...] = tuple(dtype for dtype in DType if dtype is not DType.OTHER)
_BY_NUMPY = {element.numpy: dtype for dtype, element in _ELEMENTS.items()}
_BY_ONNX = {element.onnx: dtype for dtype, element in _ELEMENTS.items()}


def from_numpy(dtype: np.dtype | type) -> DType | None:
    """The DType of a NumPy dtype, or None where noyau has none (strings, complex...)."""
    return _BY_NUMPY.get(np.dtype(dtype))


def extents_and_strides(array: np.ndarray) -> tuple[int, ...]:
    """The extents of an array, then its strides in elements, each 0 where the axis has not two cells.

    InputError where a stride is no whole number of elements."""
    size, strides = array.itemsize, []
    for extent, stride in zip(array.shape, array.strides, strict=True):
        strides.append(stride // size if extent > 1 else 0)
        if extent > 1 and stride % size:
            raise InputError(f"an array of strides {array.strides} in bytes has cells of {size} bytes; copy it first")
    return (*array.shape, *strides)


def from_number(number: int) -> DType | None:
    """The DType of the number that a kernel's table has for it, which is that of ONNX."""
    return _BY_ONNX.get(number)


def from_onnx(number: int) -> DType | None:
    """The DType of a TensorProto.DataType, or None where noyau has none. float8 is left to the runtime: there casts to
    it saturate unless they say otherwise."""
    dtype = _BY_ONNX.get(number)
    return None if dtype is not None and dtype.is_float8 else dtype
