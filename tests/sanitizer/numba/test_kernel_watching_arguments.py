"""What a kernel of Numba is given beside plain arrays, and what it makes: watched, or refused by its line."""

from __future__ import annotations

import heapq
import linecache
import re
from collections import namedtuple

import numpy as np
import pytest
from numba import float64, int64, njit, parallel_chunksize, prange, stencil
from numba.typed import Dict, List

from noyau.errors import UnsupportedError
from noyau.sanitizer.numba.compiled import run_compiled
from noyau.sanitizer.numba.kernel import Watching, watch_call
from noyau.sanitizer.recording_array import Recorder

Pair = namedtuple("Pair", "x total")


@njit(parallel=True)
def total_of_pair(pair):
    for i in prange(pair[0].size):
        pair[1][0] += pair[0][i]


@njit(parallel=True)
def sums_of_rows(pair, out):
    for i in prange(out.size):
        out[i] = pair[0][i] + pair[1][i]


@njit(parallel=True)
def in_chunks(x):
    with parallel_chunksize(2):
        for i in prange(x.size):
            x[0] = i


def test_a_block_that_says_how_iterations_are_dealt_is_watched():
    seen, _ = watch_call(in_chunks, (np.ones(4),))
    assert {each.kind for each in seen.findings} == {"race"}


@pytest.mark.parametrize("made", [tuple, lambda both: Pair(*both)])
def test_arrays_in_a_tuple_are_watched_under_their_place_in_it(made):
    seen, _ = watch_call(total_of_pair, (made((np.ones(4), np.zeros(1))),))
    assert {each.kind for each in seen.findings} == {"race"}
    assert "pair[1]" in seen.findings[0].message


@pytest.mark.parametrize("most", [1 << 40, 1])
def test_arrays_in_a_tuple_change_once(most):
    total = np.zeros(1)
    watch_call(total_of_pair, ((np.ones(4), total),), watching=Watching(total_of_pair, Recorder(most)))
    assert total[0] == 4
    seen, _ = watch_call(sums_of_rows, ((np.ones(4), np.ones(4)), out := np.zeros(4)))
    assert (seen.findings, out.tolist()) == ((), [2] * 4)


@stencil
def mean_of_three(x):
    return (x[-1] + x[0] + x[1]) / 3


@njit(parallel=True)
def smoothed(x, out):
    y = mean_of_three(x)
    for i in prange(x.size):
        out[0 if i < 2 else i] = y[i]


def test_a_stencil_reads_its_arrays_and_gives_one():
    seen, _ = watch_call(smoothed, (np.arange(5.0), out := np.zeros(5)))
    assert [each.kind for each in seen.findings] == ["race"]
    assert out.tolist() == [1, 0, 2, 3, 0]


@njit(parallel=True)
def smoothed_by_name(x):
    return mean_of_three(x=x)


@njit(parallel=True)
def reads_first(items, out):
    for i in prange(out.size):
        out[i] = items[0]


@njit(parallel=True)
def makes_records(x):
    made = np.zeros(x.size, KIND)
    for i in prange(x.size):
        made[i].a = x[i]
    return made


@njit(parallel=True)
def appends(x):
    made = [0.0]
    for i in prange(x.size):
        made.append(x[i])  # noqa: PERF401  what is refused
    return made


@njit(parallel=True)
def counts(x):
    made = {0: 0.0}
    for i in prange(x.size):
        made[i % 2] = x[i]
    return made


@njit(parallel=True)
def sums_in_a_list(x):
    made: list[float] = [0.0] * 4
    for i in prange(x.size):
        made[0] += x[i]
    return made[0]


@njit(parallel=True)
def sums_by_another_name(x):
    made = list(range(3))
    other = made
    for i in prange(x.size):
        other[0] += i
    return made


@njit
def bump(made, i):
    made.add(i)


@njit(parallel=True)
def shares_with_a_callee(x):
    made = {0}
    for i in prange(x.size):
        bump(made, i)
    return len(made)


@njit(parallel=True)
def shares_a_heap(x):
    made = [0.0]
    for i in prange(x.size):
        heapq.heappush(made, x[i])
    return made


@njit(parallel=True)
def appends_one(items, out):
    for i in prange(out.size):
        items.append(out[i])


@njit(parallel=True)
def sums_of_items(items, out):
    for i in prange(len(items)):
        s = 0.0
        for v in items[i]:
            s += v
        out[i] = s


@njit(parallel=True)
def makes_typed(x):
    made = List()
    made.append(0.0)
    for i in prange(x.size):
        x[i] = made[0]


@njit(parallel=True)
def appends_to_its_own(x, out):
    for i in prange(x.size):
        made = [0.0] * 1
        made.append(np.add(x[i], 1))
        out[i] = np.append(x, made)[-1] + heapq.heappop(made)


KIND = np.dtype([("a", np.float64), ("b", np.int32)])
TYPED_LIST = object()  # for a list of Numba's, which takes two seconds of compiling: not where tests are collected
GIVEN = [
    (appends_one, (TYPED_LIST, np.zeros(3)), "def ", "items is a List, whose changes are not seen"),
    (reads_first, (Dict.empty(int64, float64), np.zeros(3)), "def ", "items is a Dict"),
    (appends, (np.ones(3),), "made.append", "share a list, whose"),
    (counts, (np.ones(3),), "made[i % 2] =", "share a dict, whose"),
    (sums_in_a_list, (np.ones(3),), "made[0] += x[i]", "share a list, whose"),
    (sums_by_another_name, (np.ones(3),), "other[0] += i", "share a list, whose"),
    (shares_a_heap, (np.ones(3),), "heapq.heappush", "share a list, whose"),
    (shares_with_a_callee, (np.ones(3),), "made.add(i)", "share a set, whose"),
    (smoothed_by_name, (np.ones(3),), "mean_of_three(x=x)", "a stencil is called without its array in first place"),
    (makes_typed, (np.ones(3),), "made = List()", "the accesses of a typed List are not seen"),
]


@pytest.mark.parametrize(("kernel", "args", "text", "why"), GIVEN, ids=lambda each: getattr(each, "__name__", ""))
def test_what_is_not_seen_is_refused_where_it_stands(kernel, args, text, why):
    args = tuple(List([1.0, 2.0]) if each is TYPED_LIST else each for each in args)
    with pytest.raises(UnsupportedError) as raised:
        watch_call(kernel, args)
    place, _, told = str(raised.value).partition(": ")
    file, _, number = place.rpartition(":")
    assert why in told
    assert text in linecache.getline(file if "/" in file else __file__, int(number))


def test_arrays_in_a_typed_list_are_watched_as_in_a_tuple():
    rows = List([np.ones(2), np.ones(3)])
    seen, _ = watch_call(sums_of_items, (rows, out := np.zeros(2)))
    assert ([each.message for each in seen.findings], seen.accesses) == ([], 7)
    assert out.tolist() == [2, 3]
    seen, _ = watch_call(sums_of_items, (rows, np.zeros(1)))
    assert [each.message for each in seen.findings] == ["iteration 1 writes out at 1, which has 1 cell"]


def test_a_list_of_an_iteration_s_own_is_no_matter():
    seen, _ = watch_call(appends_to_its_own, (np.ones(3), out := np.zeros(3)))
    assert (seen.findings, out.tolist()) == ((), [2] * 3)
    with pytest.raises(UnsupportedError, match=r":\d+: lists, sets and dicts are watched in Python"):
        run_compiled(sums_in_a_list, (np.ones(3),))


@njit(parallel=True)
def halves(x, k):
    for i in prange(2 * x.size):
        if i % 2:
            x.real[i // 2] = i
        else:
            x.imag[(i // 2 + k) % x.size] = i
        if k and i < x.size:
            x[i] = k


@njit(parallel=True)
def narrow(x, n):
    parts = x.view(np.int8)
    for i in prange(parts.size):
        parts[i] = i + 100
        if i < n:
            x[i] = 70000


@njit(parallel=True)
def members(x, n):
    for i in prange(n * x.size):
        if i % 2:
            x[i // 2].a = i
        else:
            x.b[i // 2] = i


@njit(parallel=True)
def doubled(x, out):
    for i in prange(x.size):
        out[i] = 2 * x[i]


ROW, HALVES, COLUMNS = np.arange(9.0), np.zeros(9, np.complex128), np.ones((5, 6), np.complex64, order="F")
UNION = np.dtype({"names": ["a", "b"], "formats": [np.int32, np.int8], "offsets": [0, 3]})
PARTS = [
    (halves, (np.zeros(5, np.complex64), 0), ""),
    (halves, (np.zeros(5, np.complex64), 2), "x[0]"),
    (narrow, (np.zeros(5, np.int32), 0), ""),
    (narrow, (np.zeros(5, np.int32), 5), "x[0]"),
    (members, (np.zeros(5, KIND), 2), ""),
    (members, (np.zeros(5, UNION), 2), "x.b[0]"),
    (doubled, (ROW[:4], ROW[4:8]), ""),
    (doubled, (ROW[:8], ROW[1:]), "x[1]"),
    (doubled, (HALVES.real, HALVES.imag), ""),
    (doubled, (HALVES.real, HALVES.view(np.float64)[:9]), "x[1]"),
    (doubled, (COLUMNS[:4, 2], COLUMNS[1:, 3]), ""),
    (doubled, (COLUMNS[:4, 2], COLUMNS[1:, 2]), "x[1, 2]"),
    (doubled, (COLUMNS.T[:5, 1], COLUMNS[1, 1:]), "x[1, 1]"),
    (doubled, (COLUMNS[:, 2].real, COLUMNS[:, 2].imag), ""),
    (doubled, (COLUMNS.ravel("F")[:9], COLUMNS.ravel("F")[9:]), ""),
]


@pytest.mark.parametrize(("kernel", "args", "cell"), PARTS, ids=lambda each: getattr(each, "__name__", ""))
def test_parts_of_an_element_and_views_of_one_array_are_watched_by_their_bytes(kernel, args, cell):
    seen, _ = watch_call(kernel, args)
    assert [re.findall(r"x[.\w]*\[.*?\]", each.message)[0] for each in seen.findings][:1] == [cell] * bool(cell)
