from __future__ import annotations

import itertools

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.numpy.tape import NUMPY_1
from noyau.frontends.numpy.ufuncs import SAME
from tests.frontends.numpy.traces import agrees, found, traced_only, x

DTYPES = ("bool", "int8", "int32", "int64", "uint8", "uint64", "float16", "float32", "float64")
NAMES = sorted({name for name in (*SAME, "square", "isfinite") if hasattr(np, name)})


def takes(ufunc: np.ufunc, *kinds) -> bool:
    """Whether NumPy has a loop for these, of dtypes that noyau has."""
    try:
        loop = ufunc.resolve_dtypes((*kinds, None))
    except TypeError:
        return False
    return all(dtype.kind in "biuf" for dtype in loop)


def _mixed(ufunc: np.ufunc, kinds) -> bool:
    """Whether NumPy compares int64 with uint64, which is refused."""
    loop = ufunc.resolve_dtypes((*kinds, None))
    return len(set(loop[: ufunc.nin])) > 1


def numbers(dtype: str, seed: int, name: str) -> np.ndarray:
    array = x(2, 3, dtype=dtype, seed=seed)
    if "shift" in name:
        array = np.abs(array) % 5
    if seed and ("divide" in name or name in ("mod", "remainder", "fmod", "power", "pow", "float_power")):
        array = np.where(array == 0, 1, np.abs(array))
    return np.asarray(array).astype(dtype)


@pytest.mark.parametrize("name", NAMES)
def test_each_ufunc_gives_the_dtype_and_the_values_of_numpy(name):
    ufunc = getattr(np, name)
    for dtypes in itertools.product(DTYPES, repeat=ufunc.nin):
        if not takes(ufunc, *map(np.dtype, dtypes)):
            continue
        if name == "reciprocal" and np.dtype(dtypes[0]).kind != "f":
            continue  # of integers 1 / 0 is undefined
        if name in ("power", "pow") and np.dtype(dtypes[1]).kind == "i":
            continue  # NumPy refuses negative ones when it runs
        if _mixed(ufunc, map(np.dtype, dtypes)):
            continue
        with np.errstate(all="ignore"):
            agrees(ufunc, *(numbers(dtype, seed, name) for seed, dtype in enumerate(dtypes)))


@pytest.mark.parametrize("name", ["add", "multiply", "divide", "maximum", "less", "power", "floor_divide"])
@pytest.mark.parametrize("number", [2, 2.5, np.float64(2.5), np.float32(2.5), np.int8(3), True])
def test_python_numbers_are_weak_and_numpy_s_are_not(name, number):
    ufunc = getattr(np, name)
    for dtype in DTYPES:
        kind = type(number) if type(number) in (int, float) else np.asarray(number).dtype
        if takes(ufunc, np.dtype(dtype), kind) and not _mixed(ufunc, (np.dtype(dtype), kind)):
            with np.errstate(all="ignore"):
                agrees(lambda a: ufunc(a, number), numbers(dtype, 0, name))


@pytest.mark.parametrize("dtype", ["i4", "u1", "i8"])
def test_an_integer_divided_by_0_is_0(dtype):
    with np.errstate(all="ignore"):
        agrees(
            lambda a, b: (a // b, np.divmod(a, b)[0], a // 2), np.array([5, 7, 0], dtype), np.array([0, 2, 0], dtype)
        )


def test_arrays_of_0_axes_and_known_arrays():
    agrees(lambda a, b: a * b + np.float64(3), x(2, 3), x())
    agrees(lambda a: a + np.arange(3), x(2, 3))


def test_sizes_are_integers():
    agrees(lambda a: a * a.shape[1] + a.shape[0] // 2, x(2, 3))
    agrees(lambda a: a / a.shape[-1], x(2, 3))


def test_operators():
    agrees(lambda a, b: (-a + b * 2 - 1) / (abs(a) + 1) ** 2 % 3, x(2, 3), x(3))
    agrees(lambda a: ((a > 0) ** 2 + a, (a > 0).any() ** 2 + a[0]), x(3, dtype=np.int8))  # of a scalar it is no int8
    agrees(lambda a, b: (a > 0) & ~(b <= a) | (a == b) ^ (a != 1), x(2, 3), x(3))
    agrees(lambda a: 1 - a, x(2, 3))
    agrees(lambda a: 2.0**a, x(2, 3))
    agrees(lambda a: (a << 2) >> 1, x(2, 3, dtype=np.int32))


def test_a_dtype_may_be_asked_for():
    agrees(lambda a: np.add(a, 1, dtype=np.float64), x(2, 3))


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (
            lambda a: np.nextafter(a, a),
            "np.nextafter is not among the ufuncs that are traced: there is no function of the",
        ),
        (lambda a: np.add.reduceat(a, a[0]), "np.add.reduceat is traced for places that are known"),
        (lambda a: np.hypot.reduce(a), "np.hypot.reduce is not among"),
        (lambda a: np.add(a, a, where=a > 0), "np.add with where= leaves cells unset; give it out=, or use np.where"),
        (lambda a: np.exp(a > 0, casting="no"), "np.exp is traced without casting="),
        (lambda a: np.bitwise_and(a, 1), "np.bitwise_and does not take these"),
        (lambda a: a + 1j, "np.add does not take these|no dtype"),
    ],
)
def test_what_is_not_traced(function, told):
    with pytest.raises(UnsupportedError, match=told):
        traced_only(function, x(2, 3))


def test_casts_are_nodes():
    graph = agrees(lambda a, b: a + b, x(3), x(3, dtype=np.float64))
    assert [node.dtype for node in graph.nodes].count(DType.F64) >= 3


@pytest.mark.parametrize("compare", [np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal])
def test_comparisons_that_no_dtype_holds(compare):
    for number in (300, -1, 2**70, -(2**70)):
        agrees(lambda a, k=number: compare(a, k) | compare(k, a), np.array([0, 255, 7], np.uint8))
    signed, unsigned = np.array([-1, 5, 2**62, 3]), np.array([2**64 - 1, 5, 2**62, 4], np.uint64)
    agrees(lambda a, b: (compare(a, b), compare(b, a)), signed, unsigned)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_powers_as_the_operator_has_them():
    numbers = np.array([-0.0, 0.0, 4.0, np.inf, -np.inf, -1.0])
    agrees(lambda a: (a**2, a**0.5, a**-1, a**1, a**0), numbers)
    agrees(lambda a: (a**2, a**3, a**2.0, a**True, np.power(a, 2)), numbers > 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_have_the_dtypes_of_the_installed_numpy(dtype):
    """Before NumPy 2 the dtype hangs on the number, and on the size, which calls with others are told by."""
    a = np.ones((3, 200), dtype)
    for number in (200, 70_000, np.int64(7), np.float64(2.5), np.uint8(200), 1e5):
        if NUMPY_1 or a.dtype.kind == "f" or number < 100:  # NumPy 2 refuses what a dtype does not hold
            found(lambda a, k=number: np.where(a > 0, a, k), a)
        if takes(np.add, a.dtype, np.asarray(number).dtype) and np.can_cast(np.min_scalar_type(number), a.dtype):
            found(lambda a, k=number: (a + k, a / k, a[0, 0] + k), a)
    found(lambda a: (a / a.shape[0], a / a.shape[1]), a)
    found(lambda a: a * (a.shape[0] - 5), np.ones((3, 2), "f4" if dtype[0] == "u" else dtype))


@pytest.mark.skipif(not NUMPY_1, reason="since NumPy 2 no dtype hangs on a number")
def test_a_dtype_that_hangs_on_a_number_in_an_array_is_none():
    for function in (lambda a, z: a * z, lambda a, z: np.where(a > 0, a, z), lambda a, z: a / a[z > 0].size):
        with pytest.raises(
            UnsupportedError, match="before NumPy 2 its dtype hangs on the number in an array of no axes"
        ):
            found(function, x(2, 3, dtype=np.float16), x(dtype=np.int64))
    large = np.ones((70_000, 1), np.float32)
    assert found(lambda a: a * a.shape[0], large[:9]).graph.demands != found(lambda a: a * len(a), large).graph.demands


def test_methods_of_ufuncs():
    agrees(lambda a: np.add.accumulate(a) + np.maximum.accumulate(a, axis=1) + np.minimum.accumulate(a), x(3, 4))
    agrees(lambda a: np.logaddexp.reduce(a, axis=1) + np.logaddexp.reduce(a.astype(np.int32), 1), x(3, 4))
    agrees(lambda a: np.fmax.reduce(np.sqrt(a), 1) + np.fmin.reduce(a, 1), np.abs(x(3, 4)))
    agrees(lambda a, b: np.subtract.outer(a, b) * np.less.outer(a, b), x(3), x(2, 2))


def test_results_where_they_are_wanted():
    def put(a):
        out = np.zeros(a.shape)
        np.add(a, 1, out)
        np.sqrt(a, where=a > 0, out=out)
        low, high = np.modf(a, out=(np.empty_like(a), np.empty_like(a)))
        return out, low, high

    agrees(put, x(3, 4))
