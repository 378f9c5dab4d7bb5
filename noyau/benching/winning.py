"""Which kernel of an op won a race, as later calls are to know it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from noyau.benching.records import At
from noyau.builders.records import today
from noyau.dispatching.choosing import REFERENCE
from noyau.dispatching.generating import GENERATED, Wanted, generate
from noyau.dispatching.records import Winner, record, text_digest
from noyau.errors import OutputError
from noyau.handwritten.trusting import ineligible
from noyau.ops import Op
from noyau.timing.comparing import Verdict


def record_winner(op: Op[..., Any], at: At, wanted: Wanted, cells: int) -> None:
    """Let calls like the one that was timed run what won; where the cache cannot be written, nothing is recorded."""
    if at.ranked:
        with contextlib.suppress(OutputError):
            record(op.description, wanted, [winner_of(op, at, wanted, cells)])
        op.calls.forget()


def winner_of(op: Op[..., Any], at: At, wanted: Wanted, cells: int) -> Winner:
    """The fastest kernel that may run, where it is surely faster than what runs by default; else that one."""
    able = [REFERENCE, *by_default(op, wanted)]
    names = [row.name for row in at.ranked if row.name in able]
    usual = next((name for name in by_default(op, wanted) if name in names), REFERENCE)
    best = names[0] if at.comparison(names[0], usual).verdict is Verdict.FASTER else usual
    median_s, kernel = at.time_s(best) or 0.0, op.kernels.get(best)
    if kernel is not None:
        name, parted, _ = best.partition(" (")
        constants = tuple(sorted(kernel.usage.constants.items())) if parted else ()
        return Winner(cells, name, text_digest(kernel.text), median_s, today(), constants)
    language = best.removeprefix("generated ")
    text = generate(op.description, wanted, language).text if language in GENERATED else ""
    return Winner(cells, language, text_digest(text), median_s, today())


def by_default(op: Op[..., Any], wanted: Wanted) -> Iterator[str]:
    """Candidates that may run, in the order in which a call takes them where nothing was timed."""
    reference = op.description.reference
    able = [each for each in op.kernels.values() if not ineligible(each, reference, wanted.instance, wanted.constants)]
    yield from (kernel.name for kernel in able if kernel.usage.trust)
    yield from (f"generated {language}" for language in GENERATED)
    yield from (kernel.name for kernel in able if not kernel.usage.trust)
