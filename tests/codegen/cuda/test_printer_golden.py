"""The text of kernels of every strategy in CUDA C++, as committed; run as a GPU would, each is right, without a race.

`pytest tests/codegen/cuda/test_printer_golden.py --update-golden` writes the texts anew: read the difference before
you commit.
"""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest

from noyau.codegen.c.spellings import TYPES
from noyau.codegen.cuda import printer as cuda_printer
from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.gpu import block_rows, blocks
from noyau.compiler.schedules.gpu.block_rows import Share
from noyau.compiler.schedules.gpu.blocks import in_blocks
from noyau.compiler.schedules.gpu.rows_and_columns import join_rows_and_columns
from noyau.compiler.schedules.gpu.scatters import Way
from noyau.dtypes import DType
from noyau.ir.loops import Role
from noyau.kernels.programs.program import program
from tests.codegen.kernels import GOLDEN, LAYOUTS
from tests.compiler.schedules.gpu.test_rows_and_columns_grid_both import GRAPHS as NORMS
from tests.compiler.schedules.gpu.test_rows_and_columns_grid_both import arrays_of
from tests.compiler.schedules.groups import inputs_of, scattered, scattered_cells
from tests.judged import Judge
from tests.sanitizer.c.cases import Wanted, told, watched

WAYS = {  # of scatters, beside those that the schedule chooses
    "scattered_rows_atomic": (scattered(), Way.ATOMIC),
    "scattered_maxima_atomic": (scattered_cells(0, "max"), Way.ATOMIC),
    "scattered_counts": (scattered_cells(1, dtype=DType.I32), Way.PRIVATE),
}
GRAPHS = {name: graph for name, (graph, _) in {**GOLDEN, **WAYS}.items()}
WATCHED = (
    "log_softmax_kept",
    "full_sum",
    "row_argmax",
    "column_sums",
    "gathered",
    "concatenated",
    "rotary",
    "log_softmax_streamed",
)
WATCHED_LONG = ("running_sum", "scattered_rows", "scattered_cells", *WAYS)
LONG = {  # rows that a block has, and two blocks; those of others a warp
    "log_softmax_kept": {"rows": 3, "n": 1100},
    "log_softmax_streamed": {"rows": 2, "n": 4200},
    "running_sum": {"rows": 1, "n": 3900},
}
EXTENT = 37


def kernel_of(name):
    return in_blocks(lower(normalise(GRAPHS[name]), name, LAYOUTS.get(name)), way=WAYS.get(name, (None, None))[1])


@pytest.mark.parametrize("name", GRAPHS)
def test_the_text_is_that_committed(name, golden):
    golden(f"cuda/{name}.cu", cuda_printer.together([kernel_of(name)], f"the kernel {name}"))


def called_from_host(kernel):
    """A function of the host that calls that of a text, on copies of its arrays on the device."""
    buffers = [buffer for buffer in kernel.buffers if buffer.role is not Role.SCRATCH]
    sizes = [binding.size for binding in kernel.binding]
    lines, parameters = [], []
    for buffer in buffers:
        kind, name, cells = TYPES[buffer.dtype], buffer.name, " * ".join(f"({dim})" for dim in buffer.shape) or "1"
        parameters.append(f"{'const ' * (buffer.role is Role.INPUT)}{kind} *{name}")
        lines += [f"{kind} *d_{name};", f"cudaMalloc(&d_{name}, {cells} * sizeof({kind}));"]
        if buffer.role is Role.INPUT:
            lines.append(f"cudaMemcpy(d_{name}, {name}, {cells} * sizeof({kind}), cudaMemcpyHostToDevice);")
    lines.append(f"{kernel.name}({', '.join([*(f'd_{each.name}' for each in buffers), *sizes])}, 0);")
    for buffer in kernel.of(Role.OUTPUT):
        cells = " * ".join(f"({dim})" for dim in buffer.shape) or "1"
        size = f"{cells} * sizeof({TYPES[buffer.dtype]})"
        lines.append(f"cudaMemcpy({buffer.name}, d_{buffer.name}, {size}, cudaMemcpyDeviceToHost);")
    lines += [f"cudaFree(d_{buffer.name});" for buffer in buffers]
    parameters += [f"int64_t {size}" for size in sizes]
    return "\n    ".join([f"void host_{kernel.name}({', '.join(parameters)}) {{", *lines]) + "\n}\n"


def wanted(name, kernel):
    """A call of that function, and the judge of its results."""
    graph = GRAPHS[name]
    inputs = inputs_of(graph, {binding.size: EXTENT for binding in kernel.binding} | LONG.get(name, {}), seed=1)
    ends = [
        [f"{b.name}: {b.dtype.value}[{', '.join(map(str, b.shape))}]" for b in kernel.of(role)]
        for role in (Role.INPUT, Role.OUTPUT)
    ]
    arrays = tuple(inputs[buffer.source or buffer.name] for buffer in kernel.of(Role.INPUT))
    signature = f"{', '.join(each.partition(': ')[2] for each in ends[0])} -> {', '.join(ends[1])}"
    parameters = " ".join(buffer.name for buffer in kernel.of(Role.INPUT))
    return Wanted(f"host_{name}", signature, parameters, arrays), Judge(graph, inputs)


@pytest.mark.parametrize(
    "names", [WATCHED, pytest.param(WATCHED_LONG, marks=pytest.mark.long)], ids=["some", "scatters"]
)
def test_run_as_a_gpu_would_they_are_right_and_have_no_race(names, tmp_path):
    """Scratch, merges in shared memory, atomics, lists of owners, states of two values, an index that is looked up,
    indices that are divided."""
    kernels = {name: kernel_of(name) for name in names}
    file = tmp_path / "kernels.cu"
    hosts = "\n".join(map(called_from_host, kernels.values()))
    file.write_text(cuda_printer.together(list(kernels.values())) + "\n" + hosts, "ascii")
    calls = {name: wanted(name, kernel) for name, kernel in kernels.items()}
    seen = watched(file, [call for call, _ in calls.values()])
    for name, (call, judge) in calls.items():
        run = seen[call.entry]
        assert told(run) == [], name
        assert run.accesses > EXTENT
        outputs = normalise(GRAPHS[name]).outputs
        for output, got in zip(outputs, run.outputs[-len(outputs) :], strict=True):
            assert judge.wrong(output, np.asarray(got)) is None, name


@pytest.mark.long
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not here")
@pytest.mark.parametrize("name", GRAPHS)
def test_nvcc_compiles_the_text_alone(name, tmp_path):
    file = tmp_path / f"{name}.cu"
    file.write_text(cuda_printer.together([kernel_of(name)]), "ascii")
    command = ["nvcc", "-arch=sm_90", "-Werror", "all-warnings", "-c", "-o", str(tmp_path / "out.o"), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_sums_of_columns_that_threads_keep_have_no_race(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "SUMMED", (Share(2, 64, 32),))
    for name, number in {"AT_ONCE": 4, "MOST": 12}.items():
        monkeypatch.setattr(block_rows, name, number)
    graph = NORMS["rms_norm"]
    kernel = program(graph, "back", None, in_blocks, joining=join_rows_and_columns).single
    file, inputs = tmp_path / "kernels.cu", arrays_of(graph, 3, 136)
    file.write_text(cuda_printer.together([kernel]) + "\n" + called_from_host(kernel), "ascii")
    ends = [
        [f"{b.dtype.value}[{', '.join(map(str, b.shape))}]" for b in kernel.of(role)]
        for role in (Role.INPUT, Role.OUTPUT)
    ]
    outputs = [f"r{at}: {each}" for at, each in enumerate(ends[1])]
    arrays = tuple(inputs[buffer.source] for buffer in kernel.of(Role.INPUT))
    parameters = " ".join(buffer.name for buffer in kernel.of(Role.INPUT))
    signature = f"{', '.join(ends[0])} -> {', '.join(outputs)}"
    run = watched(file, [Wanted("host_back_0", signature, parameters, arrays)])["host_back_0"]
    assert told(run) == []
    judge = Judge(graph, inputs)
    names = [buffer.source for buffer in kernel.of(Role.OUTPUT)]
    for output, got in zip(names, run.outputs[-len(names) :], strict=True):
        assert judge.wrong(output, np.asarray(got)) is None
