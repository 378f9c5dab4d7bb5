from __future__ import annotations

from rich.console import Console

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
