"""The compiled way notes what the way in Python does."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest
from numba import njit

from noyau.errors import UnsupportedError
from noyau.sanitizer.numba.compiled import run_compiled
from noyau.sanitizer.numba.kernel import Watching, watch_call
from noyau.sanitizer.recording_array import Recorder
from tests.sanitizer.numba import kernels

ALIKE = ("one cell", "unset", "past its row", "from the end")


def told(shadow, sites):
    return [(each.kind, each.access, each.owner, each.cell, sites[each.site].line) for each in shadow.observations()]


@pytest.mark.parametrize("name", ALIKE)
def test_the_same_is_found(name):
    kernel, arrays, *_ = kernels.WRONG[name]
    recorder = Recorder()
    Watching(kernel, recorder)(*map(np.array, arrays))
    fast = run_compiled(kernel, [np.array(each) for each in arrays])
    assert told(fast.shadow, fast.sites) == told(recorder.shadow, recorder.sites)
    assert fast.shadow.accesses == recorder.shadow.accesses


def test_it_computes_and_is_silent_on_what_is_right():
    out = np.zeros((3, 3))
    fast = run_compiled(kernels.matrix_product, (kernels.GRID, out))
    assert np.allclose(out, kernels.GRID @ kernels.GRID.T)
    assert fast.shadow.observations() == []


def test_cells_that_hold_nothing():
    fast = run_compiled(kernels.running_sum, (kernels.X, np.zeros(8)), frozenset({"out"}))
    assert "uninitialised" in [each.kind for each in fast.shadow.observations()]


@pytest.mark.parametrize("name", ["column sums", "callee", "array expressions"])
def test_whole_arrays_are_left_to_python(name):
    kernel, arrays, _ = kernels.RIGHT[name]
    with pytest.raises(UnsupportedError, match=r"kernels.py:\d+: `.*` is of a whole array"):
        run_compiled(kernel, [np.array(each) for each in arrays])


def test_three_axes_are_left_to_python():
    with pytest.raises(UnsupportedError, match="array of 3 axes"):
        run_compiled(kernels.copied, (np.zeros((1, 1, 1)), np.zeros(1)))


@njit
def counted(out, shape):
    for i in range(shape.rows):
        out[i] = i


def test_tuples_of_numbers_are_taken_and_those_of_arrays_left_to_python():
    shape = namedtuple("Shape", "rows columns")(3, 1)
    seen, _ = watch_call(counted, (out := np.zeros(3), shape), watching=Watching(counted, Recorder(1)))
    assert (out.tolist(), seen.notes) == ([0, 1, 2], ())  # it did not end early
    with pytest.raises(UnsupportedError, match="counted takes arrays in a tuple, or a list"):
        run_compiled(counted, (out, (3, (np.zeros(1),))))


@njit
def shifted(pair, out):
    for i in range(out.size):
        out[i] = pair[0][1][i + 9]


@pytest.mark.parametrize("nest", [list, tuple])
def test_lists_within_a_tuple_are_left_to_python(nest):
    held = nest([np.zeros(9), np.zeros(9999)]), 1.0
    with pytest.raises(UnsupportedError, match="shifted takes arrays in a tuple, or a list"):
        run_compiled(shifted, (held, np.zeros(9990)))
    watching = Watching(shifted, Recorder(1))
    watching(held, np.zeros(9990))
    assert watching.note.startswith("ended after ")


def test_what_does_not_compile_with_its_accesses_noted():
    with pytest.raises(UnsupportedError, match="does not compile with its accesses noted"):
        run_compiled(kernels.row_sum, (np.zeros((2, 2)),))


def shares(x, out):
    none = len(x) - 3
    out[0] = 1.0 / none
    out[1] = 1.0
    out[1] /= none


@pytest.mark.parametrize(
    "run",
    [
        lambda kernel, *arrays: Watching(kernel, Recorder())(*arrays),
        lambda kernel, *arrays: run_compiled(kernel, arrays),
    ],
)
def test_division_by_zero_is_what_the_kernel_says(run):
    """Numba raises by default, and divides as NumPy does where it is asked to."""
    out = np.zeros(2)
    run(njit(error_model="numpy")(shares), np.zeros(3), out)
    assert out.tolist() == [np.inf, np.inf]
    with pytest.raises(ZeroDivisionError):
        run(njit(shares), np.zeros(3), out)
