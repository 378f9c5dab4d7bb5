"""The element types of noyau: their NumPy dtypes, from whose names those of torch and Triton follow, and ONNX numbers.

float16 and bfloat16 are types of storage: arithmetic on them is in float32. Values of the float8 types are moved, and
cast by way of float32; there is no arithmetic on them."""

from __future__ import annotations

from enum import Enum

import ml_dtypes
import numpy as np

from noyau.errors import InputError, NoyauError


class DType(Enum):
    """An element type: its name, its NumPy dtype (`DType.F32.numpy`), its number in ONNX's TensorProto (`.onnx`) and
    its `.kind`, which is "float", "float8", "int", "uint", "bool" or "other"; `.bytes` and `.compute` say the rest."""

    value: str
    numpy: np.dtype
    onnx: int
    kind: str

    def __new__(cls, name: str, scalar: type = object, onnx: int = 0, kind: str = "other") -> DType:
        member = object.__new__(cls)
        member._value_, member.numpy, member.onnx, member.kind = name, np.dtype(scalar), onnx, kind
        return member

    BOOL = "bool", np.bool_, 9, "bool"
    I8 = "i8", np.int8, 3, "int"
    I16 = "i16", np.int16, 5, "int"
    I32 = "i32", np.int32, 6, "int"
    I64 = "i64", np.int64, 7, "int"
    U8 = "u8", np.uint8, 2, "uint"
    U16 = "u16", np.uint16, 4, "uint"
    U32 = "u32", np.uint32, 12, "uint"
    U64 = "u64", np.uint64, 13, "uint"
    F16 = "f16", np.float16, 10, "float"
    BF16 = "bf16", ml_dtypes.bfloat16, 16, "float"
    F32 = "f32", np.float32, 1, "float"
    F64 = "f64", np.float64, 11, "float"
    F8E4M3FN = "f8e4m3fn", ml_dtypes.float8_e4m3fn, 17, "float8"
    F8E4M3FNUZ = "f8e4m3fnuz", ml_dtypes.float8_e4m3fnuz, 18, "float8"
    F8E5M2 = "f8e5m2", ml_dtypes.float8_e5m2, 19, "float8"
    F8E5M2FNUZ = "f8e5m2fnuz", ml_dtypes.float8_e5m2fnuz, 20, "float8"
    OTHER = "other"  # strings, sequences...: only an Opaque produces and consumes them

    @property
    def bytes(self) -> int:
        return int(self.numpy.itemsize)

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
        """The dtype in which arithmetic on this one is done."""
        return DType.F32 if self.is_half else self

    @property
    def storage(self) -> DType:
        """The storage type in languages without this one: the unsigned integer of a short float's bits, else itself."""
        return DType(f"u{8 * self.bytes}") if self.is_half or self.is_float8 else self


HALVES = tuple(dtype for dtype in DType if dtype.is_half)
CELLS: tuple[DType, ...] = tuple(dtype for dtype in DType if dtype is not DType.OTHER)
_BY_NUMPY = {dtype.numpy: dtype for dtype in DType}
_BY_ONNX = {dtype.onnx: dtype for dtype in DType}


def from_numpy(dtype: np.dtype | type) -> DType | None:
    """The DType of a NumPy dtype, or None where noyau has none (strings, complex...)."""
    return _BY_NUMPY.get(np.dtype(dtype))


def of_array(array: np.ndarray) -> DType:
    """The DType of an array whose dtype noyau is known to have."""
    dtype = from_numpy(array.dtype)
    assert dtype is not None, array.dtype
    return dtype


def dtype_called(name: str, error: type[NoyauError]) -> DType:
    """The dtype of that name; the error where there is none."""
    names = [dtype.value for dtype in CELLS]
    if name not in names:
        raise error(f"there is no dtype {name!r}; the dtypes are: {', '.join(names)}")
    return DType(name)


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
    """The DType of its number in a kernel's table, which is ONNX's."""
    return _BY_ONNX.get(number)


def from_onnx(number: int) -> DType | None:
    """The DType of a TensorProto.DataType, or None where noyau has none. None for float8 too: ONNX's casts to it
    saturate by default, so that the runtime keeps them."""
    dtype = _BY_ONNX.get(number)
    return None if dtype is not None and dtype.is_float8 else dtype
