from __future__ import annotations

import json

import jsonschema
import pytest

from noyau.jobs import cli
from noyau.timing import rates as timing_rates
from tests.timing.test_rates import made
from tools.schemas import FOLDER


@pytest.fixture
def scripted(monkeypatch, empty_cache):
    rounds = []

    def measure(options):
        rounds.append(1)
        return made(1e10 * len(rounds))

    monkeypatch.setattr(timing_rates, "_measure", measure)
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


def test_the_record_is_json(scripted, capsys, tmp_path):
    assert cli.main(["machine", "--quiet", "--json", str(tmp_path / "m.json")]) == 0
    assert capsys.readouterr().out == ""
    told = json.loads((tmp_path / "m.json").read_text())
    jsonschema.validate(told, json.loads((FOLDER / "machine.json").read_text()))
    assert told["copy_bytes_per_s"]["2"]["8192"] == 2e10
    assert told["machine"]["cpu"]
