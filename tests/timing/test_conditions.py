from __future__ import annotations

import itertools
import json

import pytest

from noyau.text import as_json
from noyau.timing.conditions import (
    Conditions,
    cache_ladder,
    conditions,
    last_level_bytes,
    mhz,
    pulse_s,
    stolen_s,
    unsteady,
)

CALM = Conditions(2000.0, 1e-4, 0.5, 10.0)


def test_a_moment_is_recorded():
    found = conditions()
    assert 0 < found.pulse_s < 1
    assert json.loads(json.dumps(as_json(found)))["pulse_s"] == found.pulse_s


def test_the_pulse_is_the_best_of_some_tries():
    lasting = itertools.chain.from_iterable((10.0 * k, 10.0 * k + 1 + (k % 7)) for k in itertools.count())
    assert pulse_s(lambda: next(lasting)) == 1.0


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (Conditions(2000.0, 1.05e-4, 2.4, 10.05), ""),
        (Conditions(2000.0, 1.2e-4, 0.5, 10.0), "1.20x slower"),
        (Conditions(None, 0.8e-4, None, None), "1.25x faster"),
        (Conditions(2000.0, 1e-4, 5.5, 10.0), "other work ran, 5.5 processes on 2 cores"),
        (Conditions(2000.0, 1e-4, 0.5, 10.4), "other virtual machines of this host ran for 0.4 s instead"),
    ],
)
def test_what_makes_times_doubtful_is_told(after, told):
    found = unsteady(CALM, after, cores=2)
    assert told in found
    assert bool(told) == bool(found)


def test_the_fastest_core_is_read(tmp_path):
    (tmp_path / "cpuinfo").write_text("cpu MHz\t\t: 1200.5\nx: 1\ncpu MHz\t\t: 3100.0\n", "ascii")
    assert mhz(tmp_path / "cpuinfo") == 3100.0
    assert mhz(tmp_path / "nothing") is None
    (tmp_path / "cpuinfo").write_text("processor : 0\n", "ascii")
    assert mhz(tmp_path / "cpuinfo") is None


def test_what_the_host_took_is_read(tmp_path):
    (tmp_path / "stat").write_text("cpu 1 2 3 4 5 6 7 800 0 0\ncpu0 1\n", "ascii")
    assert stolen_s(tmp_path / "stat") > 0
    (tmp_path / "stat").write_text("cpu 1 2\n", "ascii")
    assert stolen_s(tmp_path / "stat") is None
    assert stolen_s(tmp_path / "nothing") is None


def test_the_caches_are_read(tmp_path):
    caches = [("1", "Data", "32K"), ("1", "Instruction", "64K"), ("2", "Unified", "512K"), ("3", "Unified", "32M")]
    for number, values in enumerate(caches):
        folder = tmp_path / f"index{number}"
        folder.mkdir()
        for name, value in zip(("level", "type", "size"), values, strict=True):
            (folder / name).write_text(f"{value}\n", "ascii")
    (tmp_path / "index9").mkdir()
    assert cache_ladder(tmp_path) == {"L1": 32 << 10, "L2": 512 << 10, "L3": 32 << 20}
    assert last_level_bytes(tmp_path) == 32 << 20
    assert cache_ladder(tmp_path / "nothing") == {}
    assert last_level_bytes(tmp_path / "nothing") == 32 << 20
