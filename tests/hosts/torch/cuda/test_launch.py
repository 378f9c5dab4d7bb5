"""Launches that are noted and done again. A compiled kernel is here a function that notes its calls."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from noyau.compiler.schedules.gpu import rows
from noyau.dtypes import DType
from noyau.errors import DeviceError, InputError
from noyau.hosts.numpy.fast_calls import MISS, Argument
from noyau.hosts.torch.cuda import launch as cuda_launch
from noyau.hosts.torch.cuda import launch_records
from noyau.hosts.torch.cuda.array_kernels import DeviceKernel
from noyau.hosts.torch.cuda.device import device_errors
from noyau.hosts.torch.cuda.guarded_memory import Room, answers
from noyau.hosts.torch.cuda.launch import Launcher, ReplayPlan
from noyau.hosts.torch.cuda.launch_records import CallRecord, TextTorch
from noyau.kernels.programs.generate import build
from noyau.ops.torch.fast_entries import DeviceFastCall, TensorProgram
from tests.hosts.torch import kinds
from tests.ops.dispatch.ops import generated, softmax_op


class Compiled:
    """As Triton's, as far as a launch needs it."""

    function, packed_metadata = 7, "packed"

    def __init__(self):
        self.calls = []

    def run(self, *arguments):
        self.calls.append(arguments)


def test_what_was_noted_is_done_again(monkeypatch):
    kernel, (x, y) = Compiled(), (torch.ones(3), torch.zeros(3))
    noted = CallRecord([x], "f")

    def function(x):
        made = TextTorch.empty((3,), dtype=x.dtype, device=x.device)
        noted.note(kernel, (4,), (x, made, 3, "INDEX"))
        return made

    made = cuda_launch.record_call(noted, function, [x], {})
    noted.results = (noted.place(made),)
    assert noted.again
    monkeypatch.setattr(cuda_launch, "current_device", lambda: 0)
    monkeypatch.setattr(cuda_launch, "raw_stream", lambda index: 11)
    (again,) = ReplayPlan("f", torch.device("cpu"), noted)([y])
    (call,) = kernel.calls
    assert call[:5] == (4, 1, 1, 11, 7)
    assert call[9] == y.data_ptr()
    assert call[10] == again.data_ptr()
    assert call[11:] == (3, "INDEX")
    assert again is not made


def test_scratch_that_no_launch_reads_is_not_allocated_again(monkeypatch):
    kernel, (x, y) = Compiled(), (torch.ones(3), torch.zeros(3))
    noted = CallRecord([x], "f")

    def function(x):
        _, scratch, made = (TextTorch.empty((k,), dtype=x.dtype, device=x.device) for k in (7, 5, 3))
        noted.note(kernel, (4,), (x, scratch, made))
        return made

    noted.results = (noted.place(cuda_launch.record_call(noted, function, [x], {})),)
    monkeypatch.setattr(cuda_launch, "current_device", lambda: 0)
    monkeypatch.setattr(cuda_launch, "raw_stream", lambda index: 11)
    plan = ReplayPlan("f", torch.device("cpu"), noted)
    assert [shape for shape, _ in plan.allocations] == [(5,), (3,)]
    (again,) = plan([y])
    (call,) = kernel.calls
    assert (call[9], call[11], again.shape) == (y.data_ptr(), again.data_ptr(), (3,))


def test_memory_that_runs_out_is_of_results_that_are_noted(monkeypatch):
    def none(*shape, **options):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has ...")

    noted = CallRecord([], "f")
    want = r"f needs 4 GiB \(4294967296 bytes\) on cuda:0 for float32\[1073741824\], and they are not there"
    with (
        pytest.raises(torch.OutOfMemoryError, match=want),
        device_errors("f", torch.device("cuda:0"), noted.allocations),
        launch_records.TAPE.holding(empty=none, record=noted),
    ):
        TextTorch.empty(1 << 30, dtype=torch.float32, device=torch.device("cuda:0"))


def test_a_copy_in_between_is_not_done_again():
    noted = CallRecord([torch.ones(3)], "f")
    noted.note(Compiled(), (1,), (torch.ones(3),))
    assert not noted.again


def test_errors_of_a_launch_are_told(monkeypatch):
    kernel = Compiled()
    kernel.run = lambda *_: (_ for _ in ()).throw(RuntimeError("an illegal memory access was encountered"))
    noted = CallRecord([], "f")
    noted.note(kernel, (1,), ())
    monkeypatch.setattr(cuda_launch, "current_device", lambda: 0)
    with pytest.raises(DeviceError, match="the context of this process is lost"):
        ReplayPlan("f", torch.device("cuda:0"), noted)([])


def test_programs_run_on_tensors_where_triton_interprets():
    if not launch_records.load.__globals__["interprets"]():
        pytest.skip("Triton does not interpret")
    x, w = torch.randn(5, 7), torch.randn(7, 3)
    (made,) = TensorProgram(build(kinds.layer.generate("triton")))(x, w)
    assert torch.allclose(made, torch.tanh(x @ w), atol=1e-6)
    (scaled,) = TensorProgram(build(kinds.scaled.generate("triton")), {"BLOCK": 16})(torch.tensor(2.0), x[0])
    assert torch.equal(scaled, 2 * x[0])
    generated = kinds.rmsnorm.generate("triton")
    launcher = Launcher(generated.text, generated.program.kernels[0], "rmsnorm[triton]", {})
    with pytest.raises(InputError, match=r"rmsnorm\[triton\]: weight has shape \(6,\), not \(7,\)"):
        launcher([torch.ones(2, 7), torch.ones(6)])


def test_a_fast_call_of_a_program_of_several_steps():
    if not launch_records.load.__globals__["interprets"]():
        pytest.skip("Triton does not interpret")
    built = build(kinds.layer.generate("triton"))
    fast_call = DeviceFastCall(built, [Argument(DType.F32, 2), Argument(DType.F32, 2)], "layer", {})
    w = torch.nn.Parameter(torch.randn(7, 3))
    for _ in range(3):
        x = torch.randn(5, 7)
        with torch.no_grad():
            made = fast_call((x, w))
            assert torch.allclose(made, torch.tanh(x @ w), atol=1e-6)
    assert len(fast_call.known) == 1
    assert fast_call((x.double(), w)) is MISS
    assert fast_call((x.numpy(), w)) is MISS
    assert fast_call((x,)) is MISS


def test_a_fast_call_misses_what_its_certificate_is_not_of(monkeypatch):
    """Other launches run for long rows; once that is known, nothing is asked again."""
    if not launch_records.load.__globals__["interprets"]():
        pytest.skip("Triton does not interpret")
    monkeypatch.setattr(rows, "KEPT", 8)
    monkeypatch.setattr(rows, "SHORT", 1 << 20)
    x, asked = torch.randn(2, 20), []
    short = generated(softmax_op(), torch.ones(2, 5).numpy(), language="triton")
    long = replace(short, wanted=replace(short.wanted, sizes={"batch_0": 2, "n": 300}))
    short = replace(short, wanted=replace(short.wanted, sizes={"batch_0": 2, "n": 5}))
    fast_calls = [DeviceFastCall(build(each), [Argument(DType.F32, 2)], "softmax", {}) for each in (short, long)]
    assert torch.allclose(fast_calls[0]((x[:, :7].clone(),)), torch.softmax(x[:, :7], -1))
    assert fast_calls[0]((x,)) is MISS
    monkeypatch.setattr(DeviceFastCall, "sizes", lambda *_: asked.append(1))
    assert fast_calls[0]((x.clone(),)) is MISS
    assert not asked
    monkeypatch.undo()
    assert torch.allclose(fast_calls[1]((x,)), torch.softmax(x, -1), atol=1e-6)


def test_what_is_written_beside_an_output_is_found():
    room = Room(0)
    made = room.empty((3, 4), dtype=torch.float32, device=torch.device("cpu"))
    assert made.isnan().all()
    assert not answers(list(room.flags()))
    made.as_strided((1,), (1,), made.storage_offset() + 12).fill_(1)
    (fault,) = answers(list(room.flags()))
    assert fault.note == "wrote behind an output"


def test_without_a_device_it_says_so(monkeypatch):
    generated = kinds.softmax.generate("triton")
    monkeypatch.setattr("noyau.hosts.torch.cuda.array_kernels.interprets", lambda: False)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    with pytest.raises(RuntimeError, match=r"CUDA.*; TRITON_INTERPRET=1, set before triton is imported"):
        DeviceKernel(generated.text, generated.program.kernels[0])
