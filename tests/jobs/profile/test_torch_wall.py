from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.autograd import DeviceType

from noyau.jobs.profile.record import HELP
from noyau.jobs.profile.torch_wall import measure_wall, split


def event(name, start, end, device=DeviceType.CUDA):
    spans = SimpleNamespace(start=start, end=end)
    return SimpleNamespace(name=name, time_range=spans, device_type=device, self_cpu_time_total=end - start)


def test_kernels_that_run_beside_each_other_are_counted_once():
    events = [
        event("nvjet_tst_128x256", 0, 40),
        event("void at::native::elementwise<int>", 30, 50),
        event("## Call", 60, 60),
        event("aten::mm", 0, 90, DeviceType.CPU),
        event("cudaDeviceSynchronize", 0, 80, DeviceType.CPU),
    ]
    wall = split(1e-4, events)
    assert (wall.kernels, wall.products, wall.synchronisation) == pytest.approx((0.5, 0.4, 0.3))
    assert wall.next == HELP["products"]
    assert wall.longest[0][0] == "nvjet_tst_128x256"


def test_gaps_are_what_would_help_where_they_are_large():
    wall = split(1e-4, [event("nvjet", 0, 30)])
    assert wall.gaps == pytest.approx(0.7) and wall.next == HELP["gaps"]
    assert wall.to_json()["launches"] == 1


def test_without_a_gpu_operators_are_kernels():
    x = torch.randn(64, 64)
    wall = measure_wall(lambda: x @ x + 1)
    assert 0 < wall.products <= wall.kernels <= 1
    assert any("mm" in name for name, _, _ in wall.longest)
    assert "would help next" in str(wall)
