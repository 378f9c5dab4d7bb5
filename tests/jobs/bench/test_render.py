from __future__ import annotations

from dataclasses import replace

import pytest

from noyau.jobs.bench.record import FILLING, HOT, RETURNING, BenchRecord, CandidateTimes, Race, Workload
from noyau.jobs.bench.render import render
from noyau.timing.conditions import Conditions
from noyau.timing.machine import Machine
from noyau.timing.rounds import Series
from tests.jobs.bench.samples import CALM, at

MACHINE = Machine("a CPU", 2, "x86-64-v3", "gcc", "Linux", {})
SECONDS = {("reference", RETURNING): 4e-3, ("fast", RETURNING): 2e-3, ("fast", FILLING): 1.25e-3}


def told(*each) -> str:
    return str(BenchRecord("add", MACHINE, {"cores": 2, "torch": 2}, each))


def told_in(width: int, *each) -> list[str]:
    found = BenchRecord("add", MACHINE, {"cores": 2}, each)
    return [str(line).rstrip() for line in render(found, width)]


def test_a_table_says_the_time_the_rate_the_floor_and_the_verdict():
    text = told(
        at(
            SECONDS,
            CandidateTimes("reference"),
            CandidateTimes("fast", "c", first_s=0.25),
            work=Workload(8e6, 4e6, 2e6, exact=True),
        )
    )
    assert "a CPU, 2 cores, x86-64-v3; threads: torch 2" in text
    assert "add at n=1000: 12 MB must move; this machine needs 1 ms for them, 12.0 GB/s" in text
    fast, slow = (next(line for line in text.splitlines() if line.startswith(name)) for name in ("fast", "reference"))
    assert fast.split() == ["fast", "[c]", "2", "ms", "1.25", "ms", "9.6", "80%", "1.6", "2.00x", "FASTER"]
    assert slow.split() == ["reference", "4", "ms", "3.0", "25%", "0.5", "-"]
    assert text.index(fast) < text.index(slow)
    assert "[2.00, 2.00] over 8 rounds; p90 2 ms, p99 2 ms, 500 calls/s; its first call took 250 ms" in " ".join(
        text.split()
    )


def test_a_usual_table_has_a_line_a_candidate_in_80_columns_and_flops_where_there_is_room():
    times = {"reference": 1.23e-3, "generated numba": 1.23e-4}
    seconds = {(name, way): each for name, each in times.items() for way in (RETURNING, FILLING)}
    found = at(seconds, *map(CandidateTimes, times), work=Workload(8e6, 4e6, 2e6, exact=True))
    for width, has_flops in ((80, True), (66, False)):
        lines = told_in(width, found)
        head = next(line for line in lines if line.startswith("candidate  "))
        assert ("GFLOP/s" in head) == has_flops
        assert head.endswith("  vs reference")
        assert next(line for line in lines if line.startswith("generated numba ")).endswith("x FASTER")
        assert max(map(len, lines)) <= width


def test_on_a_gpu_what_the_host_takes_has_a_column_and_the_gpu_is_named():
    gpu = {"device": "NVIDIA Round, driver 580.1", "clocks": "1980 MHz -> 1975 MHz"}
    found = at(SECONDS, CandidateTimes("reference", host_s=20e-6), CandidateTimes("fast", "triton", host_s=5e-6))
    made = BenchRecord("add", MACHINE, {"cores": 2}, (found,), gpu)
    assert "NVIDIA Round, driver 580.1; 1980 MHz -> 1975 MHz" in str(made)
    assert "a CPU" not in str(made)
    assert "host" in str(made)
    assert "20 us" in next(line for line in str(made).splitlines() if line.startswith("reference"))
    assert made.to_json()["gpu"] == gpu
    assert made.to_json()["at"][0]["candidates"][1]["host_s"] == 5e-6


def test_bytes_that_are_not_known_are_said_to_be_of_inputs_and_outputs():
    assert "12 kB in inputs and outputs" in told(at(SECONDS, work=Workload(8000, 4000)))


def test_who_is_not_ranked_is_told_under_the_table():
    text = told(
        at(
            {("a", RETURNING): 1.0},
            CandidateTimes("a"),
            CandidateTimes("b", "c", fault="got 0, want 1"),
            CandidateTimes("d", skipped="no GPU"),
        )
    )
    assert "b [c] is wrong: got 0, want 1" in text
    assert "d is not timed: no GPU" in text


def test_a_busy_machine_and_notes_are_told():
    found = at({("a", RETURNING): 1.0})
    busy = replace(found, conditions=(CALM, Conditions(2000.0, 1e-4, 9.0, 0.0)), notes=("argument 0 is packed",))
    assert "Argument 0 is packed." in told(busy)
    assert "Other work ran, 9.0 processes on 2 cores." in told(busy)


def test_what_would_do_is_told_where_a_verdict_is_ambiguous():
    sides = (("a", RETURNING), ("b", RETURNING))
    race = Race(sides, Series(((1.0,) * 8, (0.93, 1.07) * 4), (1, 1)))
    found = replace(at(dict.fromkeys(sides, 1.0)), races={HOT: race})
    assert "b: the two are nearly alike, [0.93, 1.08]" in told(found)


@pytest.mark.parametrize("name", ["\x1b[2Jx", "[red]x"])
def test_names_are_never_markup_nor_commands_of_a_terminal(name):
    text = told(at({(name, RETURNING): 1.0}))
    assert "\x1b" not in text and name.removeprefix("\x1b") in text
