from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest

import noyau
from noyau.timing.ranges import record_events


def test_a_range_is_an_event_of_its_thread_while_somebody_records():
    with noyau.range("before"):
        pass
    with record_events() as events, record_events() as others:
        with noyau.range("outer"), noyau.range("inner"):
            pass
        thread = threading.Thread(target=noyau.range("beside")(lambda: None))
        thread.start()
        thread.join()
    assert [each["name"] for each in events] == ["inner", "outer", "beside"] and len(others) == 3
    inner, outer, beside = events
    assert outer["ts"] <= inner["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]
    assert inner["tid"] == outer["tid"] != beside["tid"] and {each["ph"] for each in events} == {"X"}


def test_a_decorated_function_keeps_its_name_recurs_and_ends_its_range_where_it_fails():
    @noyau.range("step")
    def down(n):
        return down(n - 1) if n else 1 / 0

    with record_events() as events, pytest.raises(ZeroDivisionError):
        down(2)
    assert down.__name__ == "down" and [each["name"] for each in events] == ["step"] * 3


def test_ranges_are_those_of_nvtx_where_torch_has_a_gpu(monkeypatch):
    calls = []
    nvtx = SimpleNamespace(range_push=calls.append, range_pop=lambda: calls.append("pop"))
    cuda = SimpleNamespace(is_initialized=lambda: True, nvtx=nvtx)
    no_profiler = SimpleNamespace(_profiler_enabled=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, autograd=no_profiler, profiler=None))
    with noyau.range("load"):
        pass
    assert calls == ["load", "pop"]
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))  # as while it is being imported
    with noyau.range("early"):
        pass
    assert calls == ["load", "pop"]
