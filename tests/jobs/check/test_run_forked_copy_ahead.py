from __future__ import annotations

import threading

import pytest

from noyau.errors import BuildError
from noyau.jobs.check import run


@pytest.fixture
def done(monkeypatch):
    """What is done, in order, and by whom."""
    found = []

    def did(what):
        return lambda **given: found.append((what, given, threading.current_thread() is threading.main_thread()))

    monkeypatch.setattr(run, "begin", did("numba"))
    monkeypatch.setattr(run.engine, "library", did("shadow"))
    monkeypatch.setattr(run.build, "runtime", did("runtime"))
    return found


def test_what_watches_is_built_beside_the_loading_of_numba(done):
    run.prepare({"c", "numba", "python"})
    assert ("numba", {}, True) in done
    assert [each for each in done if not each[2]] == [("runtime", {"in_cpp": False}, False), ("shadow", {}, False)]
    assert "noyau-ahead" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize(
    ("languages", "runtimes"), [((), []), (("numba", "triton"), []), (("cuda",), [True]), (("c", "cpp"), [False, True])]
)
def test_a_runtime_is_built_where_some_kernel_needs_it(done, languages, runtimes):
    run.prepare(languages)
    assert [given["in_cpp"] for what, given, _ in done if what == "runtime"] == runtimes


def test_what_cannot_be_built_is_left_to_who_needs_it(done, monkeypatch):
    def refused(**given):
        raise BuildError("no C compiler")

    monkeypatch.setattr(run.build, "runtime", refused)
    run.prepare({"c"})
    assert [what for what, _, _ in sorted(done, key=str)] == ["numba", "shadow"]
