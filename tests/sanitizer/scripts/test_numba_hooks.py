from __future__ import annotations

import math
import os
import sys
import warnings
from contextlib import suppress

import numpy as np
import pytest
from numba import njit, prange

from noyau.errors import UnsupportedError
from noyau.sanitizer.scripts import numba_hooks
from noyau.sanitizer.scripts.numba_hooks import import_cuda, install_hooks
from noyau.sanitizer.scripts.record import ScriptSession


@njit(parallel=True)
def past(x):
    for i in prange(x.shape[0]):
        x[i + 1] = i


@njit(parallel=True)
def only_read(x, out):
    for i in prange(x.shape[0]):
        out[i] = x[i]


def test_a_loop_that_is_seen_in_part_is_not_verified(monkeypatch):
    monkeypatch.setattr(numba_hooks, "MOST", 100)
    session = ScriptSession("here")
    with install_hooks(session):
        x = np.arange(400.0)
        only_read(x[:-1], x[:-1])  # views of one array, which no run compiled takes
    check = session.finish()
    (kernel,) = check.kernels
    assert kernel.unseen.startswith("ended after ")
    assert not check.is_verified
    assert x.tolist() == list(range(400))


def test_past_the_end_of_an_array_numba_is_not_let():
    session = ScriptSession("here")
    with install_hooks(session):
        past(x := np.zeros(4))
    (finding,) = [each for each in session.finish().findings if each.kind == "out-of-bounds"]
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
    assert session.finish().kernels[0].unseen == "it is not seen"


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
    assert "as_strided is not watched" in session.finish().kernels[0].unseen
    assert x.tolist() == [1] * 4


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
    assert session.finish().kernels[0].accesses == 4


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
    assert [each.name for each in session.finish().kernels] == ["odd"]


def test_parameters_by_name_only_are_left_to_numba():
    @njit(parallel=True)
    def scaled(x, *, by):
        for i in prange(x.shape[0]):
            x[i] *= by

    session = ScriptSession("here")
    with install_hooks(session), suppress(Exception):
        scaled(np.ones(3), by=2.0)
    assert session.finish().kernels == ()


def test_an_unwritten_tail_of_a_result_is_found_unless_a_number_says_how_long_it_is():
    @njit(parallel=True)
    def short(n):
        out = np.empty(n)
        for i in prange(n - 1):
            out[i] = i
        return out

    @njit(parallel=True)
    def counted(n):
        out = np.empty(n)
        for i in prange(n - 1):
            out[i] = i
        return out, n - 1

    @njit(parallel=True)
    def part(n):
        out = np.empty(n)
        for i in prange(n - 1):
            out[i] = i
        return out[: n - 1]

    session = ScriptSession("here")
    with install_hooks(session):
        short(5), counted(5), part(5)
    assert [(each.name, [f.kind for f in each.findings]) for each in session.finish().kernels] == [
        ("short", ["unwritten"]),
        ("counted", []),
        ("part", []),
    ]


def test_what_was_found_before_python_raised_is_kept():
    @njit(parallel=True)
    def largest(x, offsets):
        out = np.zeros(offsets.size)
        for i in prange(offsets.size):
            row = x[offsets[i] : offsets[i + 1]]
            out[i] = row.max()
        return out

    session = ScriptSession("here")
    with install_hooks(session), suppress(Exception):
        largest(np.ones(5), np.array([0, 2, 5]))
    (seen,) = session.finish().kernels
    assert [each.kind for each in seen.findings] == ["out-of-bounds"]
    assert "offsets at 3" in seen.findings[0].message
    assert "zero-size array" in seen.unseen


def test_a_name_that_is_read_after_its_loop_has_a_remedy_of_its_own():
    @njit(parallel=True)
    def last(n):
        k = 0
        for i in prange(n):
            k = i
        return k

    session = ScriptSession("here")
    with install_hooks(session), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        last(5)
    (finding,) = session.finish().findings
    assert (finding.kind, finding.remedy.partition(":")[0]) == ("race", "an iteration's value ends with it")


@pytest.mark.parametrize("fault", [ImportError, AttributeError])
def test_without_what_numba_cuda_needs_loops_are_watched_and_the_reason_is_kept(monkeypatch, fault):
    def missing(name):
        raise fault("CUDA bindings not found")

    monkeypatch.setattr("noyau.sanitizer.scripts.numba_hooks.import_module", missing)
    monkeypatch.setenv("NUMBA_CUDA_USE_NVIDIA_BINDING", "1")
    session = ScriptSession("here")
    with install_hooks(session):
        only_read(np.ones(4), np.zeros(4))
    assert session.finish().is_verified
    assert "it cannot be imported: CUDA bindings" in session.lacks["CUDA bindings not found"]


def test_numba_cuda_is_asked_for_once_more_without_nvidias_packages(monkeypatch):
    asked = []

    def missing_first(name):
        asked.append(os.environ.get("NUMBA_CUDA_USE_NVIDIA_BINDING"))
        if len(asked) == 1:
            raise ImportError("CUDA bindings not found")
        return "module"

    monkeypatch.setattr("noyau.sanitizer.scripts.numba_hooks.import_module", missing_first)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.setattr(os, "environ", {})
    assert import_cuda("any") == "module"
    assert asked == [None, "0"]
