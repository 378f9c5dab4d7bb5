"""What is said of the launches that a program in CUDA C++ made, each with the grid and the block that it had."""

from __future__ import annotations

import re
from collections.abc import Iterator

from noyau.errors import FindingKind
from noyau.kernels.buffers import GPU
from noyau.kernels.c.syntax import syntax
from noyau.sanitizer.c.debug_info import Lines
from noyau.sanitizer.c.findings import Told, site_of, source_of
from noyau.sanitizer.c.run import Launched, Ran
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
    text = source_of(site, told)
    launch = syntax(text, "cuda").launch_on(site.line)
    name, line = (launch.name, launch.line) if launch else ("", site.line)
    grid, block = launched.launch.grid, launched.launch.block
    sm_count = 0 if _ASKED.search(text) else GPU.sm_count
    made = Launch(grid, block, (launched.cells,), text_of(text, name), launched.idle, sm_count)
    for message, mend in advise(made):
        yield Remark(FindingKind.LAUNCH, site.file, line, message, mend, name or told.kernel)


def text_of(text: str, name: str) -> str:
    """A kernel, and the functions of its text that it names; the whole text where it is not in it."""
    tree = syntax(text, "cuda")
    bodies = [(each.name, each.body) for each in tree.macros] + [(each.name, each.body) for each in tree.functions]
    known = {name: tree.source(body) for name, body in bodies if body}
    if name not in known:
        return text
    names, waiting = {name}, [name]
    while waiting:
        others = set(re.findall(r"\w+", known[waiting.pop()])) & known.keys() - names
        names |= others
        waiting += others
    return "\n".join(known[each] for each in names)
