"""What is said of the launches that a program in CUDA C++ made, each with the grid and the block that it had."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator

from noyau.errors import FindingKind
from noyau.kernels.buffers import GPU
from noyau.kernels.c.prototypes import blanked
from noyau.sanitizer.c.debug_info import Lines
from noyau.sanitizer.c.findings import LAUNCHED, Told, site_of
from noyau.sanitizer.c.run import Launched, Ran
from noyau.sanitizer.lint.c_clocks import functions_in
from noyau.sanitizer.lint.diagnostics import Remark
from noyau.sanitizer.lint.launches import Launch, advise
from noyau.sanitizer.records import Site
from noyau.verify.findings import Finding

# A program that asks for these sizes its grids by the machine, which is a small one here.
_ASKED = re.compile(r"multiprocessorcount|cudaoccupancy", re.IGNORECASE)


def advised(ran: Ran, lines: Lines, told: Told) -> list[Finding]:
    """Warnings on the launches of a run, each on its line; of launches that are alike there is one."""
    found: dict[tuple[int, str], Finding] = {}
    for each in ran.grids:
        site = site_of(lines.at(each.site), told)
        for made in _remarks(each, site, told) if site is not None else ():
            if not made.is_allowed:
                found.setdefault((made.line, made.message), made.finding(told.op, made.about, told.language))
    return list(found.values())


def _remarks(launched: Launched, site: Site, told: Told) -> Iterator[Remark]:
    text = told.text if site.file == told.place else "".join(linecache.getlines(site.file))
    name, line = kernel_at(text, site.line)
    grid, block = launched.launch.grid, launched.launch.block
    sm_count = 0 if _ASKED.search(text) else GPU.sm_count
    made = Launch(grid, block, (launched.cells,), text_of(text, name), launched.idle, sm_count)
    for message, mend in advise(made):
        yield Remark(FindingKind.LAUNCH, site.file, line, message, mend, name or told.kernel)


def kernel_at(text: str, line: int) -> tuple[str, int]:
    """The kernel of the launch that is written on a line, or over it, and the line that it begins on; nothing, and the
    line itself, where there is none, or several."""
    clean, found = blanked(text), set[tuple[str, int]]()
    for each in LAUNCHED.finditer(clean):
        first = clean.count("\n", 0, each.start()) + 1
        end = clean.find(";", each.end())
        if first <= line <= clean.count("\n", 0, end if end >= 0 else len(clean)) + 1:
            found.add((each[1], first))
    return found.pop() if len(found) == 1 else ("", line)


def text_of(text: str, name: str) -> str:
    """A kernel, and the functions of its text that it names; the whole text where it is not found in it."""
    known = {each.name: each.text for each in functions_in(text)}
    if name not in known:
        return text
    kept, left = {name}, [name]
    while left:
        named = set(re.findall(r"\w+", known[left.pop()])) & known.keys() - kept
        kept |= named
        left += named
    return "\n".join(known[each] for each in kept)
