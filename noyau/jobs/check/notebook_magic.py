"""%%check in notebooks: a cell is run, and every parallel loop and launch in it is watched."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any

from noyau.errors import InputError
from noyau.jobs.check.script_command import launch_of
from noyau.jobs.check.script_run import hooks_of_script
from noyau.sanitizer.scripts.lint import lint_text
from noyau.sanitizer.scripts.record import ScriptSession

_INTERPRETS = "Triton interprets in this process from here on, also in other cells; restart to compile"


def register(shell: Any) -> None:
    """Make %%check known to a shell of IPython."""
    shell.register_magic_function(lambda line, cell: check_cell(shell, line, cell), "cell", "check")


def check_cell(shell: Any, line: str, cell: str) -> None:
    """Run a cell with its kernels watched, and print what was seen. `line`: nothing, or `--launch GRID,BLOCK`.
    InputError for other words."""
    words = line.split()
    if words and (len(words) != 2 or words[0] != "--launch"):
        raise InputError(f"%%check takes --launch GRID,BLOCK or nothing, not {line!r}")
    session = ScriptSession("cell")
    before = os.environ.get("TRITON_INTERPRET")
    with hooks_of_script(session, launch_of(words[1]) if words else None, cell):
        ended = shell.run_cell(cell)
    if before != os.environ.get("TRITON_INTERPRET"):
        session.notes.append(_INTERPRETS)
    record = session.finished("" if ended.success else "it ended with an exception")
    with_advice = replace(record, advice=(*record.advice, *lint_text(cell, "cell")))
    sys.stdout.write(f"{with_advice}\n")
