"""Every form of a signature, of a reference and of a kernel: linters and type checkers take it as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import noyau
from noyau.kernels.user_kernel import UserKernel

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]


@noyau.op
def plain(x: Floats) -> Floats:
    return x + x


@noyau.op()
def called(x: Floats) -> Floats:
    return x + x


@noyau.op("float32[n] -> float32[n]")
def long_name(x: Floats) -> Floats:
    return x + x


@noyau.op("float[*batch, n] -> float[*batch, n]", name="soft")
def softmax(x: NDArray[Any]) -> NDArray[Any]:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


@noyau.op(
    "f32[n], f32, f32 -> hist: i32[bins]", sizes={"bins": 10}, inputs=lambda rng, n=500: (rng.random(n), 0.0, 1.0)
)
def histogram(x: Floats, xmin: float, xmax: float) -> Ints:
    return np.histogram(x, 10, (xmin, xmax))[0].astype(np.int32)


@noyau.op("f32[n] -> low: f32, high: f32")
def ends(x: Floats) -> tuple[np.float32, np.float32]:
    return np.min(x), np.max(x)


@noyau.op("any[..., 2, n], i64[n - 1] -> any[..., n // 2 + 1]")
def odd(x: NDArray[Any], at: NDArray[np.int64]) -> NDArray[Any]:
    return np.asarray(x[..., 0, : x.shape[-1] // 2 + 1])


@noyau.op("f32[rows, n], int -> f32[k]")
def first(x: Floats, k: int, *, eps: float = 1e-5) -> Floats:
    return x[0, :k] + np.float32(eps)


@noyau.op("f32[n] -> f32[n]")
def filled(x: Floats, out: Floats) -> None:
    for i in range(len(x)):
        out[i] = x[i]


@long_name.kernel
def double(x: Floats, out: Floats) -> None:
    out[...] = 2 * x


@long_name.kernel(name="other", init={"out": 0}, args=lambda x, out, n: (x, out), trust=True)
def add_twice(x: Floats, out: Floats) -> None:
    out += 2 * x


TEXT = "void twice(const float *x, float *out, long n) { for (long i = 0; i < n; ++i) out[i] = 2 * x[i]; }"
PART = (
    TEXT.replace("twice(", "part(")
    .replace("long n)", "long begin, long end)")
    .replace("i = 0; i < n", "i = begin; i < end")
)
part = long_name.kernel(PART, language="c", entry="part", launch=lambda n: n)
text = long_name.kernel(TEXT, language="c", entry="twice", constants={"BLOCK": [4, 8]}, options={"flags": ["-O2"]})


@long_name.gradient
def long_slope(x: Floats, given: Floats) -> Floats:
    return given


@noyau.op("f32[n], f32[n], f32 -> next_p: f32[n], next_m: f32[n]", sizes={}, name="momentum")
def step(p: Floats, m: Floats, rate: float) -> tuple[Floats, Floats]:
    fresh = np.asarray(np.float32(0.9) * m, np.float32)
    return np.asarray(p - np.float32(rate) * fresh, np.float32), fresh


@step.kernel(updates=("p", "m"), constants={"KEPT": [0.9, 0.8]}, trust=True)
def step_in_place(p: Floats, m: Floats, rate: float, *, KEPT: float) -> None:
    m *= np.float32(KEPT)
    p -= np.float32(rate) * m


@first.kernel(returns=True)
def sliced(x: Floats, k: int, *, eps: float = 1e-5) -> Floats:
    return np.asarray(x[0, :k] + np.float32(eps), np.float32)


any_callable = softmax.kernel(np.exp, name="wrong", init=lambda n: {"out": n}, options={})


def types() -> None:
    """What a call gives is what the reference gives, and decorators keep what they decorate."""
    x = np.ones(3, np.float32)
    assert_type(long_name(x), Floats)
    assert_type(ends(x), tuple[np.float32, np.float32])
    assert_type(step(x, x, 0.5), tuple[Floats, Floats])
    assert_type(first(x.reshape(1, 3), k=2, eps=0.1), Floats)
    assert_type(plain.reference(x), Floats)
    assert_type(sliced(x.reshape(1, 3), 2), Floats)
    assert_type(long_slope(x, x), Floats)
    assert_type(text, UserKernel)
    assert_type(noyau.check(long_name).ok, bool)


def results() -> tuple[Floats, np.float32, Sequence[str]]:
    x = np.ones(3, np.float32)
    double(x, out=np.empty_like(x))
    with noyau.reference():
        low, _ = ends(x)
        return long_name(x), low, [text.name, *long_name.kernels]
