from __future__ import annotations

import json

import pytest

from noyau import cli
from noyau.measuring import levels
from noyau.timing import kept as keeping
from tests.timing.test_kept import made


@pytest.fixture
def scripted(monkeypatch, empty_cache):
    rounds = []

    def measure(options):
        rounds.append(1)
        return made(1e10 * len(rounds))

    monkeypatch.setattr(keeping, "_measured_now", measure)
    return rounds


def test_the_machine_is_shown_and_measured_once(scripted, capsys):
    for _ in range(2):
        assert cli.main(["machine"]) == 0
        told = capsys.readouterr().out
        assert "L1 32 KiB" in told
        assert "DRAM" in told
        assert "exp" in told
        assert "2.00x" in told
    assert len(scripted) == 1
    assert cli.main(["machine", "--refresh"]) == 0
    assert len(scripted) == 2


def test_the_record_is_json(scripted, capsys):
    assert cli.main(["machine", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["copy_bytes_per_s"]["2"]["8192"] == 2e10
    assert told["machine"]["cpu"]


def test_a_size_stands_for_each_level():
    sizes = tuple(1 << power for power in range(13, 29))
    assert levels({"L1": 32 << 10, "L2": 512 << 10, "L3": 32 << 20}, sizes) == {
        "L1": 16 << 10,
        "L2": 256 << 10,
        "L3": 16 << 20,
        "DRAM": 256 << 20,
    }
    assert levels({}, sizes) == {"DRAM": 256 << 20}
