from __future__ import annotations

import sys
from importlib import import_module

from noyau.jobs.check import script_run
from noyau.jobs.check.script_run import hooks_of_script
from noyau.sanitizer.scripts.record import ScriptSession
from noyau.timing.comparison import allowed_s


def notes(monkeypatch, text, missing=()):
    find = script_run.find_spec
    monkeypatch.setattr(script_run, "find_spec", lambda name: None if name in missing else find(name))
    session = ScriptSession("s.py")
    with hooks_of_script(session, None, text):
        pass
    return session.notes


def test_what_is_not_installed_is_said_where_it_is_asked_for(monkeypatch):
    numba = "numba is not installed, so none of its kernels can run; run: pip install numba"
    assert notes(monkeypatch, "import numba", ("numba",)) == [numba]
    assert notes(monkeypatch, "import math", ("numba", "triton")) == []


def test_triton_is_asked_for_by_what_speaks_of_it(monkeypatch):
    told = "triton is not installed, so no kernel of Triton can run; run: pip install triton"
    assert notes(monkeypatch, "import triton", ("numba", "triton")) == [told]


def test_triton_that_compiles_is_not_watched(monkeypatch):
    import_module("triton.runtime.jit")
    monkeypatch.setitem(sys.modules, "triton", sys)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    (told,) = notes(monkeypatch, "import triton", ("numba",))
    assert told.startswith("Triton was imported before and compiles: its launches are not watched; set TRITON_INTERP")


def test_clocks_are_brief_while_a_script_is_watched():
    with hooks_of_script(ScriptSession("s.py"), None, ""):
        assert allowed_s(2.0) == 0.0
    assert allowed_s(2.0) == 2.0
