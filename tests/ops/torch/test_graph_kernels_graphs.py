"""Graphs as kernels on tensors, whichever language can be built."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

import noyau
from noyau import nn
from noyau.codegen.language import languages_for
from noyau.compiler.autodiff.adjoints import derive
from noyau.compiler.lowering.input_layouts import PACKED
from noyau.compiler.schedules.gpu import rows as gpu_rows
from noyau.dtypes import DType
from noyau.errors import BuildError, CheckError, InputError, MissingExtraError, UnsupportedError
from noyau.ir.loops import conditions_of, runs
from noyau.kernels.programs.generate import CPU, Specialization, trace_reference
from noyau.ops.torch import graph_kernels
from noyau.ops.torch.graph_kernels import draw_back, draw_op
from noyau.ops.torch_entry import tensor_calls
from noyau.toolchain.c import compiler as c_compiler
from tests.compiler.schedules.gpu.test_rows_and_columns_grid_both import GRAPHS as NORMS
from tests.hosts.torch import kinds

BUILD = graph_kernels.generate.build
pytestmark = pytest.mark.filterwarnings("error::noyau.ReferenceWarning")


def raising(error):
    def call(*_, **__):
        raise error

    return call


def slope():
    """The gradient of a new op at 3."""

    @noyau.op("float[n] -> float[n]")
    def squared(x):
        return x * x

    x = torch.full((2,), 3.0, requires_grad=True)
    return torch.autograd.grad(squared(x).sum(), x)[0].tolist()


def test_numba_serves_gradients_where_there_is_no_compiler(monkeypatch):
    monkeypatch.setattr(c_compiler, "compile_library", raising(BuildError("no compiler here")))
    made = []
    monkeypatch.setattr(
        graph_kernels.generate, "build", lambda generated: made.append(generated.language) or BUILD(generated)
    )
    assert slope() == [6, 6]
    assert made == ["c", "numba"]


@pytest.mark.parametrize("fault", [BuildError, UnsupportedError])
def test_where_neither_can_be_built_both_say_why(monkeypatch, fault):
    faults = iter([fault("no compiler here"), MissingExtraError("run: pip install 'noyau-kernels[numba]'")])
    monkeypatch.setattr(graph_kernels.generate, "build", lambda _: raising(next(faults))())
    with pytest.raises(fault, match=r"squared_backward cannot be built \(c: no compiler here; numba: run: pip install"):
        slope()


# ---- of several launches, for short rows and for long ones, each runs in a certificate


def parts(op, dtypes, ranks):
    """What a call that is recorded runs: what saves, what runs back, and what does so from the inputs alone."""
    description = op.description
    wanted = Specialization(op.instance(dtypes, ranks), description.reference.constants)
    graph = trace_reference(description.reference, wanted)
    derived = derive(graph, [node.output for node in graph.inputs if node.dtype.is_float])
    draw = partial(draw_op, description, wanted, graph)
    back = partial(draw_back, derived.forward, derived.forward.outputs[: len(graph.outputs)], draw)
    return [(derived.forward, draw), (derived.backward, back), (derived.gradient, back)]


OPS = {
    "softmax": parts(kinds.softmax, [DType.F32], [2]),
    "rmsnorm": parts(kinds.rmsnorm, [DType.BF16] * 2, [2, 1]),
    "cross_entropy": parts(nn.functional.cross_entropy_each, [DType.F32, DType.I64], [2, 1]),
}
CALLS = [
    {"batch_0": rows, size: columns} for size in ("n", "classes") for rows in (1, 600) for columns in (5, 600, 9000)
]
CALLS += [{"batch_0": 4, size: columns} for size in ("n", "classes") for columns in (50257, 1 << 20)]


def generated_in(language, graph, sizes):
    device = CPU if language == "c" else "cuda:0"
    return graph_kernels.generate.generate_from_graph(
        graph, "f", (PACKED,) * len(graph.inputs), language, device, sizes
    )


@pytest.mark.parametrize("language", ["c", *languages_for(gpu=True)])
@pytest.mark.parametrize("name", OPS)
def test_each_launch_of_a_call_runs_in_its_certificate(name, language):
    launches = 0
    for graph, draw in OPS[name]:
        made = generated_in(language, graph, {})
        for call in CALLS:
            if any(call.keys() < node.shape[-1].names for node in graph.inputs if node.shape):
                continue
            made = replace(made, wanted=replace(made.wanted, sizes=call))
            tried = [
                graph.bind([each.shape for each in case.inputs])
                for case in graph_kernels._cases(made, draw, graph_kernels.FEW)
            ]
            asked = [when for kernel in made.program.kernels for when in conditions_of(kernel) if runs(when, call)]
            assert all(any(runs(when, sizes) for sizes in tried) for when in asked)
            launches += len(asked)
    assert (
        launches or (name, language) == ("softmax", "c") or language == "numba_cuda"
    )  # whose launches are always the same


@pytest.fixture
def interpreted(monkeypatch):
    """Kernels in Triton on the CPU, whose rows are long from 9 cells on."""
    from noyau.toolchain.triton import module as builder

    if not builder.interprets():
        pytest.skip("Triton does not interpret")
    for place, name, least in ((gpu_rows, "KEPT", 8), (gpu_rows, "SHORT", 16), (gpu_rows, "SHARED_ROWS", 1)):
        monkeypatch.setattr(place, name, least)
    monkeypatch.setattr(graph_kernels.generate, "languages_on", lambda device: languages_for(gpu=True))
    monkeypatch.setattr("noyau.ops.torch.graph_kernels.CELLS", 0)


def backward_of(op, x):
    """The gradient of a softmax by x, and the kernels that made it."""
    made, weight = op(x), torch.linspace(1, 2, x.numel()).reshape(x.shape)
    found, want = (torch.autograd.grad(each, x, weight)[0] for each in (made, torch.softmax(x, -1)))
    assert torch.allclose(found, want, atol=1e-6)
    return tensor_calls(op.calls).plan((x,), {}, (True,)).backward.kernels


def new_softmax():
    @noyau.op("float[rows, n] -> float[rows, n]")
    def soft(x):
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    return soft


def test_a_call_that_has_other_launches_has_a_certificate_of_its_own(interpreted, monkeypatch, empty_cache):
    op, certified, cases = new_softmax(), graph_kernels.certify, []

    def counted(built, draw):
        cases.append([case.inputs[0].shape for case in graph_kernels._cases(built.generated, draw, graph_kernels.FEW)])
        return certified(built, draw)

    monkeypatch.setattr(graph_kernels, "certify", counted)
    for n in (5, 7, 50, 60, 4):
        kernels = backward_of(op, torch.randn(2, n, requires_grad=True))
    (made,) = kernels.programs.values()
    assert len(made) == len(cases) == 2
    short, long = ({shape[1] for shape in shapes} for shapes in cases)
    assert max(short) <= 8 < max(long)


def test_a_backward_whose_launch_for_long_rows_is_wrong_is_not_run(interpreted, monkeypatch, empty_cache):
    """It leaves the last cell of long rows."""
    op, build = new_softmax(), graph_kernels.generate.build

    def built(generated):
        head, streamed, tail = generated.text.rpartition("noyau_store(")
        tail = re.sub(r"(\w+)_(inside|lines),", r"\1_\2 & (\1 != n - 1),", tail)
        assert head + streamed + tail != generated.text
        return build(replace(generated, text=head + streamed + tail))

    monkeypatch.setattr(graph_kernels.generate, "build", built)
    backward_of(op, torch.randn(2, 5, requires_grad=True))
    with pytest.raises(CheckError, match=r"soft_backward\[triton\]: its smoke certificate failed: .*never wrote"):
        backward_of(op, torch.randn(2, 50, requires_grad=True))


def test_sizes_that_do_not_fit_together_are_refused_before_anything_is_built(monkeypatch):
    graph, draw = OPS["rmsnorm"][0]
    monkeypatch.setattr(graph_kernels.generate, "build", raising(AssertionError))
    with pytest.raises(InputError, match="weight has shape \\(4,\\)"):
        graph_kernels.GraphKernels(graph, "f", draw)(torch.ones(2, 3).bfloat16(), torch.ones(4).bfloat16())


@pytest.mark.parametrize(
    ("rows", "n", "language"),
    [
        (1024, 16384, "cuda"),
        (1024, 8192, "triton"),
        (16384, 1024, "triton"),
        (7, 16384, "triton"),
        (1024, 9001, "triton"),
    ],
)
def test_gradients_of_many_long_rows_are_in_cuda_first(rows, n, language, monkeypatch):
    """Where a cluster keeps each; where it cannot, in Triton."""
    monkeypatch.setattr(graph_kernels.generate, "build", lambda generated: generated.language)
    kernels = graph_kernels.GraphKernels(NORMS["rms_norm"], "back", lambda asked: iter(()))
    layouts = (PACKED,) * len(NORMS["rms_norm"].inputs)
    assert kernels.first(layouts, "cuda:0", {"batch_0": rows, "n": n}) == language


def test_where_cuda_cannot_be_built_gradients_of_long_rows_are_in_triton(monkeypatch):
    def built(generated):
        if generated.language == "cuda":
            raise MissingExtraError("cuda.core is missing; pip install noyau-kernels[cuda]")
        return generated.language

    monkeypatch.setattr(graph_kernels.generate, "build", built)
    kernels = graph_kernels.GraphKernels(NORMS["rms_norm"], "back", lambda asked: iter(()))
    layouts = (PACKED,) * len(NORMS["rms_norm"].inputs)
    assert kernels.first(layouts, "cuda:0", {"batch_0": 1024, "n": 16384}) == "triton"
