"""Each of the defects in C, C++ and CUDA C++ is found by kind and line; its mended twin is silent."""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from noyau.ops.op import Op
from noyau.sanitizer.c.kernel import watch_together
from noyau.sanitizer.routes import KernelCase
from noyau.signatures.instances import bind
from tests.sanitizer.c.cases import told

FOLDER = Path(__file__).parents[3] / "examples" / "defects"
FILES = {"cuda_cpp": "cuda_cpp.cu", "openmp": "openmp.c", "threads": "threads.cpp"}


@cache
def ops_of(name):
    spec = importlib.util.spec_from_file_location(f"defects_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [each for each in vars(module).values() if isinstance(each, Op)]


def case_of(op, kernel):
    rng = np.random.default_rng(0)
    arity = len(op.signature.inputs)
    made = op.inputs(rng) if op.inputs else tuple(rng.random(200, dtype=np.float32) for _ in range(arity))
    if op.name == "handed_over":
        made = (np.ones(1, np.float32),)
    bound = bind(op.signature, made, {}, op.name)
    return KernelCase(kernel, bound.instance, bound.arrays, {})


@cache
def watched(name):
    kernels = [(op, kernel) for op in ops_of(name) for kernel in op.kernels.values()]
    seen = watch_together([case_of(op, kernel) for op, kernel in kernels])
    return {kernel.entry: each for (_, kernel), each in zip(kernels, seen, strict=True)}


def marked(name, entry):
    """The kinds that the text of a function is marked with, with their lines; and the lines of other accesses."""
    lines = (FOLDER / FILES[name]).read_text("ascii").splitlines()
    start = next(k for k, line in enumerate(lines) if re.search(rf"\b{entry}\(", line))
    end = next(k for k in range(start, len(lines)) if lines[k] == "}")
    marks, others = set(), set()
    for number, line in enumerate(lines[start : end + 1], start + 1):
        found = re.search(r"defect: ([\w\- ]+?)(?: \*/)?$", line)
        marks |= {(kind, number) for kind in found[1].split()} if found else set()
        others |= {number} if re.search(r"(//|/\*) other", line) else set()
    return marks, others


ENTRIES = [
    (name, entry)
    for name, file in FILES.items()
    for entry in re.findall(r"\b(\w+_(?:broken|mended))\((?=[^;]*\{)", (FOLDER / file).read_text("ascii"))
]


@pytest.mark.parametrize(("name", "entry"), [each for each in ENTRIES if each[1].endswith("broken")])
def test_a_defect_is_found_by_kind_and_line(name, entry):
    seen, (marks, others) = watched(name)[entry], marked(name, entry)
    assert marks, "the text marks no defect"
    found = {(each.kind, int(each.place.rpartition(":")[2])) for each in seen.findings}
    either = found | {(each.kind, int(each.other_place.rpartition(":")[2] or 0)) for each in seen.findings}
    assert marks <= either, told(seen)
    assert {kind for kind, _ in found} <= {kind for kind, _ in marks} | {"race", "mutated-input"}, told(seen)
    assert others <= {line for _, line in either}, told(seen)
    assert all(each.message and each.remedy for each in seen.findings)


@pytest.mark.parametrize(("name", "entry"), [each for each in ENTRIES if each[1].endswith("mended")])
def test_its_mended_twin_is_silent(name, entry):
    assert told(watched(name)[entry]) == []
