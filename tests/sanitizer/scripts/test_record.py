from __future__ import annotations

import numpy as np
import pytest

from noyau.errors import FindingKind
from noyau.sanitizer.access_map import AccessMap, ArrayMap, Owner
from noyau.sanitizer.records import WatchedRun
from noyau.sanitizer.scripts.record import ScriptSession, describe_shapes, is_counted
from noyau.verify.findings import Finding


def race(line):
    return Finding("s.py", "k", "numba", FindingKind.RACE, f"s.py:{line}", "", "told", digest=str(line))


def test_calls_of_one_kernel_are_one_entry():
    session = ScriptSession("s.py")
    session.add("k", "numba", "s.py:1", "x: f8[3]", WatchedRun((race(5),), 10))
    session.add("k", "numba", "s.py:1", "x: f8[4]", WatchedRun((race(5), race(6)), 20, notes=("a note",)))
    (kernel,) = session.finish().kernels
    assert (kernel.calls, kernel.shapes, kernel.accesses) == (2, ("x: f8[3]", "x: f8[4]"), 30)
    assert [each.digest for each in kernel.findings] == ["5", "6"]
    assert kernel.verdict()[0] == "k: watched in 2 calls, 2 shapes, 30 accesses; a note"


def test_what_was_not_seen_is_said():
    session = ScriptSession("s.py")
    session.add("k", "numba", "s.py:1", "", None, "it reads a file")
    found = session.finish()
    assert str(found) == "k: not checked: it reads a file"
    assert (found.ok, found.is_verified) == (True, False)


def test_a_launch_that_touches_nothing_is_not_verified():
    session = ScriptSession("s.py")
    session.add("k", "triton", "s.py:1", "x: f4[3]", WatchedRun((), 0))
    found = session.finish()
    assert str(found) == "k: not verified: no access to an array was seen in 1 call, 1 shape"
    assert (found.ok, found.is_verified) == (True, False)
    session.add("k", "triton", "s.py:1", "x: f4[3]", WatchedRun((), 9))
    assert session.finish().is_verified


def test_findings_are_told_where_other_calls_are_not_seen():
    session = ScriptSession("s.py")
    session.add("k", "numba", "s.py:1", "x: f8[3]", WatchedRun((race(5),), 10))
    session.add("k", "numba", "s.py:1", "x: f8[3]", None, "it reads a file")
    lines = str(session.finish()).splitlines()
    assert lines[0].startswith("k: race: told")
    assert lines[-2:] == [
        "k: watched in part of 2 calls, 1 shape, 10 accesses",
        "k: not verified: not all accesses are seen: it reads a file",
    ]


def test_two_kernels_of_one_name_have_a_map_each():
    session = ScriptSession("s.py", maps={})
    for place in ("s.py:1", "s.py:9"):
        assert session.trace("k", place) is not None
        drawn = ArrayMap("x", (1,), (0,), (0,))
        session.draw(AccessMap("k", f"[{place}]", "thread", {0: Owner("", "0")}, (drawn,)), place)
        assert session.trace("k", place) is None
    assert [each.launch for each in session.finish().maps] == ["[s.py:1]", "[s.py:9]"]


def test_a_script_without_kernels():
    assert (
        str(ScriptSession("s.py").finish())
        == "s.py: not verified: no parallel loop of Numba ran in it, and no kernel was launched"
    )
    fault = "it ended with ValueError: no (line 3)"
    assert str(ScriptSession("s.py").finish(fault)) == f"s.py: {fault}, before any launch or parallel loop was over"


def test_a_warning_does_not_make_it_bad():
    session = ScriptSession("s.py")
    told = Finding(
        "s.py", "k", "numba", FindingKind.NEGATIVE_INDEX, "s.py:1", "", "told", severity="warning", digest="1"
    )
    session.add("k", "numba", "s.py:1", "", WatchedRun((told,), 1))
    assert session.finish().ok
    session.find_unwritten("k", "s.py:1", "numba", "2 cells", "write them")
    session.find_unwritten("k", "s.py:1", "numba", "2 cells", "write them")
    assert len(session.finish().findings) == 2
    assert not session.finish().ok


def test_arguments_in_short():
    assert describe_shapes(["x", "n", "f"], [np.zeros((2, 3), np.float32), 4, print]) == "x: float32[2, 3], n = 4, f"
    words = describe_shapes(list("abcdefgh"), range(8))
    assert words == "a = 0, b = 1, c = 2, d = 3, e = 4, f = 5 and 2 more"


@pytest.mark.parametrize(
    ("shape", "many", "counts", "wanted"),
    [
        ((9,), 5, [5], True),
        ((9,), 5, [4, 6], False),
        ((9,), 0, [0], False),
        ((4, 3), 6, [2], True),
        ((4, 3), 5, [2], False),
    ],
)
def test_a_number_that_a_kernel_wrote_says_how_much_of_a_result_is_meant(shape, many, counts, wanted):
    is_set = np.zeros(shape, bool)
    is_set.reshape(-1)[:many] = True
    assert is_counted(is_set, counts) == wanted
    assert not is_counted(is_set[::-1], counts)
