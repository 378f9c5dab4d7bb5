"""A program in C, C++ or CUDA C++ run as it is, its own main() and all, every access watched without a GPU."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from noyau.errors import BuildError, CheckError, InputError, UnsupportedError
from noyau.scripts.records import KernelSeen, ScriptCheck
from noyau.shadow.c import SUFFIXES
from noyau.shadow.c.building import Program, Source, built
from noyau.shadow.c.mapping import maps_of
from noyau.shadow.c.rewriting import blanked, rewritten
from noyau.shadow.c.running import Launch, Ran, run_whole
from noyau.shadow.c.telling import Told, findings
from noyau.shadow.c.watching import plans_for

TIME_S = 120.0  # of the processor, after which a run is ended


def check_program(
    path: Path,
    arguments: Sequence[str] = (),
    launch: tuple[tuple[int, ...], tuple[int, ...]] | None = None,
    time_s: float = TIME_S,
    *,
    flags: str = "",
    maps: bool = False,
) -> ScriptCheck:
    """Build a program as it is, run it with its arguments in the folder that this is in, and tell what its threads do
    wrong with memory: those of OpenMP, of POSIX and of C++, and of grids of CUDA, which need no GPU.

    What it prints is printed. A program with threads runs twice, the second time in silence, its work dealt otherwise.
    `launch`: (grid, block) in place of each that is written; `time_s`: of the processor, for a run; `flags`: for the
    compiler. InputError where there is no such file, or it has no main(); UnsupportedError, with the line, for what
    cannot be stood in for; BuildError where the text does not compile."""
    text = _text(path)
    language = SUFFIXES[path.suffix]
    own = tuple(shlex.split(flags))
    made = f'#line 1 "kernel.c"\n{rewritten(text, language, path.name)}'
    try:
        program = built(Source(made, language, own, path.resolve().parent))
    except (BuildError, UnsupportedError) as error:
        raise type(error)(f"{path.name}: {str(error).replace('kernel.c', path.name)}") from None
    forced = None if launch is None else Launch(_triple(launch[0]), _triple(launch[1]))
    plans = plans_for(text)
    runs, fault = list[Ran](), ""
    for number, plan in enumerate(dict.fromkeys((plans[0], plans[-1]))):
        is_first = number == 0
        words = [str(path), *arguments]
        try:
            ran, status = run_whole(program, words, plan, forced, time_s, shown=is_first, maps=maps and is_first)
        except CheckError as error:
            fault = fault or str(error)
            break
        runs.append(ran if is_first else _without_ends(ran))
        if is_first and not any(each.kind == "crash" for each in ran.faults):
            fault = f"it ended with status {status}" if status else ""
    return _told(path, text, language, program, runs, fault)


def _text(path: Path) -> str:
    try:
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; give FILE.c, FILE.cpp or FILE.cu") from None
    if not re.search(r"\bmain\s*\(", blanked(text)):
        call = f'noyau.check("{path}::FUNCTION", args)'
        raise InputError(f"{path} has no main(), so there is nothing to run; in Python, {call} calls a function of it")
    return text


def _triple(part: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*part, 1, 1)[:3]
    return x, y, z


def _without_ends(ran: Ran) -> Ran:
    """A run in silence: how it ends may be for want of what it reads."""
    return replace(ran, faults=tuple(each for each in ran.faults if each.kind != "crash"))


def _told(path: Path, text: str, language: str, program: Program, runs: Sequence[Ran], fault: str) -> ScriptCheck:
    if not runs:
        return ScriptCheck(path.name, (), fault)
    told = Told(path.name, path.stem, "main", language, str(path), text, {}, "")
    found, allowed = findings(runs, program.lines, told)
    notes = list(allowed)
    if runs[0].launches:
        notes.append(f"threads took turns: {runs[0].threads} in {runs[0].launches} launches")
    seen = KernelSeen(
        path.stem, language, told.entry_place, len(runs), (), sum(each.accesses for each in runs), found, tuple(notes)
    )
    return ScriptCheck(path.name, (seen,), fault, maps=maps_of(runs[0], program.lines, told))
