from __future__ import annotations

import json

import pytest
from rich.console import Console

from noyau.errors import InputError
from noyau.jobs import cli
from noyau.jobs.machine import run as machine_run
from noyau.jobs.machine.run import clocks, gpu_tables
from noyau.workers.nvml import GpuConditions
from tests.timing.gpus import made


def text_of(found):
    console = Console(width=110, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    for part in gpu_tables(found):
        console.print(part)
    return console.export_text()


def test_the_card_says_what_the_gpu_can_do():
    told = text_of(made())
    assert "NVIDIA Round, 100 SMs, compute capability 9.0" in told
    assert "80 GiB, L2 50 MiB" in told
    assert "copy, cold" in told
    assert "1.6e+04" in told  # GB/s in the L2
    assert "bfloat16     700.0 TFLOP/s" in " ".join(told.split("\n")).replace("  bf", " bf")
    assert "3 us hot, 9 us after" in told
    assert "to device, pinned" in told


def test_without_reads_there_is_no_such_column():
    assert "read" not in text_of(made(reads=False)).split("GB/s by")[1]


def test_clocks_that_are_not_known_are_left_out():
    assert clocks(GpuConditions()) == "unknown"
    assert (
        clocks(GpuConditions(1980.4, None, 3201, None, None, "power limit")) == "1980 MHz, memory 3201 MHz, power limit"
    )


def test_the_gpu_alone_is_asked_for(monkeypatch, capsys):
    monkeypatch.setattr(machine_run, "_gpu", lambda device, *, refresh: made())
    assert cli.main(["machine", "--device", "cuda", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["gpu"]["gpu"]["name"] == "NVIDIA Round"
    assert "machine" not in told


@pytest.mark.parametrize("device", ["tpu", "cuda:", "cuda:x", "cuda:0; rm"])
def test_a_device_that_is_none_is_refused(device, capsys):
    assert cli.main(["machine", "--device", device]) == 2
    assert "what can be measured is cpu, cuda, or cuda:1" in capsys.readouterr().err
    with pytest.raises(InputError):
        machine_run.require_device(device)


def test_a_gpu_that_is_not_there_is_one_line(capsys):
    pytest.importorskip("torch")
    if machine_run.has_driver():
        pytest.skip("there is a driver")
    assert cli.main(["machine", "--device", "cuda"]) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert "built without CUDA" in told or "no CUDA device" in told


def test_nobody_asks_for_a_gpu_where_there_is_no_driver(monkeypatch):
    monkeypatch.setattr(machine_run, "has_driver", lambda: False)
    assert machine_run._gpu("", refresh=False) is None
