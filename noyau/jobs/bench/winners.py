"""The winner of a race among an op's kernels, recorded for later calls."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from noyau.errors import OutputError
from noyau.jobs.bench.record import BenchPoint
from noyau.jobs.bench.tile_sizes import read_tiles
from noyau.kernels.programs.generate import CPU, Specialization, generate
from noyau.kernels.trust import ineligible
from noyau.ops.dispatch.choice import REFERENCE
from noyau.ops.dispatch.winners import Winner, record, text_digest, usual_text
from noyau.ops.op import Op
from noyau.timing.comparison import Verdict
from noyau.toolchain.cache import today


def record_winner(op: Op[..., Any], at: BenchPoint, request: Specialization, cells: int) -> None:
    """Let calls like the one that was timed run what won; where the cache cannot be written, nothing is recorded."""
    if any(is_able(row.name, op, request) for row in at.ranked):
        with contextlib.suppress(OutputError):
            record(op.description, request, [winner_of(op, at, request, cells)])
        op.calls.forget()


def is_able(name: str, op: Op[..., Any], request: Specialization) -> bool:
    """Whether calls may run a candidate; a generated one with other sizes of tiles is one as well."""
    own = name.partition(" (")[0] if request.device != CPU and name.startswith("generated ") else name
    return own in [REFERENCE, *by_default(op, request)]


def winner_of(op: Op[..., Any], at: BenchPoint, request: Specialization, cells: int) -> Winner:
    """The fastest kernel that may run, where it is surely faster than what runs by default; else that one."""
    names = [row.name for row in at.ranked if is_able(row.name, op, request)]
    usual = next((name for name in by_default(op, request) if name in names), REFERENCE)
    usual = usual if usual in names else names[-1]
    best = names[0] if at.comparison(names[0], usual).verdict is Verdict.FASTER else usual
    median_s, kernel = at.time_s(best) or 0.0, op.kernels.get(best)
    if kernel is not None:
        name, parted, _ = best.partition(" (")
        constants = tuple(sorted(kernel.usage.constants.items())) if parted else ()
        return Winner(cells, name, text_digest(kernel.text), median_s, today(), constants)
    if best == REFERENCE:
        return Winner(cells, REFERENCE, usual_text(op.description, request), median_s, today())
    language, tiles = best.partition(" (")[0].removeprefix("generated "), read_tiles(best)
    text = text_digest(generate(op.description, request, language).text)
    return Winner(cells, language, text, median_s, today(), tuple(sorted(tiles.items())))


def by_default(op: Op[..., Any], request: Specialization) -> Iterator[str]:
    """Candidates that may run, in the order in which a call takes them where nothing was timed."""
    reference = op.description.reference
    key = (reference, request.instance, request.constants, request.device)
    able = [each for each in op.kernels.values() if not ineligible(each, *key)]
    yield from (kernel.name for kernel in able if kernel.usage.trust)
    yield from (f"generated {language}" for language in request.languages)
    yield from (kernel.name for kernel in able if not kernel.usage.trust)
