"""A function traced with names for sizes, and evaluated beside NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from noyau.dtypes import DType, from_numpy
from noyau.frontends.numpy.trace import Trace, follow, trace_shapes
from noyau.ir.dims import shape_of
from noyau.ir.graph import Graph, Input, Node
from noyau.ir.graph_interpreter import evaluate


def newer(release: str) -> pytest.MarkDecorator:
    """A mark of tests of what NumPy has since a release."""
    missing = np.lib.NumpyVersion(np.__version__) < release
    return pytest.mark.skipif(missing, reason=f"before {release} NumPy has it not")


def x(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    """Numbers of either sign, some of them equal; integers within 9 of 0."""
    rng = np.random.default_rng([seed, len(shape)])
    drawn = rng.standard_normal(shape) if np.dtype(dtype).kind == "f" else rng.integers(-9, 9, shape)
    return np.asarray(drawn).astype(dtype)


def value(name: str, array: np.ndarray, *, named: bool) -> Node:
    """An Input node for an array; each extent but 1 has a name, the same for the same extent."""
    dims = [f"s{extent}" if named and extent != 1 else extent for extent in array.shape]
    dtype = from_numpy(array.dtype)
    assert dtype is not None
    return Node(name, Input(), (), dtype, shape_of(dims))


def traced(function: Callable[..., Any], *arrays: np.ndarray, **constants: Any) -> tuple[Graph, list[np.ndarray]]:
    """The graph, whose sizes are names, and what NumPy gives."""
    returned = function(*(array.copy() for array in arrays), **constants)
    wanted = [np.asarray(each) for each in (returned if isinstance(returned, tuple) else (returned,))]
    inputs = [value(f"x{k}", array, named=True) for k, array in enumerate(arrays)]
    results = [value(f"y{k}", array, named=False) for k, array in enumerate(wanted)]
    return follow(function, inputs, results, constants).graph, wanted


def agrees(function: Callable[..., Any], *arrays: np.ndarray, **constants: Any) -> Graph:
    """The graph, once it gives what NumPy does: the same dtypes and shapes, values within rounding."""
    graph, wanted = traced(function, *arrays, **constants)
    got = evaluate(graph, {f"x{k}": array for k, array in enumerate(arrays)})
    for one, other in zip(got.values(), wanted, strict=True):
        assert_like(one, other)
    return graph


def found(function: Callable[..., Any], *arrays: np.ndarray, **constants: Any) -> Trace:
    """What a trace for arrays of these very shapes finds, once it gives what NumPy does. Arguments stay as they are."""
    with np.errstate(all="ignore"):
        returned = function(*(array.copy() for array in arrays), **constants)
    given = {f"x{k}": array for k, array in enumerate(arrays)}
    made = trace_shapes(function, {name: (dtype_of(a), a.shape) for name, a in given.items()}, constants)
    wanted = [np.asarray(each) for each in (returned if isinstance(returned, tuple | list) else (returned,))]
    for one, other in zip(evaluate(made.graph, given).values(), wanted, strict=True):
        assert_like(one, other)
    return made


def dtype_of(array: np.ndarray) -> DType:
    dtype = from_numpy(array.dtype)
    assert dtype is not None
    return dtype


def assert_like(got: np.ndarray, wanted: np.ndarray) -> None:
    """The same dtype and shape, and values within rounding."""
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    if wanted.dtype.kind == "f":
        assert np.allclose(got, wanted, rtol=32 * np.finfo(wanted.dtype).eps, atol=1e-6, equal_nan=True)
    else:
        assert np.array_equal(got, wanted)


def traced_only(function: Callable[..., Any], *arrays: np.ndarray) -> Graph:
    """The graph of a function whose result is as its first argument; NumPy is not asked."""
    inputs = [value(f"x{k}", array, named=True) for k, array in enumerate(arrays)]
    return follow(function, inputs, [value("y0", arrays[0], named=True)], {}).graph
