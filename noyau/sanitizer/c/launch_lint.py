"""Lint of the launches of a program in CUDA C++, by the grid and the block that each had."""

from __future__ import annotations

import re
from collections.abc import Iterator

from noyau.errors import FindingKind
from noyau.kernels.buffers import GPU
from noyau.kernels.c.syntax import syntax
from noyau.sanitizer.c.debug_info import LineTable
from noyau.sanitizer.c.findings import ReportContext, site_of, source_of
from noyau.sanitizer.c.run import LaunchRecord, RunResult
from noyau.sanitizer.lint.diagnostics import Diagnostic
from noyau.sanitizer.lint.launches import LaunchFacts, advise
from noyau.sanitizer.records import Site
from noyau.verify.findings import Finding

# A program that asks for these sizes its grids by the machine, which is a small one here.
_ASKED = re.compile(r"multiprocessorcount|cudaoccupancy", re.IGNORECASE)


def diagnose_launches(ran: RunResult, lines: LineTable, context: ReportContext) -> list[Finding]:
    """Warnings on the launches of a run, each on its line; of launches that are alike there is one."""
    warnings: dict[tuple[int, str], Finding] = {}
    for each in ran.grids:
        site = site_of(lines.at(each.site), context)
        for diagnostic in _diagnostics(each, site, context) if site is not None else ():
            if not diagnostic.is_allowed:
                warnings.setdefault(
                    (diagnostic.line, diagnostic.message),
                    diagnostic.finding(context.op, diagnostic.about, context.language),
                )
    return list(warnings.values())


def _diagnostics(launched: LaunchRecord, site: Site, context: ReportContext) -> Iterator[Diagnostic]:
    text = source_of(site, context)
    launch = syntax(text, "cuda").launch_on(site.line)
    name, line = (launch.name, launch.line) if launch else ("", site.line)
    grid, block = launched.launch.grid, launched.launch.block
    sm_count = 0 if _ASKED.search(text) else GPU.sm_count
    facts = LaunchFacts(grid, block, (launched.cells,), text_of(text, name), launched.idle, sm_count)
    for message, mend in advise(facts):
        yield Diagnostic(FindingKind.LAUNCH, site.file, line, message, mend, name or context.kernel)


def text_of(text: str, name: str) -> str:
    """A kernel, and the functions of its text that it names; the whole text where it is not in it."""
    tree = syntax(text, "cuda")
    bodies = [(each.name, each.body) for each in tree.macros] + [(each.name, each.body) for each in tree.functions]
    texts = {name: tree.source(body) for name, body in bodies if body}
    if name not in texts:
        return text
    names, waiting = {name}, [name]
    while waiting:
        others = set(re.findall(r"\w+", texts[waiting.pop()])) & texts.keys() - names
        names |= others
        waiting += others
    return "\n".join(texts[each] for each in names)
