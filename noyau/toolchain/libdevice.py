"""CUDA's libdevice without a GPU: its functions on arrays of NumPy, by their names without `__nv_`.

A function of floats computes in float64 or longer, and its caller rounds the result once. A function of integers or
bits gives the dtype that its name implies. Triton's names (`add_rn`) and those of Numba (`dadd_rn`, `fadd_rn`) are both
known. Source of names and meanings: the CUDA Libdevice User's Guide."""

import ctypes
import math
import operator
import re
from collections.abc import Callable, Mapping
from ctypes.util import find_library
from fractions import Fraction
from functools import cache, partial
from statistics import NormalDist
from typing import Any

import numpy as np

from noyau.ir.operators import OPERATORS

Function = Callable[..., Any]
_WORD = np.uint64(32)  # bits
_TYPES = {
    "float": np.float32, "double": np.float64, "half": np.float16,
    "int": np.int32, "uint": np.uint32, "ll": np.int64, "longlong": np.int64, "ull": np.uint64,
}  # fmt: skip
_CONVERSION = re.compile(r"(double|float|half|int|uint|ll|ull)2(double|float|half|int|uint|ll|ull)(?:_r([nduz]))?")
_BITS = re.compile(r"(double|float|int|uint|longlong)_as_(double|float|int|uint|longlong)")
_ARITHMETIC = re.compile(r"([df]?)(add|sub|mul|div|sqrt|rcp|rsqrt|fma)f?_r([nduz])")


@cache
def function_of(name: str) -> Function | None:
    """The function of a name on arrays of one shape; None for an unknown name."""
    if match := _CONVERSION.fullmatch(name):
        return _conversion(_TYPES[match[2]], match[3] or ("n" if match[2] in ("float", "double", "half") else "z"))
    if match := _BITS.fullmatch(name):
        source, target = _TYPES[match[1]], _TYPES[match[2]]
        return lambda x: np.asarray(x, source).view(target)
    if match := _ARITHMETIC.fullmatch(name):
        return _round_directed(_EXACT[match[2]], match[3])
    plain = name.removeprefix("fast_")
    for each in (plain, plain.removesuffix("f"), plain.removesuffix("ll")):
        if each in _FUNCTIONS:
            return _FUNCTIONS[each]
    return _of_libm(plain, plain.removesuffix("f"))


def _of_libm(*names: str) -> Function | None:
    """A function of doubles of the C library, applied to each cell."""
    name = next((each for each in names if each in _LIBM), None)
    if name is None:
        return None
    function = getattr(ctypes.CDLL(find_library("m") or "libm.so.6"), name)
    function.argtypes = [ctypes.c_int if each == "n" else ctypes.c_double for each in _LIBM[name]]
    function.restype = ctypes.c_double
    casts = [int if each == "n" else float for each in _LIBM[name]]
    return _by_cell(lambda *cells: function(*(cast(cell) for cast, cell in zip(casts, cells, strict=True))))


def _by_cell(function: Function) -> Function:
    return np.vectorize(function, otypes=[np.float64])


_LIBM = {
    **dict.fromkeys(("lgamma", "tgamma", "j0", "j1", "y0", "y1", "exp10", "logb"), "x"),
    **dict.fromkeys(("jn", "yn"), "nx"),
    **dict.fromkeys(("fma",), "xyz"),
}  # parameters: n is an int, the others are doubles


# Roundings.


def _round_directed(exact: Callable[..., Fraction], direction: str) -> Function:
    """An operation rounded once to the dtype of its operands: to nearest, downwards, upwards or towards zero."""

    def evaluate(*operands: Any) -> np.ndarray:
        dtype = np.result_type(*operands)
        dtype = dtype if dtype.kind == "f" else np.dtype(np.float64)

        def of_cell(*cells: Any) -> Any:
            try:
                return _round_to(exact(*map(Fraction, map(float, cells))), dtype, direction)
            except (ArithmeticError, ValueError):  # an infinity, a NaN, a division by zero, a root of less than zero
                return dtype.type(_AS_FLOATS[exact](*map(np.float64, cells)))

        with np.errstate(all="ignore"):
            return np.asarray(np.vectorize(of_cell, otypes=[dtype])(*operands))

    return evaluate


def _round_to(exact: Fraction, dtype: np.dtype, direction: str) -> Any:
    """Round an exact value to a dtype in a direction: to one of its neighbours."""
    near = dtype.type(float(exact))
    cells = [near, np.nextafter(near, dtype.type(-np.inf)), np.nextafter(near, dtype.type(np.inf))]
    finite = [cell for cell in cells if np.isfinite(cell)]
    below, above = [cell for cell in finite if float(cell) <= exact], [cell for cell in finite if float(cell) >= exact]
    if direction == "z":
        direction = "d" if exact > 0 else "u"
    if direction == "n":
        return near if not np.isfinite(near) else min(finite, key=lambda cell: abs(Fraction(float(cell)) - exact))
    return max(below, default=dtype.type(-np.inf)) if direction == "d" else min(above, default=dtype.type(np.inf))


def _root(x: Fraction) -> Fraction:
    """A square root to 300 fractional bits, which rounds to 53 bits as the exact one does."""
    return Fraction(math.isqrt(int(x * (1 << 600))), 1 << 300)


_EXACT: dict[str, Callable[..., Fraction]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "sqrt": _root,
    "rcp": lambda x: 1 / x, "rsqrt": lambda x: 1 / _root(x), "fma": lambda x, y, z: x * y + z,
}  # fmt: skip
_AS_FLOATS: dict[Callable[..., Fraction], Function] = {
    operator.truediv: np.divide, _root: np.sqrt, _EXACT["rcp"]: np.reciprocal,
    _EXACT["rsqrt"]: lambda x: 1 / np.sqrt(x), **{_EXACT[each]: _EXACT[each] for each in ("add", "sub", "mul", "fma")},
}  # fmt: skip
_WHOLE = {"n": np.rint, "d": np.floor, "u": np.ceil, "z": np.trunc}


def _conversion(target: Any, direction: str) -> Function:
    """A cast. Values beyond an integer's range become its nearest end, and NaN 0; CUDA's cvt saturates in the same
    way."""

    def convert(x: Any) -> np.ndarray:
        array = np.asarray(x)
        if np.issubdtype(target, np.floating):
            dtype = np.dtype(target)
            numbers = array.ravel().tolist()
            cells = [_round_to(Fraction(x), dtype, direction) if math.isfinite(x) else x for x in numbers]
            return np.array(cells, dtype).reshape(array.shape)
        limits, wide = np.iinfo(target), array.astype(np.longdouble)
        whole = np.where(np.isnan(wide), 0, _WHOLE[direction](wide))
        inside = np.clip(whole, limits.min, limits.max)  # with a mantissa of 64 bits: every int64 fits
        return inside.astype(target)

    return convert


# Functions that the C library lacks, or defines otherwise.


def _erfinv(y: float) -> float:
    """The inverse of erf: from the normal distribution, with two Newton steps, since its tails lack digits."""
    if not -1 < y < 1:
        return y * np.inf if abs(y) == 1 else np.nan
    x = NormalDist().inv_cdf((y + 1) / 2) / np.sqrt(2) if abs(y) > 1e-8 else y * np.sqrt(np.pi) / 2
    for _ in range(2):
        x -= (math.erf(x) - y) * np.sqrt(np.pi) / 2 * np.exp(min(x * x, 700.0))
    return float(x)


_erfc = _by_cell(math.erfc)


def _normcdfinv(p: float) -> float:
    return NormalDist().inv_cdf(p) if 0 < p < 1 else {0.0: -np.inf, 1.0: np.inf}.get(p, np.nan)


def _erfcx(x: Any) -> Any:
    """exp(x^2) erfc(x); for large x by its asymptotic series, where the product is infinity times zero."""
    x = np.asarray(x, np.float64)
    far = np.maximum(x, 25.0)
    series = (1 - 0.5 / far**2 + 0.75 / far**4 - 1.875 / far**6) / (far * np.sqrt(np.pi))
    return np.where(x < 25, np.exp(np.minimum(x * x, 700.0)) * _erfc(x), series)


def _half_turn(wave: Function) -> Function:
    """sinpi and cospi: of pi times the argument, reduced by whole turns first."""
    return lambda x: wave(np.pi * np.remainder(np.asarray(x, np.float64), 2))


def _bessel_i(order: int) -> Function:
    """The modified Bessel functions of order 0 and 1: the mean of their integrand over a turn."""

    def evaluate(x: Any) -> np.ndarray:
        turn = np.cos(np.arange(2048) * (2 * np.pi / 2048))
        return np.asarray(np.mean(np.exp(np.multiply.outer(np.asarray(x, np.float64), turn)) * turn**order, axis=-1))

    return evaluate


def _norm(*parts: Any) -> Any:
    return np.sqrt(sum(np.asarray(part, np.float64) ** 2 for part in parts))


def _remquo(x: Any, y: Any) -> tuple[Any, Any]:
    quotient = np.rint(np.asarray(x, np.longdouble) / y)
    return np.asarray(x) - quotient * y, quotient.astype(np.int32)


# Functions of an integer's bit pattern, as an unsigned number, and of its number of bits.
OF_PATTERNS: Mapping[str, Callable[[int, int], int]] = {
    "popc": lambda pattern, bits: pattern.bit_count(),
    "clz": lambda pattern, bits: bits - pattern.bit_length(),
    "ffs": lambda pattern, bits: (pattern & -pattern).bit_length(),
    "brev": lambda pattern, bits: int(format(pattern, f"0{bits}b")[::-1], 2),
}


def _of_patterns(name: str) -> Function:
    """A function of bit patterns on arrays; all but the reversed pattern give counts."""
    function = OF_PATTERNS[name]

    def evaluate(x: Any) -> np.ndarray:
        size = np.asarray(x).dtype.itemsize
        pattern = np.asarray(x).view(f"u{size}")
        kind = pattern.dtype if name == "brev" else np.int32
        return np.asarray(np.vectorize(lambda cell: function(int(cell), 8 * size), otypes=[kind])(pattern))

    return evaluate


def _high(x: Any, y: Any) -> np.ndarray:
    """The upper half of a product of integers."""
    dtype = np.asarray(x).dtype
    product = np.vectorize(lambda a, b: int(a) * int(b) >> 8 * dtype.itemsize, otypes=[object])
    return np.asarray(product(x, y)).astype(dtype)


def _byte_perm(x: Any, y: Any, selector: Any) -> np.ndarray:
    def permute(a: int, b: int, s: int) -> int:
        source = (int(a) & 0xFFFFFFFF) | (int(b) & 0xFFFFFFFF) << 32
        chosen = [source >> 8 * (int(s) >> 4 * i & 7) & 255 for i in range(4)]
        return int.from_bytes(bytes(chosen), "little")

    return np.asarray(np.vectorize(permute, otypes=[np.uint32])(x, y, selector)).view(np.int32)


def _hiloint2double(high: Any, low: Any) -> np.ndarray:
    word = np.asarray(high, np.int32).view(np.uint32).astype(np.uint64) << _WORD
    return (word | np.asarray(low, np.int32).view(np.uint32)).view(np.float64)


def _away(x: Any) -> Any:
    """Round to nearest; halves go away from zero."""
    return np.trunc(np.asarray(x, np.float64) + np.copysign(0.49999999999999994, x))


def _24(x: Any) -> Any:
    """The 24 low bits of an int, sign-extended."""
    return np.asarray(x, np.int32) << 8 >> 8


def _in_64(function: Function) -> Function:
    """A function of 32-bit integers that needs 64 bits for intermediate values."""
    wide = partial(np.asarray, dtype=np.int64)
    return lambda *x: np.asarray(function(*map(wide, x))).astype(np.asarray(x[0]).dtype)


def _whole(rounding: Function) -> Function:
    return lambda x: np.asarray(rounding(x)).astype(np.int64)


_ALIKE = """abs cbrt ceil copysign cos cosh exp exp2 expm1 floor fmax fmin fmod hypot isinf isnan ldexp log log10 log1p
    log2 nextafter rint signbit sin sinh sqrt tan tanh trunc""".split()  # in NumPy
_FUNCTIONS: dict[str, Function] = {
    **{each: getattr(np, each) for each in _ALIKE},
    **{f"a{each}": getattr(np, f"arc{each}") for each in ("cos", "cosh", "sin", "sinh", "tan", "tanh")},
    **dict.fromkeys(("fabs", "llabs"), np.abs),
    **dict.fromkeys(("max", "llmax", "umax", "ullmax"), np.maximum),
    **dict.fromkeys(("min", "llmin", "umin", "ullmin"), np.minimum),
    **dict.fromkeys(("isnand", "isnanf"), np.isnan),
    **dict.fromkeys(("isinfd", "isinff"), np.isinf),
    **dict.fromkeys(("isfinited", "finite"), np.isfinite),
    **dict.fromkeys(("signbitd", "signbitf"), np.signbit),
    **dict.fromkeys(("fdividef", "dividef", "fdivide"), np.divide),
    **dict.fromkeys(("pow", "powi"), np.power),
    "atan2": np.arctan2, "nearbyint": np.rint, "scalbn": np.ldexp,
    "sinpi": _half_turn(np.sin), "cospi": _half_turn(np.cos),
    "sincos": lambda x: (np.sin(x), np.cos(x)),
    "sincospi": lambda x: (_half_turn(np.sin)(x), _half_turn(np.cos)(x)),
    "frexp": np.frexp, "modf": np.modf, "remquo": _remquo, "remainder": lambda x, y: _remquo(x, y)[0],
    "ilogb": lambda x: np.frexp(x)[1] - 1,
    "rsqrt": lambda x: 1 / np.sqrt(np.asarray(x, np.float64)),
    "rcbrt": lambda x: 1 / np.cbrt(np.asarray(x, np.float64)),
    "norm3d": _norm, "norm4d": _norm, "rnorm3d": lambda *x: 1 / _norm(*x), "rnorm4d": lambda *x: 1 / _norm(*x),
    "rhypot": lambda x, y: 1 / _norm(x, y),
    "fdim": lambda x, y: np.where(np.isnan(x) | np.isnan(y), np.nan, np.maximum(np.asarray(x, np.float64) - y, 0)),
    "saturate": lambda x: np.clip(np.nan_to_num(x, nan=0.0, posinf=np.inf, neginf=-np.inf), 0, 1),
    "erf": OPERATORS["erf"].evaluate, "erfc": _erfc, "erfinv": _by_cell(_erfinv), "erfcx": _erfcx,
    "erfcinv": _by_cell(lambda y: -_normcdfinv(y / 2) / np.sqrt(2)),
    "normcdf": lambda x: _erfc(-np.asarray(x, np.float64) / np.sqrt(2)) / 2, "normcdfinv": _by_cell(_normcdfinv),
    "cyl_bessel_i0": _bessel_i(0), "cyl_bessel_i1": _bessel_i(1),
    "round": _away, "llround": _whole(_away), "llrint": _whole(np.rint),
    **{each: _of_patterns(each) for each in OF_PATTERNS},
    **dict.fromkeys(("mulhi", "mul64hi", "umulhi", "umul64hi"), _high),
    "mul24": lambda x, y: _24(x) * _24(y),
    "umul24": lambda x, y: (np.asarray(x) & 0xFFFFFF) * (np.asarray(y) & 0xFFFFFF),
    **dict.fromkeys(("hadd", "uhadd"), _in_64(lambda x, y: (x + y) >> 1)),
    **dict.fromkeys(("rhadd", "urhadd"), _in_64(lambda x, y: (x + y + 1) >> 1)),
    **dict.fromkeys(("sad", "usad"), _in_64(lambda x, y, z: abs(x - y) + z)),
    "rcp64h": lambda x: (np.reciprocal(np.asarray(x, np.float64)).view(np.uint64) >> _WORD << _WORD).view(np.float64),
    "byte_perm": _byte_perm, "hiloint2double": _hiloint2double,
    "double2hiint": lambda x: (np.asarray(x, np.float64).view(np.uint64) >> _WORD).astype(np.uint32).view(np.int32),
    "double2loint": lambda x: np.asarray(x, np.float64).view(np.uint64).astype(np.uint32).view(np.int32),
}  # fmt: skip
