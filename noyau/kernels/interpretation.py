"""Errors of a GPU kernel that Python runs in place of a GPU: those of the kernel itself, and those of the stand-ins."""

from __future__ import annotations

import linecache
import traceback
from importlib.util import find_spec
from pathlib import Path

from noyau.errors import NoyauError, RaisedError, UnsupportedError

_OWN = (AssertionError, NameError, ZeroDivisionError)  # wherever they come from, the kernel says or does it
_STAND_INS = ("noyau", "triton", "numba", "numba_cuda", "numpy", "torch")
_COMPILER = ("triton/language/",)  # what refuses a kernel there, refuses it on a GPU as well


def error_of(called: str, fault: BaseException) -> NoyauError:
    """The error to raise in place of one that a kernel raised where Python runs it.

    RaisedError where the kernel raises it by itself (`raise`, `assert`, an unknown name) or its compiler would refuse
    it too. UnsupportedError for all else: it comes of what stands in for the GPU, and says nothing of the kernel."""
    root = _root(fault)
    frames = traceback.extract_tb(root.__traceback__)
    last = frames[-1]
    own = next((each for each in reversed(frames) if not _is_stand_in(each.filename)), None)
    text = "" if own is None else (own.line or linecache.getline(own.filename, own.lineno or 0)).strip()
    is_raised = own is last and text.startswith(("raise ", "assert "))
    summary = f"raised {type(root).__name__}: {' '.join(str(root).split())}".rstrip(": ")
    if is_raised or isinstance(root, _OWN) or any(each in last.filename for each in _COMPILER):
        return RaisedError(f"{called} {summary}")
    place = "" if own is None else f" at {Path(own.filename).name}:{own.lineno}, {text!r}"
    remedy = "check it where there is a GPU, with --sanitizer, or write the line otherwise"
    return UnsupportedError(f"without a GPU it {summary}{place}; {remedy}")


def _root(fault: BaseException) -> BaseException:
    """The error that began it: Triton's interpreter raises one of its own from that."""
    while fault.__cause__ is not None:
        fault = fault.__cause__
    return fault


def _is_stand_in(file: str) -> bool:
    """Whether a file is of a package that runs kernels in place of a GPU."""
    return any(Path(file).is_relative_to(folder) for folder in _folders())


def _folders() -> list[Path]:
    specs = [find_spec(name) for name in _STAND_INS]
    return [Path(spec.origin).parent for spec in specs if spec is not None and spec.origin is not None]
