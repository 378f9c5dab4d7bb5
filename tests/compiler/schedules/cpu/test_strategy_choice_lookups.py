"""What looks indices up, in each strategy: what an index has to obey stands before what is loaded there."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.codegen.numba import printer as numba_printer
from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.cpu.strategy_choice import USUAL, schedule
from noyau.compiler.schedules.gpu.strategies import on_gpu
from noyau.dtypes import from_numpy
from noyau.errors import InputError
from noyau.frontends.numpy.trace import trace_shapes
from noyau.ir.loop_interpreter import run
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Role
from tests.compiler.schedules.asking import unasked


def weighted(x, w, at):
    return x.sum(0) * w[at]


def of_the_least(x, w, at):
    return np.take_along_axis(x, np.argmin(x, axis=0, keepdims=True), 0).sum() + w[at[0]]


def of_one_column(x, w, at):
    return np.argmin(x[:, at.sum()].max(0) * w)


ARRAYS = np.arange(42, dtype=np.float32).reshape(7, 3, 2), np.arange(4, dtype=np.float32), np.zeros(2, np.int64)


@pytest.mark.parametrize("options", [USUAL, numba_printer.SCHEDULE], ids=["c", "numba"])
@pytest.mark.parametrize("function", [weighted, of_the_least, of_one_column])
def test_an_index_is_asked_before_what_lies_there_is_read(function, options):
    x, w, at = ARRAYS
    arrays = {"x": x, "w": w[:2] if function is of_one_column else w, "at": at}
    given = {name: (from_numpy(array.dtype), array.shape) for name, array in arrays.items()}
    kernel = check(schedule(lower(normalise(trace_shapes(function, given, {}).graph), "k"), options))
    assert unasked(kernel) == []
    inputs = [buffer.source for buffer in kernel.of(Role.INPUT)]
    assert np.allclose(run(kernel, [arrays[name] for name in inputs])[0], function(*arrays.values()))
    arrays["at"] = at + 99
    with pytest.raises(InputError):
        run(kernel, [arrays[name] for name in inputs])


@pytest.mark.parametrize("function", [weighted, of_the_least])
def test_on_a_gpu_too(function):
    x, w, at = ARRAYS
    given = {name: (from_numpy(a.dtype), a.shape) for name, a in {"x": x, "w": w, "at": at}.items()}
    kernel = on_gpu(lower(normalise(trace_shapes(function, given, {}).graph), "k"))
    assert unasked(kernel) == []
