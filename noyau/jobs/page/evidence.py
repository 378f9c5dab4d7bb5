"""Certificates on a page: the cases that a kernel was tried on, its source, and how its errors are distributed."""

from __future__ import annotations

from collections.abc import Iterable

from noyau.codegen.plan import Planned, describe
from noyau.jobs.page.document import Axis, Column, Plot, Series, Source, Table, at
from noyau.verify.certificate import Certificate

_CASES = (
    Column("case", "text"),
    Column("cells"),
    Column("of what is allowed", hint="the worst error over the largest that is allowed: 1 is the limit"),
    Column("worst ulp"),
    Column("unfused"),
)


def cases(certificate: Certificate) -> Table:
    """The cases of a certificate."""
    rows = tuple(
        (
            f"{each.label}{' (captured)' if each.captured else ''}",
            at(f"{each.cells:,}", each.cells),
            at(f"{each.worst_ratio:.2f}", each.worst_ratio),
            at(f"{each.kernel.worst_ulp:.3g}", each.kernel.worst_ulp),
            at(f"{each.unfused.worst_ulp:.3g}", each.unfused.worst_ulp),
        )
        for each in certificate.outcomes
    )
    return Table("Cases", _CASES, rows)


def source_of(planned: Planned, words: str, certificate: Certificate | None) -> Source:
    """The text of a kernel under what it replaces; `words`: its certificate, or why there is none."""
    facts = tuple(("", line) for line in describe(planned).splitlines())
    table = None if certificate is None else cases(certificate)
    return Source(planned.operator, planned.operator, planned.text, words, facts, table)


def error_plot(certificates: Iterable[tuple[str, Certificate | None]]) -> Plot:
    """Of each kernel, the share of its cases whose worst error is at most so much of what is allowed."""
    series = []
    for name, certificate in certificates:
        ratios = sorted(each.worst_ratio for each in (certificate.outcomes if certificate else ()) if each.cells)
        steps = [(ratio, n / len(ratios)) for k, ratio in enumerate(ratios) for n in (k, k + 1)]
        series.append(Series(name, tuple((ratio, share, None, None) for ratio, share in steps), "line"))
    x = Axis("worst error of a case over what is allowed", is_log=False, marks=(("allowed", 1.0),))
    note = "Each step is a case. Right of 1 a kernel is wrong; at 0 every cell is the nearest number to the truth."
    return Plot("How exact the kernels are", x, Axis("share of the cases", is_log=False), tuple(series), note)
