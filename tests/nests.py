"""Kernels written down shortly: `kernel(loop("#i", "n", store("y", load("x", ROW), ROW)))` copies x to y."""

from __future__ import annotations

import numpy as np

from noyau.ir.dims import Dim, shape_of
from noyau.ir.loops import (
    Axis,
    Buffer,
    Call,
    Const,
    Index,
    Kernel,
    Launch,
    Load,
    Loop,
    Role,
    Store,
)
from noyau.ir.sizes import plan
from tests.nodes import BOOL, F32

ROW, COL, N = Dim.of("#i"), Dim.of("#j"), Dim.of("n")
ONE = Const(1.0, F32)
X8 = np.arange(8, dtype=np.float32)
ONE_CELL = [("y", F32, [1])]


def kernel(*body, inputs=(("x", F32, ["n"]),), outputs=(("y", F32, ["n"]),), scratch=(), launches=None):
    roles = ((Role.INPUT, inputs), (Role.OUTPUT, outputs), (Role.SCRATCH, scratch))
    buffers = tuple(Buffer(name, dtype, shape_of(shape), role) for role, some in roles for name, dtype, shape in some)
    binding = plan([buffer.shape for buffer in buffers if buffer.role is Role.INPUT])
    return Kernel("k", buffers, binding, tuple(map(Launch, launches or [body])))


def loop(var, extent, *body, axis=Axis.SERIAL):
    return Loop(var, Dim.of(extent), axis, body)


def load(name, *index, dtype=F32, where=None, other=None):
    return Load(name, shape_of(index), dtype, where, other)


def store(name, value, *index, merge=None):
    return Store((name,), shape_of(index), (value,), merge)


def call(function, *operands, dtype=F32):
    return Call(function, operands, dtype)


def less(left, right):
    return call("less", Index(Dim.of(left)), Index(Dim.of(right)), dtype=BOOL)


COPY = loop("#i", "n", store("y", load("x", ROW), ROW))
