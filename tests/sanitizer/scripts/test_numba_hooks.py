from __future__ import annotations

import math
import re
from contextlib import suppress

import numpy as np
import pytest
from numba import cuda, njit, prange

from noyau.errors import DeviceError, UnsupportedError
from noyau.sanitizer.scripts.numba_hooks import install_hooks
from noyau.sanitizer.scripts.record import ScriptSession


@cuda.jit
def shift(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i + 1]


@njit(parallel=True)
def past(x):
    for i in prange(x.shape[0]):
        x[i + 1] = i


@njit(parallel=True)
def only_read(x, out):
    for i in prange(x.shape[0]):
        out[i] = x[i]


def test_kernels_that_were_compiled_before_are_watched_too():
    session = ScriptSession("here")
    with install_hooks(session):
        shift[1, 8](np.arange(5.0), out := np.zeros(5))
    (kernel,) = session.finished().kernels
    assert [each.kind for each in kernel.findings] == ["out-of-bounds"]
    assert out.tolist() == [1, 2, 3, 4, 0]


def test_all_is_as_before_afterwards():
    before = {name: getattr(cuda, name) for name in ("jit", "to_device", "synchronize", "is_available")}
    with install_hooks(ScriptSession("here")):
        assert cuda.is_available()
        assert cuda.jit is not before["jit"]
    assert {name: getattr(cuda, name) for name in before} == before


def test_past_the_end_of_an_array_numba_is_not_let():
    session = ScriptSession("here")
    with install_hooks(session):
        past(x := np.zeros(4))
    (finding,) = [each for each in session.finished().findings if each.kind == "out-of-bounds"]
    assert finding.severity == "error"
    assert x.tolist() == [0, 0, 1, 2]


def test_what_is_not_watched_may_have_arrays_that_are_read_only(monkeypatch):
    def unwatched(*_, **__):
        raise UnsupportedError("it is not seen")

    monkeypatch.setattr("noyau.sanitizer.scripts.numba_hooks.watch_call", unwatched)
    session, x = ScriptSession("here"), np.zeros(4)
    x.flags.writeable = False
    with install_hooks(session):
        only_read(x, out := np.ones(4))
    assert out.tolist() == [0, 0, 0, 0]
    assert session.finished().kernels[0].unseen == "it is not seen"


def test_what_is_refused_midway_changes_arrays_once_also_in_tuples(monkeypatch):
    @njit(parallel=True)
    def strided(both):
        for i in prange(4):
            both[1][0][i] += 1
        np.lib.stride_tricks.as_strided(both[0])

    session, x = ScriptSession("here"), np.zeros(4)
    monkeypatch.setattr(type(strided), "__call__", lambda function, *args: function.py_func(*args))
    with install_hooks(session):
        strided((np.ones(1), (x,)))
    assert "as_strided is not watched" in session.finished().kernels[0].unseen
    assert x.tolist() == [1] * 4


@cuda.jit
def whole_grid(x):
    cuda.cg.this_grid().sync()
    x[cuda.grid(1)] = 1


def test_a_launch_that_cannot_be_watched_is_left_out():
    session = ScriptSession("here")
    with install_hooks(session):
        x = cuda.device_array(8, np.float32)
        whole_grid[1, 8](x)
        assert x.copy_to_host().shape == (8,)  # and the script goes on
    (kernel,) = session.finished().kernels
    assert re.fullmatch(r"numba\.cuda\.cg cannot be .* \(line \d+ of .*\); the launch was left out", kernel.unseen)
    assert kernel.findings == ()


def test_cells_that_an_earlier_launch_wrote_hold_values():
    @cuda.jit
    def double(x, first):
        i = cuda.grid(1) + first
        x[i] = x[i] * 2 if first else 1

    session = ScriptSession("here")
    with install_hooks(session):
        x = cuda.device_array(8, np.float32)
        double[1, 8](x, 0)
        double[1, 4](x, 4)
        assert x.copy_to_host().tolist() == [1, 1, 1, 1, 2, 2, 2, 2]
    assert session.finished().findings == ()


def test_views_of_one_array_share_its_cells():
    @cuda.jit
    def move(source, target):
        i = cuda.grid(1)
        target[i] = source[i]

    session = ScriptSession("here")
    with install_hooks(session):
        whole = cuda.to_device(np.arange(9.0))
        move[1, 8](whole[:-1], whole[1:])
    assert [each.kind for each in session.finished().findings] == ["race"]


def test_a_kernel_without_a_launch():
    with install_hooks(ScriptSession("here")):
        with pytest.raises(DeviceError, match=f"^{re.escape('shift needs a launch: shift[grid, block](...)')}$"):
            shift(np.zeros(2), np.zeros(2))
        made = cuda.jit(shift.py_func)
        with pytest.raises(DeviceError, match="needs a launch"):
            made(np.zeros(2), np.zeros(2))


def test_device_functions_that_are_lambdas():
    half = cuda.jit(device=True)(lambda value: value / 2)

    @cuda.jit
    def halve(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] = half(x[i])

    session = ScriptSession("here")
    with install_hooks(session):
        halve[1, 4](x := np.ones(3))
        made = cuda.jit(halve.py_func)
        made.inspect_types()
        assert made.signatures == ()
    assert x.tolist() == [0.5, 0.5, 0.5]
    assert session.finished().ok


def test_roots_of_negative_numbers_are_nan_as_numba_has_it():
    @njit(parallel=True)
    def roots(x):
        for i in prange(x.shape[0]):
            x[i] = math.sqrt(x[i])

    session = ScriptSession("here")
    with install_hooks(session):
        roots(x := np.array([-1.0, 4.0]))
    assert np.isnan(x[0])
    assert x[1] == 2
    assert session.finished().kernels[0].accesses == 4


def test_what_cannot_be_watched_is_said_and_runs():
    @njit(parallel=True)
    def odd(x):
        total = 0.0
        for i in prange(x.shape[0]):
            total += x[i]
        return total

    session = ScriptSession("here")
    with install_hooks(session):
        assert odd(np.ones(5)) == 5
        assert odd.py_func(np.ones(5)) == 5
    assert [each.name for each in session.finished().kernels] == ["odd"]


def test_what_the_host_writes_holds_values():
    session = ScriptSession("here")
    with install_hooks(session):
        given, half, pinned = cuda.device_array(4), cuda.device_array(4), cuda.pinned_array(4)
        given.copy_to_device(np.arange(4.0))
        half[:2] = 1.0
        pinned[:] = 1.0
        for each in (given, pinned, half):
            shift[1, 4](each, np.zeros(3))
    (finding,) = session.finished().findings
    assert (finding.kind, finding.cell, finding.owners) == ("uninitialised", (2,), ("thread 1 of block 0",))
    assert finding.mend == "let some thread write each cell, and each lane take part, before it is read"


def test_parameters_by_name_only_are_left_to_numba():
    @njit(parallel=True)
    def scaled(x, *, by):
        for i in prange(x.shape[0]):
            x[i] *= by

    session = ScriptSession("here")
    with install_hooks(session), suppress(Exception):
        scaled(np.ones(3), by=2.0)
    assert session.finished().kernels == ()
