from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from numba import njit, prange

import noyau
from noyau.errors import InputError
from noyau.jobs.check import command, script_run


@njit(parallel=True)
def meet(c):
    for _ in prange(10):
        c[0] += 1


class Shell:
    """As much of IPython as the magic asks for."""

    def __init__(self):
        self.magics = {}

    def register_magic_function(self, function, kind, name):
        self.magics[kind, name] = function

    def run_cell(self, text):
        exec(text, {"meet": meet, "np": np})
        return SimpleNamespace(success=True)


def test_a_cell_is_run_and_watched(capsys):
    shell = Shell()
    noyau.load_ipython_extension(shell)
    check = shell.magics["cell", "check"]("", "meet(np.zeros(1))\nprint('ran')")
    assert capsys.readouterr().out == "ran\n"
    assert "meet: race: iteration 1 writes c[0], written by iteration 0 on the same line" in repr(check)
    assert "</b> in <code>meet</code>" in check._repr_html_()


@pytest.fixture
def asking(monkeypatch):
    """Hooks that ask Triton to interpret, and leave it so."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(
        script_run, "hooks_of_script", lambda *_: nullcontext(monkeypatch.setenv("TRITON_INTERPRET", "1"))
    )


def test_that_triton_interprets_from_here_on_is_said_once(asking, monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    told = "cell: Triton interprets in this process from here on, also in other cells; restart to compile"
    for times in (1, 0):
        assert str(command.check_cell(Shell(), "", "pass")).count(told) == times


def test_triton_that_no_cell_imports_compiles_later(asking, monkeypatch):
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    assert "Triton" not in str(command.check_cell(Shell(), "", "pass"))
    assert "TRITON_INTERPRET" not in os.environ


def test_other_words_are_refused():
    shell = Shell()
    noyau.load_ipython_extension(shell)
    with pytest.raises(InputError, match=r"^%%check takes --launch GRID,BLOCK or nothing, not '--grid 3'$"):
        shell.magics["cell", "check"]("--grid 3", "pass")
