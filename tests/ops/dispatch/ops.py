"""Ops that the tests of dispatching share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import noyau
from noyau.compiler.lowering.input_layouts import Layout, layout_of
from noyau.kernels.programs.generate import GeneratedProgram, Specialization, generate, specialization_of
from noyau.ops.dispatch.choice import Selection, Selector
from noyau.ops.op import Op
from noyau.signatures.instances import bind


def softmax_op() -> Op[..., Any]:
    @noyau.op("float[*batch, n] -> float[*batch, n]")
    def softmax(x):
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    return softmax


def linear_op() -> Op[..., Any]:
    @noyau.op("f32[m, k], f32[k, n], f32[n] -> f32[m, n]")
    def linear(x, weight, bias):
        y = x @ weight + bias
        return y / (1 + np.exp(-y))

    return linear


def scale_op(**said: Any) -> Op[..., Any]:
    @noyau.op("f32[n], f32 -> f32[n]", **said)
    def scale(x, by, *, shift=0.0):
        return x * by + np.float32(shift)

    return scale


def horner_op() -> Op[..., Any]:
    @noyau.op("f32[n, m] -> f32[m]")
    def horner(x):
        made = x[0]
        for row in range(1, x.shape[0]):
            made = made * np.float32(0.5) + x[row]
        return made

    return horner


def turned_op() -> Op[..., Any]:
    @noyau.op("f32[n] -> f32[n]")
    def turned(x):
        return x * 2 if x.shape[0] > 4 else x * 3

    return turned


def numbers(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def generated(op: Op[..., Any], *arrays: Any, language: str = "c", **constants: Any) -> GeneratedProgram:
    """The kernels of an op for arrays as they lie."""
    assert op.signature is not None
    bound = bind(op.signature, arrays, {}, op.name)
    layouts = tuple(layout_of(array) or Layout() for array in bound.arrays)
    known = {**op.description.reference.constants, **constants}
    return generate(op.description, Specialization(bound.instance, known, {}, layouts), language)


def choose(op: Op[..., Any], *arrays: Any, **constants: Any) -> Selection:
    """What an op chooses for these arguments."""
    assert op.signature is not None
    bound = bind(op.signature, arrays, {}, op.name)
    return op.calls.choosing.choose(specialization_of(op.signature, bound, op.calls.all(constants)))


@contextmanager
def forgetting(op: Op[..., Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """While it lasts, an op forgets what was chosen just as a decision is made."""
    real = Selector.decide

    def decided(self: Selector, wanted: Any, key: Any) -> Selection:
        found = real(self, wanted, key)
        op.calls.forget()
        return found

    with monkeypatch.context() as patched:
        patched.setattr(Selector, "decide", decided)
        yield
