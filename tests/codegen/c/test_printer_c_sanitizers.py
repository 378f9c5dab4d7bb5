"""Kernels under the address sanitizer and that of undefined behaviour: they touch nothing that is not theirs."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from noyau.codegen.c import printer as c_printer
from noyau.codegen.c.printer import text_of
from noyau.ir.dims import product as product_of
from noyau.ir.loops import Role
from noyau.toolchain.c.compiler import _FLAGS, find_compiler
from tests.codegen.kernels import GOLDEN, MORE, kernel_of
from tests.compiler.schedules.groups import inputs_of
from tests.test_random_graphs import printable
from tests.trying import attempt

ROOT = Path(__file__).resolve().parents[3]
GRAPHS = {name: graph for name, (graph, _) in {**GOLDEN, **MORE}.items()}
# 0, 1, primes, and one more and one less than the lanes, the tiles and the blocks.
EXTENTS = (0, 1, 2, 7, 31, 32, 33, 63, 65, 127, 257, 2047, 2048, 2049, 65535, 65537)
MOST = 200_000  # cells of an input
SEEDS = range(20_000, 20_130)
SANITIZERS = (
    "-fsanitize=address,undefined",
    # A third of the time. What is read there, the address sanitizer sees; not seen are an offset from NULL where an
    # extent is 0, and an address that wraps, as long as nobody reads or writes there.
    "-fno-sanitize=null,pointer-overflow",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
    "--param=asan-instrumentation-with-call-threshold=0",  # calls are built in less time
)

Job = tuple[str, list[np.ndarray]]


def runtimes() -> list[str]:
    """The library of the address sanitizer, which has to come before all others; nothing where there is none."""
    compiler = find_compiler()
    done = subprocess.run(
        [*compiler.command, "-print-file-name=libasan.so"], capture_output=True, text=True, check=False
    )
    found = Path(done.stdout.strip())
    return [str(found.resolve())] if found.is_absolute() and found.exists() else []


pytestmark = pytest.mark.skipif(not runtimes(), reason="the compiler has no runtime of the address sanitizer")


def sanitized(text: str, jobs: Sequence[Job], folder: Path) -> subprocess.CompletedProcess[str]:
    """What a process says that builds a text under the sanitizers and runs jobs with it."""
    library, source, listed = folder / "kernels.so", folder / "kernels.c", folder / "jobs"
    source.write_text(text, encoding="ascii")
    flags = [flag for flag in _FLAGS if flag != "-fvisibility=hidden"]
    command = [*find_compiler().command, *flags, "-O0", *SANITIZERS, "-shared", str(source), "-o", str(library), "-lm"]
    subprocess.run(command, check=True, capture_output=True)
    listed.write_bytes(pickle.dumps(jobs))
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(runtimes()),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONPATH": str(ROOT),
    }
    script = str(ROOT / "tests" / "codegen" / "sanitized.py")
    return subprocess.run(
        [sys.executable, script, str(library), str(listed)],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def told(done: subprocess.CompletedProcess[str]) -> str:
    """The report, and the job before it."""
    lines = done.stderr.splitlines()
    at = next((at for at, line in enumerate(lines) if "ERROR" in line or "runtime error" in line), len(lines) - 6)
    return "\n".join(lines[max(0, at - 2) : at + 6])


def sizes_for(graph):
    """Every extent for each size, beside small ones for the others; of tables, the 3 rows that are looked up."""
    names = sorted({size for node in graph.inputs for dim in node.shape for size in dim.names})
    for name, extent in product(names, EXTENTS):
        for other in (0, 1, 5):
            sizes = {**dict.fromkeys(names, other), name: extent}
            if "words" in sizes:
                sizes["words"] = max(3, sizes["words"])
            ends = [*graph.inputs, *(graph[output] for output in graph.outputs)]
            if max(int(product_of(node.shape).evaluate(sizes)) for node in ends) <= MOST:
                yield sizes


def jobs_of(name) -> list[Job]:
    """The kernel of that name at every size."""
    kernel, graph = kernel_of(name), GRAPHS[name]
    made = []
    for seed, sizes in enumerate(sizes_for(graph)):
        inputs = inputs_of(graph, sizes, seed)
        constants = {node.output: node.kind.value for node in graph.nodes if hasattr(node.kind, "value")}
        made.append((name, [{**constants, **inputs}[buffer.source] for buffer in kernel.of(Role.INPUT)]))
    return made


@pytest.mark.long
def test_kernels_of_every_strategy(tmp_path):
    text = c_printer.together([kernel_of(name) for name in GRAPHS])
    done = sanitized(text, [job for name in GRAPHS for job in jobs_of(name)], tmp_path)
    assert (done.returncode, done.stdout) == (0, "done\n"), told(done)


@pytest.mark.long
def test_random_graphs(tmp_path):
    ready, parts = printable(map(attempt, SEEDS))
    assert len(ready) >= 100
    jobs = [(made.scheduled.name, made.arrays(made.scheduled)) for made in ready]
    done = sanitized(text_of(list(parts.values())), jobs, tmp_path)
    assert (done.returncode, done.stdout) == (0, "done\n"), told(done)


@pytest.mark.parametrize(
    ("right", "wrong", "report"),
    [
        ("x[i0 * n + i1]", "x[i0 * n + i1 + 1]", "heap-buffer-overflow"),
        ("x[i0 * n + i1]", "x[i0 * n + i1 - 1]", "heap-buffer-overflow"),
        ("i1 < n", "i1 < n << (64 + i1)", "shift exponent"),
        ("? rows :", "? rows / (rows - 3) :", "division by zero"),
    ],
)
def test_a_fault_is_reported(right, wrong, report, tmp_path):
    text = c_printer.source(kernel_of("log_softmax_streamed"))
    assert right in text
    jobs = [("log_softmax_streamed", [np.ones((3, 5), np.float32)])]
    done = sanitized(text.replace(right, wrong), jobs, tmp_path)
    assert done.returncode != 0
    assert report in done.stderr
