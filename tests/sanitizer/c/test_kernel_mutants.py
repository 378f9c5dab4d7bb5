"""Mutants of right kernels are found, by the kind that is known of each; those that are equivalent are listed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from noyau.sanitizer.c.kernel import watch_together
from tests.sanitizer.c import mutants
from tests.sanitizer.c.cases import case_of, told
from tests.sanitizer.c.test_kernel_correct import CUDA
from tests.sanitizer.c.test_kernel_openmp import CASES

FOLDER = Path(__file__).parent
FILES = {"correct.cu": ("cuda", mutants.CUDA, CUDA), "correct.c": ("c", mutants.OPENMP, CASES)}

# Mutants that do nothing wrong, by function and rule, with what stood on the line, and why.
EQUIVALENT = {
    ("scan_blelloch", "a barrier is dropped", 126): "on the last level each thread writes the cells that it reads then",
    ("sum_of_partials", "nobody waits", 48): "what one thread writes is read after the region",
    ("fib", "nobody waits", 136): "the region ends there, and waits",
    ("pipeline_of_tasks", "nobody waits", 164): "the region ends there, and waits",
}


def watched(file, step):
    """Each mutant of a file, or one of so many, with what was found; all are built together."""
    language, rules, cases = FILES[file]
    text = (FOLDER / file).read_text("ascii")
    by_name = {each.entry: each for each in cases}
    chosen = [each for each in mutants.mutants(text, rules) if each.of in by_name][::step]
    whole = text + "\n" + "\n".join(each.text for each in chosen)
    wanted = [replace(by_name[each.of], entry=each.name) for each in chosen]
    seen = watch_together([case_of(whole, language, "a text", each) for each in wanted])
    return list(zip(chosen, seen, strict=True))


@pytest.mark.parametrize(
    ("file", "least", "step"),
    [("correct.cu", 80, 3), pytest.param("correct.cu", 80, 1, marks=pytest.mark.long), ("correct.c", 30, 1)],
)
def test_mutants_are_found_by_their_kind(file, least, step):
    found = watched(file, step)
    excluded = [each for each, _ in found if (each.of, each.rule, each.line) in EQUIVALENT]
    missed = [
        f"{each.of}, line {each.line}: {each.rule}: {told(seen)}"
        for each, seen in found
        if each not in excluded and not each.kinds & {finding.kind for finding in seen.findings}
    ]
    assert len(found) >= least / step
    assert len(excluded) <= 0.1 * len(found)
    assert len(missed) <= 0.05 * len(found), missed
