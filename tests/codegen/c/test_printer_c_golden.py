"""The text of kernels of every strategy, as committed; each compiles alone without a warning and is right.

`pytest tests/codegen/c/test_printer_c_golden.py --update-golden` writes the texts anew: read the difference before
you commit.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from noyau.codegen.c import printer as c_printer
from noyau.compiler.passes.normal_form import normalise
from noyau.toolchain.c.compiler import CompilerOptions, compile_library
from noyau.toolchain.c.library import Native
from tests.codegen.kernels import GOLDEN, TABLES, kernel_of
from tests.compiler.schedules.groups import inputs_of
from tests.judged import Judge

FOLDER = Path(__file__).resolve().parents[2] / "golden" / "c"
SIZES = (0, 1, 7, 33)
SIZES_OF_TABLES = (0, 3, 7, 33)  # the indices are below 3
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]


def text_of(name: str) -> str:
    return c_printer.source(kernel_of(name), f"the kernel {name}")


@pytest.mark.parametrize("name", GOLDEN)
def test_the_text_is_that_committed(name, request):
    path = FOLDER / f"{name}.c"
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text_of(name), encoding="ascii")
    assert text_of(name) == path.read_text(encoding="ascii")


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("name", GOLDEN)
def test_the_text_compiles_alone_without_a_warning(name, compiler, tmp_path):
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-c"]
    source = tmp_path / "kernel.c"
    source.write_text(text_of(name), encoding="ascii")
    done = subprocess.run(
        [compiler, *flags, str(source), "-o", str(tmp_path / "kernel.o")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", GOLDEN)
def test_its_numbers_are_right(name):
    graph, _ = GOLDEN[name]
    native = Native(compile_library([text_of(name)], CompilerOptions(export=True, extra=("-O1",))), f"{name}_kernel")
    normal = normalise(graph)
    sizes = sorted({size for node in graph.inputs for dim in node.shape for size in dim.names})
    for number in SIZES_OF_TABLES if name in TABLES else SIZES:
        inputs = inputs_of(graph, dict.fromkeys(sizes, number), seed=number)
        judge = Judge(graph, inputs)
        constants = {node.output: node.kind.value for node in graph.nodes if hasattr(node.kind, "value")}
        given = {**constants, **inputs}
        for pieces in (1, 3):
            results = native.call_guarded(*(given[node.output] for node in normal.inputs), pieces=pieces)
            for output, got in zip(normal.outputs, results, strict=True):
                assert judge.wrong(output, got) is None
