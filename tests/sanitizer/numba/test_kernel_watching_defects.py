"""The defects of examples/defects/prange.py: each found by its kind on the line that is marked, and no twin."""

from __future__ import annotations

import linecache
import re
from itertools import islice
from pathlib import Path

import pytest

import noyau
from noyau.jobs.check.attempts import Budget, attempts
from noyau.jobs.check.sanitized_runs import watch_attempts
from noyau.ops.op_files import load_ops
from noyau.sanitizer.routes import KernelCase, watch

FILE = Path(__file__).resolve().parents[3] / "examples" / "defects" / "prange.py"
MARK = re.compile(r"# defect: ([\w-]+)")
BY_VALUES = {"precision", "wrong-value"}  # what no access shows


@pytest.fixture(scope="module")
def ops():
    return {op.name: op for op in load_ops(str(FILE))}


def marked(kernel):
    """The defects that the source of a kernel marks: kind and line."""
    file, _, first = kernel.place.rpartition(":")
    lines = range(int(first), int(first) + kernel.text.count("\n"))
    return {(found[1], number) for number in lines if (found := MARK.search(linecache.getline(file, number)))}


def seen(op, kernel):
    def inputs(attempt):
        return attempt.make(attempt.sizes)

    def run(attempt, arrays, size):
        return watch(KernelCase(kernel, attempt.instance, arrays, op.description.reference.constants, size))

    some = list(islice(attempts(op, {}, 0, lambda _: True), 12))
    return watch_attempts(run, some, inputs, Budget(1.0))


@pytest.mark.parametrize("name", ["total", "positive", "running", "add", "shifted", "long_total", "pairs", "doubled"])
def test_each_defect_is_found_where_it_is_marked(ops, name):
    op = ops[name]
    for kernel in op.kernels.values():
        wanted = {each for each in marked(kernel) if each[0] not in BY_VALUES}
        found = seen(op, kernel)
        assert {(each.kind, int(each.place.rpartition(":")[2])) for each in found.findings.values()} == wanted
        assert (len(marked(kernel)) == 0) == kernel.name.endswith("mended")
        assert found.shapes or "as_strided is not watched" in found.why


@pytest.mark.long
def test_what_shows_in_values_alone(ops):
    kernels = {each.name: each for each in noyau.check(ops["doubled"], generated=False, budget_s=20).kernels}
    assert [each.kind for each in kernels["doubled_as_if_packed"].findings] == ["wrong-value"]
    assert "stride-blind" in kernels["doubled_as_if_packed"].findings[0].message
    assert kernels["doubled_mended"].findings == ()
    kernels = {each.name: each for each in noyau.check(ops["long_total"], generated=False, budget_s=60).kernels}
    assert [each.kind for each in kernels["long_total_in_float32"].findings] == ["precision"]
    assert kernels["long_total_mended"].findings == ()
