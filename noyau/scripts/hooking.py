"""What is watched while a script, or a cell of a notebook, runs: of the packages that are installed."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import Any

from noyau.checking.bare import OBSERVERS
from noyau.checking.findings import KernelCheck
from noyau.scripts.records import Session
from noyau.shadow.records import Watched
from noyau.timing.brief import briefly

_COMPILES = "Triton was imported before and compiles: its launches are not watched; set TRITON_INTERPRET=1 and restart"


@contextmanager
def hooked(session: Session, launch: Any, text: str) -> Iterator[None]:
    """Parallel functions of Numba and kernels of Numba-CUDA and Triton that are called in the meantime are watched, for
    `session`. `launch`: (grid, block) in place of what is written; `text`: what runs, since Triton is only imported
    for what speaks of it."""

    def judged(check: KernelCheck, place: str) -> None:
        """A check of a kernel on no op, which the script asks for."""
        told = () if check.certificate is None or not check.certificate.ok else (check.certificate.summary(),)
        watched = Watched(check.findings, check.accesses or 0, notes=told)
        session.add(check.name, check.language, place, ", ".join(check.shapes), watched)

    with ExitStack() as undone:
        undone.enter_context(briefly())
        OBSERVERS.append(judged)
        undone.callback(OBSERVERS.remove, judged)
        if find_spec("numba") is not None:
            from noyau.scripts import numba_hooks

            undone.enter_context(numba_hooks.hooked(session, launch))
        elif _names(text, "numba"):
            session.notes.append("numba is not installed, so none of its kernels can run; run: pip install numba")
        if _names(text, "triton") and _interprets(session):
            from noyau.scripts import triton_hooks

            undone.enter_context(triton_hooks.hooked(session, launch and launch[0]))
        yield


def _names(text: str, package: str) -> bool:
    """Whether a text speaks of a package."""
    return re.search(rf"\b{package}\b", text) is not None


def _interprets(session: Session) -> bool:
    """Whether Triton is there and interprets in this process, or will."""
    missing = next((name for name in ("triton", "torch") if find_spec(name) is None), None)
    if missing is not None:
        session.notes.append(f"{missing} is not installed, so no kernel of Triton can run; run: pip install {missing}")
        return False
    if "triton" not in sys.modules:
        os.environ["TRITON_INTERPRET"] = "1"  # read as Triton is imported
    elif os.environ.get("TRITON_INTERPRET", "0") in ("", "0"):
        session.notes.append(_COMPILES)
        return False
    return True
