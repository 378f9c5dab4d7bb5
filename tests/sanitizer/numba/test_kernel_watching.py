"""Kernels of Numba watched: each defect by its kind and its line, and silence on what is right."""

from __future__ import annotations

import linecache

import numpy as np
import pytest
from numba import njit, prange

from noyau.errors import UnsupportedError
from noyau.sanitizer.numba.kernel import Watching, watch_call
from noyau.sanitizer.recording_array import Recorder
from tests.sanitizer.numba import kernels


def watched(kernel, *arrays, outputs=(), most=1 << 40):
    """A kernel on these arrays; `outputs`: the places of those that hold nothing before."""
    recorder = Recorder(most)
    watching = Watching(kernel, recorder, {id(arrays[place]): f"out{place}" for place in outputs})
    watching(*arrays)
    return watching


def told(kernel, *arrays, outputs=()):
    """Kind, text of the line and of the other line, of each finding."""
    watching = watched(kernel, *arrays, outputs=outputs)
    found, _ = watching.findings("op", "kernel", "")
    found += watching.unwritten("op", "kernel", "")
    return [(each.kind, line(each.place), line(each.other_place)) for each in found]


def line(place):
    file, _, number = place.rpartition(":")
    return linecache.getline(file, int(number)).partition("#")[0].strip() if number else ""


@pytest.mark.parametrize("name", sorted(kernels.RIGHT))
def test_silence_on_what_is_right(name):
    kernel, arrays, outputs = kernels.RIGHT[name]
    given = [np.array(each) for each in arrays]
    assert told(kernel, *given, outputs=outputs) == []


@pytest.mark.parametrize("name", sorted(kernels.RIGHT))
def test_the_results_are_those_of_python(name):
    """Watched, a kernel computes what its plain function does on plain arrays."""
    kernel, arrays, _ = kernels.RIGHT[name]
    mine, plain = ([np.array(each) for each in arrays] for _ in range(2))
    recorder = Recorder()
    got, want = Watching(kernel, recorder)(*mine), kernel.py_func(*plain)
    for one, other in zip([*mine, got], [*plain, want], strict=True):
        assert np.array_equal(one, other)
    assert recorder.shadow.accesses > 0


@pytest.mark.parametrize("name", sorted(kernels.WRONG))
def test_each_defect_by_kind_and_line(name):
    kernel, arrays, outputs, expected = kernels.WRONG[name]
    assert told(kernel, *[np.array(each) for each in arrays], outputs=outputs) == expected


@pytest.mark.parametrize("name", sorted(kernels.CLASSES))
def test_the_class_of_each_loop(name):
    kernel, arrays, kinds = kernels.CLASSES[name]
    watching = watched(kernel, *[np.array(each) for each in arrays])
    assert [each.kind for each in watching.classes()] == kinds
    assert all(each.reason for each in watching.classes())


def test_the_remedy_fits_the_race():
    def mend(name):
        kernel, arrays, _, _ = kernels.WRONG[name]
        found, _ = watched(kernel, *[np.array(each) for each in arrays]).findings("op", "kernel", "")
        return found[0].remedy

    assert "reduction" in mend("one cell")
    assert "earlier one made" in mend("running sum")
    assert "another array" in mend("shifted in place")
    assert "one iteration" in mend("neighbours")
    assert "loop over the cells" in mend("histogram")
    assert "assign the name" in mend("carried name")


def test_a_run_of_too_many_accesses_goes_on_compiled():
    watching = watched(kernels.copied, np.zeros(100_000), np.zeros(100_000), most=1000)
    assert watching.recorder.shadow.accesses < 100_000
    assert watching.fast.shadow.accesses == 200_000
    assert watching.note == ""


def test_what_cannot_be_compiled_is_ended_and_says_so():
    watching = watched(kernels.column_sums, np.zeros((100, 1000)), np.zeros(1000), most=1000)
    assert watching.note.startswith("ended after")


@pytest.mark.parametrize("most", [1000, 1 << 40])
def test_a_call_of_a_script_changes_its_arguments_and_returns_its_result(most):
    x, out = np.arange(20_000.0), np.zeros(20_000)
    found, result = watch_call(kernels.copied, (x, out), watching=Watching(kernels.copied, Recorder(most)))
    assert np.array_equal(out, x)
    assert (found.findings, result) == ((), None)
    found, result = watch_call(kernels.summed, (x,), watching=Watching(kernels.summed, Recorder(most)))
    assert result == pytest.approx(x.sum())
    found, _ = watch_call(kernels.one_cell, (x, np.zeros(1)), watching=Watching(kernels.one_cell, Recorder(most)))
    assert [each.kind for each in found.findings] == ["race"]
    assert found.accesses > 10_000


def test_arrays_that_are_only_read_may_be_read_only():
    x, out = np.arange(20_000.0), np.zeros(20_000)
    x.flags.writeable = False
    watch_call(kernels.copied, (x, out), watching=Watching(kernels.copied, Recorder(1000)))
    assert np.array_equal(out, x)


def test_accesses_and_iterations_are_counted():
    watching = watched(kernels.copied, np.zeros(20_000), np.zeros(20_000))
    assert watching.recorder.shadow.accesses == 40_000
    assert watching.run.regions[0].iterations == 20_000


@njit(parallel=True)
def in_a_list(n):
    out = [0.0] * n
    for i in prange(n):
        own = out[:1]
        own[0] += i
    return out


def test_cells_that_iterations_write_alike_are_no_cells_of_their_own():
    @njit(parallel=True)
    def overlapping(x, out):
        for i in prange(x.size - 1):
            out[i] = 1.0
            out[i + 1] = 1.0

    watched, _ = watch_call(overlapping, [np.zeros(4), np.zeros(4)])
    assert {each.kind for each in watched.findings} == {"written-twice"}
    assert "what iterations write to one cell" in watched.notes[0]
    assert "is the same" in watched.notes[0]


def test_a_running_value_is_read_where_there_are_two_iterations():
    @njit(parallel=True)
    def running(x, out):
        s = 0.0
        for i in prange(x.size):
            s += x[i]
            out[i] = s

    found = [watch_call(running, [np.zeros(n), np.zeros(n)])[0].findings for n in (0, 1, 2)]
    assert [[each.kind for each in some] for some in found] == [[], [], ["race"]]


def test_a_loop_of_which_no_access_is_seen_is_no_map():
    seen, result = watch_call(in_a_list, (3,))
    assert (type(result), result) == (list, [0, 0, 0])
    assert [note.partition(": ")[2] for note in seen.notes] == [
        "unseen: it touches no array that is watched: lists are not"
    ]


@njit(parallel=True)
def one_ahead(x):
    for i in prange(x.size - 1):
        x.flat[i] = x.flat[i + 1]


def test_flat_is_the_cells_of_an_array():
    seen, _ = watch_call(one_ahead, (np.zeros((2, 3)),))
    assert {each.kind for each in seen.findings} == {"race"}
    with pytest.raises(UnsupportedError, match=r"x\.flat of an array that is not packed is not watched"):
        watch_call(one_ahead, (np.zeros((3, 2)).T,))


@njit
def made_whole(x):
    return x + x, np.zeros(3), np.empty(2)


def test_of_what_is_returned_only_what_was_made_empty_can_be_unwritten():
    watching = watched(made_whole, np.ones(2))
    found = watching.unwritten("op", "kernel", "")
    assert [each.kind for each in found] == ["unwritten"]
    assert found[0].message == "nobody writes the result[0] and 1 more cells of 2"


@njit(parallel=True)
def holds_the_last(x):
    last = 0.0
    for i in prange(x.size):
        x[i] += 1
        if x[i] > 0:
            last = x[i]
    return last


def test_what_is_carried_over_leaves_the_result_to_numba():
    seen, result = watch_call(holds_the_last, (x := np.full(4, 2.0),))
    assert [each.kind for each in seen.findings] == ["race"]
    assert result in (0.0, 3.0)
    assert x.tolist() == [3] * 4  # once
