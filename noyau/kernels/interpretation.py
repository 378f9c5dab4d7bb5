"""Runs of a GPU kernel by Python in place of a GPU: their names in reports, and errors of kernels and stand-ins."""

from __future__ import annotations

import linecache
import sys
import traceback
from importlib import import_module
from pathlib import Path

from noyau.errors import NoyauError, RaisedError, UnsupportedError

_OWN = (AssertionError, NameError, ZeroDivisionError)  # wherever they come from, the kernel says or does it
_STAND_INS = ("noyau", "triton", "numba", "numba.cuda", "numpy", "torch")  # packages that run kernels without one
_COMPILER = "triton/language/"  # what refuses a kernel there, refuses it on a GPU as well


INTERPRETED = "in Triton's interpreter"  # the place where kernels run, as a report says it


def interpreter_version() -> str:
    """Triton's interpreter as the machine that a check depends on."""
    return f"triton {import_module('triton').__version__}, interpreted"


def first_cause(fault: BaseException) -> BaseException:
    """The error that was raised first, of which Triton's interpreter raises its own."""
    while fault.__cause__ is not None and fault.__cause__.__traceback__ is not None:
        fault = fault.__cause__
    return fault


def error_of(called: str, fault: BaseException) -> NoyauError:
    """The error to raise in place of one that a kernel raised where Python runs it.

    RaisedError where the kernel raises it by itself (`raise`, `assert`, an unknown name) or its compiler would refuse
    it too. UnsupportedError for all else: it comes of what stands in for the GPU, and says nothing of the kernel."""
    root = first_cause(fault)
    frames = traceback.extract_tb(root.__traceback__)
    last = frames[-1]
    files = [sys.modules[name].__file__ for name in _STAND_INS if name in sys.modules]
    folders = [Path(file).parent for file in files if file is not None]
    own = next((each for each in reversed(frames) if not any(map(Path(each.filename).is_relative_to, folders))), None)
    text = "" if own is None else (own.line or linecache.getline(own.filename, own.lineno or 0)).strip()
    is_raised = own is last and text.startswith(("raise ", "assert "))
    summary = f"raised {type(root).__name__}: {' '.join(str(root).split())}".rstrip(": ")
    is_lacking = isinstance(root, AttributeError)  # a word that its stand-in does not have, or not with such arguments
    if is_raised or isinstance(root, _OWN) or (_COMPILER in last.filename and not is_lacking):
        return RaisedError(f"{called} {summary}")
    place = "" if own is None else f" at {Path(own.filename).name}:{own.lineno}, {text!r}"
    words = [f"tl.{each.name}" for each in frames if _COMPILER in each.filename and each.name != "wrapper"]
    remedy = "check it where there is a GPU, with --sanitizer, or write the line otherwise"
    return UnsupportedError(f"without a GPU {(words or ['it'])[0]} {summary}{place}; {remedy}")
