from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numba import cuda, njit, prange

import noyau
from noyau.errors import CheckError, DeviceError, SignatureError
from noyau.jobs.check.bare_kernel import check_bare, is_bare
from noyau.sanitizer.scripts.record import OBSERVERS

X = np.random.default_rng(0).random(100).astype(np.float32)


@njit(parallel=True)
def scale(x, out, a):
    for i in prange(x.shape[0]):
        out[i] = a * x[i] + 1


@njit(parallel=True)
def gather(x, s):
    for i in prange(x.shape[0]):
        s[0] += x[i]  # race


@njit
def total(x):
    s = np.float32(0)
    for i in range(x.shape[0]):
        s += x[i]
    return s


@njit(parallel=True)
def both(pair):
    for i in prange(pair[0].shape[0]):
        pair[1][i] = pair[0][i]


@cuda.jit
def double(x, out):
    i = cuda.grid(1)
    if i < out.size - 1:
        out[i] = 2 * x[i]


@cuda.jit
def raises(x):
    x[0] = undefined_name  # noqa: F821


def test_values_and_accesses_of_a_parallel_loop():
    out = np.zeros_like(X)
    found = noyau.check(scale, (X, out, 2.0), reference=lambda x, a: a * x + 1)
    (kernel,) = found.kernels
    assert found.ok
    assert not out.any()  # the arguments are left as they were
    assert (kernel.name, kernel.language, kernel.accesses) == ("scale", "numba", 200)
    assert kernel.certificate is not None
    assert kernel.shapes == ("x: float32[100], out: float32[100], a = 2.0",)
    (wrong,) = check_bare(scale, (X, out, 2.0), reference=lambda x, a: a * x).findings
    assert (wrong.kind, wrong.cell) == ("wrong-value", (0,))


def test_arrays_in_tuples_are_left_as_they_were():
    out = np.zeros_like(X)
    assert check_bare(both, ((X, out),)).ok
    assert not out.any()


def test_a_race_stands_in_place_of_the_wrong_values():
    (race,) = check_bare(gather, (X, np.ones(1, np.float32)), reference=lambda x: np.array([x.sum()])).findings
    assert (race.kind, race.language) == ("race", "numba")
    assert check_bare(gather, (X[:1], np.zeros(1, np.float32))).ok  # one iteration, and nothing to compare with


def test_what_a_kernel_returns():
    assert check_bare(total, (X,), reference=np.sum).ok
    assert not check_bare(total, (X,), reference=np.max).ok


def test_a_launch_of_numba_cuda():
    out = np.zeros_like(X)
    for reference in (lambda x: 2 * x, lambda given: 2 * given):
        (wrong,) = check_bare(double, (X, out), launch=(4, 32), reference=reference).findings
        assert (wrong.kind, wrong.cell) == ("wrong-value", (99,))

    def filled(x, out):
        out[:-1] = 2 * x[:-1]

    assert check_bare(double, (X, out), launch=(4, 32), reference=filled).ok
    assert check_bare(double, (X[::2], out[:50]), launch=(4, 32)).ok
    (outside,) = {each.kind for each in check_bare(double, (X[:50], out), launch=(4, 32)).findings}
    assert outside == "out-of-bounds"


def test_a_tolerance():
    assert check_bare(scale, (X, np.zeros_like(X), 2.0), reference=lambda x: 2 * x + 1.001, tolerance=1e-2).ok


def test_who_looks_on_is_told():
    seen = []
    OBSERVERS.append(lambda check, place: seen.append((check.name, place.rpartition("/")[2].partition(":")[0])))
    try:
        check_bare(total, (X,))
    finally:
        OBSERVERS.pop()
    assert seen == [("total", Path(__file__).name)]


@pytest.mark.parametrize(
    ("kernel", "args", "wishes", "error", "message"),
    [
        (scale, None, {}, SignatureError, r"noyau\.check\(scale, args\) needs the arguments of a call: a tuple"),
        (scale, (X,), {}, SignatureError, "scale: missing a required argument: 'out'"),
        (scale, (X, X, 1.0), {"launch": (1, 1)}, SignatureError, "scale is called, not launched: leave out launch="),
        (
            double,
            (X, X),
            {},
            SignatureError,
            r"double needs a launch: noyau\.check\(double, args, launch=\(grid, block",
        ),
        (double, (X,), {"launch": (1, 1)}, SignatureError, "double takes x, out; it was given 1 arguments"),
        (double, (X, X), {"launch": (1, 2000)}, DeviceError, "the block of a launch is 2000; each extent lies"),
        (raises, (X,), {"launch": (1, 1)}, CheckError, "raises raised NameError: name 'undefined_name' is not defined"),
    ],
)
def test_what_does_not_fit(kernel, args, wishes, error, message):
    with pytest.raises(error, match=message):
        check_bare(kernel, args, **wishes)


def test_what_is_bare():
    assert is_bare(scale)
    assert is_bare(double)
    assert not is_bare(np.sum)
