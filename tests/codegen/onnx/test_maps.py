"""Scalar functions as ONNX operators: every one in every dtype, on what is special and on what is usual."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from noyau.codegen.onnx.maps import SPELLINGS
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.graph import Constant, Graph, Input, Map, Node, View
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.operators import OPERATORS, dtype_of
from tests.hosts.spelled import N, by_onnxruntime, by_the_reference, function_graph, operators, results, spelled

DTYPES = [dtype for dtype in DType if dtype is not DType.OTHER and not dtype.is_float8]
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-3, -1e-3, 1e-6, 0.999, 1.001, 7, 3]
SPECIAL += [20, -20, 88, -88, 100, -100]
# What onnxruntime computes with a larger error, relative to 1, than the table promises.
ABSOLUTE = {"sin", "cos", "tan"}
REFUSED = {"asin", "acos", "atan", "atan2", "erf"}, {"divide", "floor_divide", "floor_mod", "fmod"}


def cells(dtype: DType, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype is DType.BOOL:
        return rng.integers(0, 2, 240).astype(bool)
    if dtype.is_float:
        info = ml_dtypes.finfo(dtype.numpy)
        ends = [float(info.tiny), -float(info.tiny), float(info.max), -float(info.max)]
        drawn = [rng.standard_normal(70), rng.uniform(-1, 1, 70), rng.uniform(-30, 30, 71)]
        return rng.permutation(np.concatenate([SPECIAL, ends, *drawn]))[:240].astype(dtype.numpy)
    info = np.iinfo(dtype.numpy)
    ends = [0, 1, 2, 3, 5, 7, info.max, info.min, info.max - 1, info.max // 2, *([-1, -7] if info.min else [9, 4])]
    middle = [int(each) for each in rng.integers(2**31, 2**33, 24)] if dtype.bytes == 8 else []
    drawn = [int(each) for each in rng.integers(0, 20, 240 - len(ends) - len(middle))]
    return rng.permutation(np.array([*ends, *middle, *drawn], object)).astype(dtype.numpy)


def operands(name: str, dtype: DType) -> dict[str, np.ndarray]:
    kinds = [DType.BOOL, dtype, dtype] if name == "where" else [dtype] * OPERATORS[name].arity
    made = {f"x{at}": cells(kind, at) for at, kind in enumerate(kinds)}
    if name in REFUSED[1] and not dtype.is_float:  # what is undefined, and the least by -1
        undefined = (made["x1"] == 0) | (made["x1"].astype(np.int64) == -1)
        made["x1"] = np.where(undefined, 3, made["x1"]).astype(dtype.numpy)
    return made


def beyond(name: str, got: np.ndarray, truth: np.ndarray, plain: np.ndarray) -> np.ndarray:
    """Cells that are neither the truth nor near it."""
    if got.dtype.kind not in "fV":
        return (got != truth) & (got != plain)
    with np.errstate(all="ignore"):
        wide, info = got.astype(np.float64), ml_dtypes.finfo(got.dtype)
        want = truth.astype(got.dtype).astype(np.float64)
        same = (wide == want) | (np.isnan(wide) & np.isnan(want)) | (got == plain)
        scale = np.maximum(np.abs(want), 1.0 if name in ABSOLUTE else 0.0)
        allowed = 8 * float(info.eps) * scale + 1e-4 * float(info.tiny)
        allowed = allowed * (1 + np.abs(want)) if name == "tan" else allowed
        return ~same & ~(np.abs(wide - want) <= allowed)


def is_refused(name: str, dtype: DType) -> bool:
    in_double = name in REFUSED[0] and dtype is DType.F64
    return in_double or (name in REFUSED[1] and dtype is DType.U64) or (name == "power" and not dtype.is_float)


@pytest.mark.parametrize("run", [by_onnxruntime, by_the_reference])
@pytest.mark.parametrize("name", [name for name in OPERATORS if name != "cast"])
def test_every_function_in_every_dtype(name, run):
    for dtype in DTYPES:
        if dtype.kind not in OPERATORS[name].accepts or is_refused(name, dtype):
            continue
        kinds = [DType.BOOL, dtype, dtype] if name == "where" else [dtype] * OPERATORS[name].arity
        graph = function_graph(Map(name), kinds, dtype_of(name, tuple(kinds)))
        arrays = operands(name, dtype)
        got = results(graph, arrays, run)["y"]
        plain, truth = evaluate(graph, arrays)["y"], evaluate(graph, arrays, wide=True)["y"]
        assert got.dtype == plain.dtype
        wrong = np.nonzero(beyond(name, got, truth, plain))[0]
        told = [(*(each[at] for each in arrays.values()), got[at], truth[at]) for at in wrong[:3]]
        assert not told, f"{dtype.value}: {told}: operands, result, truth"


@pytest.mark.parametrize("dtype", [DType.F16, DType.F32, DType.F64])
def test_a_cube_root_keeps_the_sign_of_zero(dtype):
    values = np.array([0.0, -0.0, -8, 27], dtype.numpy)
    got = results(function_graph(Map("cbrt"), [dtype], dtype), {"x0": values}, by_onnxruntime)["y"]
    assert np.signbit(got).tolist() == [False, True, True, False]


@pytest.mark.parametrize("target", DTYPES)
def test_casts(target):
    for source in DTYPES:
        drawn = np.random.default_rng(0).integers(0, 100, 50) if source is not DType.BOOL else np.arange(50) % 2
        arrays = {"x0": (drawn + 0.75 * source.is_float).astype(source.numpy)}
        graph = function_graph(Map("cast"), [source], target)
        for run in (by_onnxruntime, by_the_reference):
            got = results(graph, arrays, run)["y"]
            assert got.tobytes() == evaluate(graph, arrays)["y"].tobytes(), source


def test_what_has_no_spelling_is_named():
    for name in sorted(REFUSED[0]):
        with pytest.raises(
            UnsupportedError, match=f"^y: {name} of f64 has no kernel in onnxruntime: calculate it in f32"
        ):
            spelled(function_graph(Map(name), [DType.F64] * OPERATORS[name].arity, DType.F64))
    for name in sorted(REFUSED[1]):
        with pytest.raises(
            UnsupportedError, match=f"^y: {name} of u64 has no kernel in onnxruntime: calculate it in i64"
        ):
            spelled(function_graph(Map(name), [DType.U64] * 2, DType.U64))
    with pytest.raises(UnsupportedError, match=r"^y: a power of integers has no ONNX operator .*: fix the exponent"):
        spelled(function_graph(Map("power"), [DType.I32] * 2, DType.I32))


@pytest.mark.parametrize("dtype", [DType.I8, DType.U8, DType.I64, DType.U64])
@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 7, 13])
def test_powers_of_integers_by_a_number(dtype, exponent):
    number = Node("e", Constant(np.array(exponent, dtype.numpy)), (), dtype, ())
    spread = Node("e~0", View(()), ("e",), dtype, (N,))
    power = Node("y", Map("power"), ("x0", "e~0"), dtype, (N,))
    graph = Graph((Node("x0", Input(), (), dtype, (N,)), number, spread, power), ("y",))
    arrays = {"x0": cells(dtype, 0)}
    assert results(graph, arrays, by_onnxruntime)["y"].tobytes() == evaluate(graph, arrays)["y"].tobytes()


def test_every_function_of_the_table_has_a_spelling_or_is_one_of_a_few():
    others = {name for name in OPERATORS if name not in SPELLINGS}
    assert others == {
        "identity",
        "rounded",
        "where",
        "cast",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "bitwise_not",
    } | {
        "shift_left",
        "shift_right",
    }


@pytest.mark.parametrize(("name", "operator"), [("exp", "Exp"), ("add", "Add"), ("less", "Less"), ("tanh", "Tanh")])
def test_plain_functions_are_one_operator(name, operator):
    kinds = [DType.F32] * OPERATORS[name].arity
    assert operators(function_graph(Map(name), kinds, dtype_of(name, tuple(kinds)))) == [operator]


def test_short_floats_are_computed_in_float32():
    assert operators(function_graph(Map("exp"), [DType.BF16], DType.BF16)) == ["Cast", "Exp", "Cast"]
