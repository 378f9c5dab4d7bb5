from __future__ import annotations

import json
import re
import time
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import jsonschema
import pytest
import torch
from torch.autograd import DeviceType
from torch.autograd.profiler_util import Interval
from torch.profiler import ProfilerActivity, profile

import noyau
from noyau.jobs.cli import main
from noyau.jobs.profile import torch_wall
from noyau.jobs.profile.record import HELP, Wall
from noyau.jobs.profile.torch_wall import device_events, measure_wall, split
from noyau.timing.ranges import record_events
from tests.jobs.profile.samples import TRACE

NET = """
import noyau, torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one = torch.nn.Linear(16, 16)

    def forward(self, x):
        with noyau.range("first"):
            return op(torch.nn.functional.gelu(self.one(x)) * 2)

@noyau.op("f32[m, n] -> f32[m, n]")
def op(x):
    return x + 1

net = Net().eval()
inputs = torch.ones(4, 16)
"""


def event(name, start, end, device=DeviceType.CUDA, *, is_range=False):
    spans = Interval(start, end)
    facts = {"self_cpu_time_total": end - start, "is_user_annotation": is_range}
    return SimpleNamespace(name=name, time_range=spans, device_type=device, **facts)


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
    assert (wall.longest[0].name, wall.longest[0].where) == ("nvjet_tst_128x256", "gpu")
    assert wall.hottest == (("elementwise",), pytest.approx(5e-5 / 3))


def test_ranges_are_no_kernels_and_names_of_cpp_are_short():
    add = (
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"
    )
    norm = "void at::native::(anonymous namespace)::layer_norm_kernel<float>(int, float)"
    events = [
        event("Memcpy HtoD (Pinned -> Device)", 0, 20),
        event(f"{add}(int, at::native::CUDAFunctor_add<float>)", 20, 40),
        event(norm, 40, 60),
        event("a::range", 0, 60, is_range=True),
        event("a::range", 0, 90, DeviceType.CPU, is_range=True),
        event("noyau::op", 0, 10, DeviceType.CPU, is_range=True),
    ]
    wall = split(1e-4, events)
    assert (wall.kernels, wall.launches) == (pytest.approx(0.6), 3)
    short = "vectorized_elementwise_kernel (CUDAFunctor_add)", "layer_norm_kernel"
    assert [each.name for each in wall.longest] == ["Memcpy HtoD (Pinned -> Device)", *short, "noyau::op"]
    assert wall.hottest == (short, pytest.approx(4e-5))


def test_gaps_are_what_would_help_where_they_are_large():
    wall = split(1e-4, [event("nvjet", 0, 30)])
    assert wall.gaps == pytest.approx(0.7) and wall.next == HELP["gaps"]
    assert wall.to_json()["launches"] == 1


def test_without_a_gpu_operators_are_kernels():
    x = torch.randn(64, 64)
    wall = measure_wall(lambda: x @ x + 1)
    assert 0 < wall.products <= wall.kernels <= 1
    assert any("mm" in each.name for each in wall.longest)
    assert "would help next" in str(wall)


def test_calls_that_compile_are_no_part_of_the_wall_time():
    pauses = iter([0.3, 0.001, 0.2])
    wall = measure_wall(lambda: time.sleep(next(pauses, 0.001)))
    assert wall.wall_s < 0.1


def test_a_timeline_of_a_module_has_its_operators_ranges_and_gaps(tmp_path, capsys):
    file = tmp_path / "net.py"
    file.write_text(NET)
    trace, record = tmp_path / "t.json", tmp_path / "p.json"
    assert main(["profile", f"{file}::net", "--trace", str(trace), "--json", str(record)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "aten::addmm" in out and f"Wrote {trace}: open it at https://ui.perfetto.dev" in out
    assert re.search(r"noyau::op [\d.]+ us", out), "a kernel of noyau's is a row"
    document = json.loads(trace.read_text())
    jsonschema.validate(document, TRACE)
    kinds = Counter((each.get("cat"), each["name"]) for each in document["traceEvents"])
    assert kinds["cpu_op", "aten::addmm"] == kinds["user_annotation", "first"] == 3
    assert kinds["user_annotation", "noyau::op"] == 3
    assert any(kind == "gap" for kind, _ in kinds)
    facts = json.loads(record.read_text())
    assert facts["wall_s"] > 0
    assert facts["hottest"][0][:2] == ["aten::gelu", "aten::mul"]
    assert main(["profile", f"{file}::sum"]) == 2
    assert main(["profile", f"{file}::op"]) == 2
    assert "is an op: noyau bench" in capsys.readouterr().err


def test_the_hottest_path_is_a_remark_where_it_is_worth_fusing():
    wall = Wall(1.0, 0.9, 0.1, 0.0, 4, (), (("aten::gelu", "aten::mul"), 0.5))
    assert "The hottest path that could be fused is aten::gelu, aten::mul: " in "\n".join(wall.remarks)
    assert "hottest" not in "\n".join(replace(wall, hottest=(("aten::gelu", "aten::mul"), 0.001)).remarks)


@pytest.fixture
def cpu_as_gpu(monkeypatch):
    """Operators of the CPU in the place of kernels of a GPU."""
    monkeypatch.setattr(torch_wall, "ProfilerActivity", SimpleNamespace(CUDA=ProfilerActivity.CPU))


def test_events_of_the_device_are_on_the_clock_of_ranges(cpu_as_gpu):
    with record_events() as events, device_events(events):
        torch.ones(3).exp()
        with noyau.range("within"):
            torch.ones(3).sqrt()
    spans = {each["name"]: each for each in events if each.get("cat") in ("cpu_op", "range")}
    within, first, second = (spans[name] for name in ("within", "aten::exp", "aten::sqrt"))
    assert first["ts"] < within["ts"] < second["ts"] < within["ts"] + within["dur"]
    assert any(each.get("cat") == "gap" for each in events)


def test_a_profiler_of_the_programs_own_ends_that_of_the_device(cpu_as_gpu):
    begin = torch.autograd.profiler.profile._prepare_trace
    for interface in (profile, torch.autograd.profiler.profile):
        events = []
        with device_events(events):
            torch.ones(3).exp()
            with interface() as own:
                torch.ones(3).sqrt()
            torch.ones(3).sin()
        assert torch.autograd.profiler.profile._prepare_trace is begin
        assert "aten::sqrt" in {each.name for each in (own.events() if interface is profile else own.function_events)}
        names = {each["name"] for each in events}
        assert "aten::exp" in names and names.isdisjoint(("aten::sqrt", "aten::sin"))


def test_torch_calls_back_when_it_begins_to_use_a_gpu():
    """Profiles of scripts rest on this name of torch's, which has an underscore."""
    queued = torch.cuda._queued_calls
    before = len(queued)
    torch.cuda._lazy_call(print)
    assert queued.pop()[0] is print and len(queued) == before
