from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from noyau.errors import DeviceError
from noyau.hosts.torch.cuda import array_kernels
from noyau.hosts.torch.cuda.array_kernels import FunctionLauncher


def test_a_function_of_another_language_is_called_each_time(monkeypatch):
    asked = []
    monkeypatch.setattr(array_kernels, "require_free", asked.append)
    launcher = FunctionLauncher(torch.add, "sum of two")
    for x in (torch.ones(3), torch.zeros(3)):
        (got,) = launcher([x, x])
        torch.testing.assert_close(got, 2 * x)
    assert asked == ["sum of two"]  # once for tensors of these shapes
    launcher([torch.ones(4), torch.ones(4)])
    assert len(asked) == 2
    assert launcher.known_call([torch.ones(5)]) is launcher
    known, (got,) = launcher.known_call([torch.ones(4)] * 2), launcher([torch.ones(4)] * 2)
    monkeypatch.setattr(array_kernels, "kinds_of", None)  # of a key that the caller has found already
    assert torch.equal(*known([torch.ones(4)] * 2), got) and len(asked) == 2


def test_a_function_without_inputs_runs_on_the_current_device(monkeypatch):
    devices, results = [], (torch.ones(2), torch.zeros(3))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(array_kernels, "guard", lambda device: devices.append(device) or nullcontext())
    assert FunctionLauncher(lambda: results, "constants")([]) is results
    assert devices == [torch.device("cuda", 3)]


def test_an_error_of_a_function_is_one_of_its_op():
    def trapped(x):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(DeviceError, match=r"^sum of two: a kernel that ran on cpu before trapped"):
        FunctionLauncher(trapped, "sum of two")([torch.ones(3)])
