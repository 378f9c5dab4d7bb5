"""Random functions of arrays, traced, against NumPy: result dtypes, shapes and values."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from noyau.errors import InputError, UnsupportedError
from noyau.frontends.numpy.trace import Trace, trace_shapes
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.graph_verifier import check
from noyau.ir.sizes import bind
from tests.frontends.numpy.traces import dtype_of, traced, x

DTYPES = ("float16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool")
NUMBERS = (2, -1, 0.5, np.float32(1.5), np.int8(3))
ENDS = st.one_of(st.none(), st.integers(-2, 3))


def filled(a):
    out = np.zeros_like(a)
    out[1:] = a[:-1]
    out[::2] += a[0]
    return out


def masked(a):
    out = a.copy()
    out[out > 1] = 1
    return out


# Each makes an array of one or two others; those that need an axis or an extent that is not there leave it as it is.
UNARY = {
    "negative": lambda a: np.negative(a) if a.dtype != bool else a,
    "absolute": np.absolute,
    "tanh": np.tanh,
    "square": np.square,
    "turned": lambda a: a.T,
    "row": lambda a: a[:1],
    "column": lambda a: a[..., None],
    "flat": lambda a: a.reshape(-1),
    "narrowed": lambda a: a.astype(np.float32),
    "whole": lambda a: (a > 0).astype(np.int32),
    "sum": lambda a: a.sum(-1, keepdims=True) if a.ndim else a,
    "total": lambda a: a.sum(),
    "mean": lambda a: np.mean(a, axis=0) if a.ndim else a,
    "max": lambda a: a.max(0, keepdims=True) if a.ndim else a,
    "any": lambda a: np.any(a, axis=-1) if a.ndim else a,
    "running": lambda a: np.cumsum(a, axis=-1) if a.ndim else a,
    "backwards": lambda a: a[::-1] if a.ndim else a,
    "twice": lambda a: np.concatenate([a, a], axis=-1) if a.ndim else a,
    "shifted": lambda a: np.roll(a, 1, axis=-1) if a.ndim else a,
    "padded": lambda a: np.pad(a, 1) if a.ndim else a,
    "differences": lambda a: np.diff(a, axis=0) if a.ndim else a,
    "repeated": lambda a: np.repeat(a, 2, axis=0) if a.ndim else a,
    "limited": lambda a: np.clip(a, 0, 1),
    "first": lambda a: a[:3, ..., -2:] if a.ndim > 1 else a,
    "picked": lambda a: a[[0, -1]] if a.ndim else a,
    "where it is": lambda a: np.argmax(a, axis=-1) if a.ndim else a,
    "sized": lambda a: a * len(a) / 2 if a.ndim else a,
    "by its size": lambda a: a[1:] if a.ndim and a.shape[0] > 2 else a,
    "row by row": lambda a: sum(a) if a.ndim and 0 < len(a) < 4 else a,
    "filled": lambda a: filled(a) if a.ndim else a,
    "masked": lambda a: masked(a),
    "some": lambda a: a[a > 0].sum() if a.ndim else a,
    "indexed": lambda a: a + np.arange(a.shape[-1]) if a.ndim else a,
    "stacked": lambda a: np.stack([a, a], axis=0) if a.ndim < 3 else a,
}
BINARY = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "divide": lambda a, b: a / (2 + np.absolute(b)),
    "where": lambda a, b: np.where(a == b, a, b),
    "less": lambda a, b: np.where(np.less(a, 1), a, b),
}


@st.composite
def steps(draw) -> list[tuple]:
    """A straight program: each step names a function and which values it takes, of those made before."""
    program: list[tuple] = []
    for count in range(2, 2 + draw(st.integers(1, 6))):
        which = st.integers(0, count - 1)
        kind = draw(st.sampled_from("ubns"))
        if kind == "u":
            program.append(("unary", draw(st.sampled_from(sorted(UNARY))), draw(which)))
        elif kind == "b":
            program.append(("binary", draw(st.sampled_from(sorted(BINARY))), draw(which), draw(which)))
        elif kind == "n":
            program.append(
                ("number", draw(st.sampled_from(["add", "multiply"])), draw(which), draw(st.sampled_from(NUMBERS)))
            )
        else:
            program.append(
                ("slice", slice(draw(ENDS), draw(ENDS), draw(st.sampled_from([None, 1, 2, -1]))), draw(which))
            )
    return program


def run(program: list[tuple], *arrays):
    values = list(arrays)
    for kind, what, at, *other in program:
        first = values[at]
        if kind == "unary":
            values.append(UNARY[what](first))
        elif kind == "binary":
            values.append(BINARY[what](first, values[other[0]]))
        elif kind == "number":
            values.append(getattr(np, what)(first, other[0]))
        else:
            values.append(first[what] if first.ndim else first)
    return values[-1]


REFUSED = ("not in the table", "hangs on the number", "does not take", "no common dtype", "shape (3, 1)")
KNOWN = (
    "hangs on the number",
    "it has none yet",
    "has no number yet",
    "indices are given",
    "slice",
    "at most",
    "do not fit",
    "does not hold",
    "no common dtype",
    "not in the table",
    "does not take",
)


def numpy_gives(program: list[tuple], arrays) -> np.ndarray | None:
    """What NumPy gives, or None where it refuses: shapes that do not fit, a max of nothing, what it lacks for bools."""
    try:
        return np.asarray(run(program, *(array.copy() for array in arrays)))
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def traced_gives(program: list[tuple], arrays) -> np.ndarray | str:
    """What the graph gives, or why it was refused."""
    try:
        graph, _ = traced(lambda a, b: run(program, a, b), *arrays)
        return evaluate(check(graph), {"x0": arrays[0], "x1": arrays[1]})["y0"]
    except (UnsupportedError, InputError) as refusal:
        return str(refusal)


def assert_close(got: np.ndarray, wanted: np.ndarray, *dtypes: str) -> None:
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    if wanted.dtype.kind != "f":
        assert np.array_equal(got, wanted)
        return
    narrow = "float16" in dtypes or wanted.dtype == np.float16
    eps = 200 * float(np.finfo(np.float16 if narrow else np.float32).eps)
    got, wanted = got.astype(np.float64), wanted.astype(np.float64)
    scale = np.nanmax(np.abs(np.where(np.isfinite(wanted), wanted, 0)), initial=1.0)
    assert np.allclose(got, wanted, rtol=eps, atol=eps * scale, equal_nan=True)


@settings(max_examples=100, deadline=None)
@given(steps(), st.sampled_from(DTYPES), st.sampled_from(DTYPES))
def test_a_traced_function_gives_what_numpy_gives(program, one, other):
    arrays = x(3, 4, dtype=one), x(3, 1, dtype=other, seed=1)
    with np.errstate(all="ignore"):
        wanted = numpy_gives(program, arrays)
        got = "" if wanted is None else traced_gives(program, arrays)
    if wanted is None or isinstance(got, str):
        assert wanted is None or any(word in got for word in KNOWN), got
        return
    assert_close(got, wanted, one, other)


def shaped(program: list[tuple], arrays) -> Trace | str:
    """A trace for arrays of these shapes, or why there is none."""
    given = {f"x{k}": (dtype_of(array), array.shape) for k, array in enumerate(arrays)}
    try:
        return trace_shapes(lambda a, b: run(program, a, b), given, {})
    except UnsupportedError as refusal:
        return str(refusal)


@settings(max_examples=100, deadline=None)
@given(steps(), st.sampled_from(DTYPES), st.sampled_from(DTYPES), st.sampled_from([(3, 2), (5, 4), (2, 7), (0, 3)]))
def test_a_trace_for_some_sizes_serves_all_that_it_holds_for(program, one, other, sizes):
    """Nothing that NumPy takes is refused for its sizes; where a trace holds for other sizes, it is right there too."""
    arrays = x(3, 4, dtype=one), x(3, 1, dtype=other, seed=1)
    more = x(*sizes, dtype=one, seed=2), x(sizes[0], 1, dtype=other, seed=3)
    with np.errstate(all="ignore"):
        wanted, there = numpy_gives(program, arrays), numpy_gives(program, more)
        trace = "" if wanted is None else shaped(program, arrays)
        if isinstance(trace, str):
            assert wanted is None or any(word in trace for word in REFUSED), trace
            return
        assert_close(
            evaluate(trace.graph, dict(zip(("x0", "x1"), arrays, strict=True)))[trace.graph.outputs[0]],
            wanted,
            one,
            other,
        )
        try:
            bind([node.shape for node in trace.inputs], [array.shape for array in more], ["x0", "x1"])
            got = evaluate(trace.graph, dict(zip(("x0", "x1"), more, strict=True)))[trace.graph.outputs[0]]
        except InputError:
            return
    if there is None:  # a place of an array that is empty, and that no result needs
        assert 0 in sizes
        return
    assert_close(got, there, one, other)
