"""The text of kernels of every strategy, as committed; each compiles alone without a warning and is right.

`pytest tests/languages/test_c_golden.py --update-golden` writes the texts anew: read the difference before you commit.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from noyau.builders.cc import Options, compile_library
from noyau.builders.native import Native
from noyau.dtypes import DType
from noyau.ir.graph import Graph
from noyau.languages import c
from noyau.lowering.nest import lower
from noyau.passes.normal import normalise
from noyau.schedules.choosing import Options as Schedule
from noyau.schedules.choosing import schedule
from tests.judging import Judge
from tests.schedules.groups import (
    concatenated,
    gathered,
    inputs_of,
    log_softmax,
    padded,
    reduced,
    residual_rms_norm,
    rotary,
    scanned,
    transposed,
)

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "c"
STREAMED = Schedule(kept=False)
KERNELS: dict[str, tuple[Graph, Schedule]] = {
    "log_softmax_kept": (log_softmax(), Schedule()),
    "log_softmax_streamed": (log_softmax(), STREAMED),
    "log_softmax_f64": (log_softmax(dtype=DType.F64), Schedule()),
    "residual_rms_norm": (residual_rms_norm(), Schedule()),
    "residual_rms_norm_bf16": (residual_rms_norm(dtype=DType.BF16), Schedule()),
    "rotary": (rotary(), Schedule()),
    "rotary_f16": (rotary(dtype=DType.F16), Schedule()),
    "padded": (padded(), Schedule()),
    "concatenated": (concatenated(1), Schedule()),
    "gathered": (gathered(), Schedule()),
    "transposed": (transposed(0, 2, 1), Schedule()),
    "column_sums": (reduced("sum", "rows", "n", axes=(0,)), Schedule()),
    "full_sum": (reduced("sum", "n", axes=(0,)), Schedule()),
    "row_argmax": (reduced("argmax", "rows", "n", axes=(1,)), Schedule()),
    "running_sum": (scanned("sum", "rows", "n", axis=1), Schedule()),
    "any_of_bools": (reduced("any", "rows", "n", axes=(1,), dtype=DType.BOOL), Schedule()),
    "sum_of_i32": (reduced("sum", "rows", "n", axes=(1,), dtype=DType.I32), Schedule()),
}
SIZES = (0, 1, 7, 33)
SIZES_OF_TABLES = (0, 3, 7, 33)  # the indices are below 3
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]


def text_of(name: str) -> str:
    graph, options = KERNELS[name]
    return c.source(schedule(lower(normalise(graph), name), options), f"the kernel {name}")


@pytest.mark.parametrize("name", KERNELS)
def test_the_text_is_that_committed(name, request):
    path = GOLDEN / f"{name}.c"
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text_of(name), encoding="ascii")
    assert text_of(name) == path.read_text(encoding="ascii")


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("name", KERNELS)
def test_the_text_compiles_alone_without_a_warning(name, compiler, tmp_path):
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-c"]
    source = tmp_path / "kernel.c"
    source.write_text(text_of(name), encoding="ascii")
    done = subprocess.run(
        [compiler, *flags, str(source), "-o", str(tmp_path / "kernel.o")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", KERNELS)
def test_its_numbers_are_right(name):
    graph, _ = KERNELS[name]
    native = Native(compile_library([text_of(name)], Options(export=True, extra=("-O1",))), f"{name}_kernel")
    normal = normalise(graph)
    sizes = sorted({size for node in graph.inputs for dim in node.shape for size in dim.names})
    for number in SIZES if name != "gathered" else SIZES_OF_TABLES:
        inputs = inputs_of(graph, dict.fromkeys(sizes, number), seed=number)
        judge = Judge(graph, inputs)
        constants = {node.output: node.kind.value for node in graph.nodes if hasattr(node.kind, "value")}
        given = {**constants, **inputs}
        for pieces in (1, 3):
            results = native.call_guarded(*(given[node.output] for node in normal.inputs), pieces=pieces)
            for output, got in zip(normal.outputs, results, strict=True):
                assert judge.wrong(output, got) is None
