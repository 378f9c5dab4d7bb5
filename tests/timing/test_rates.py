from __future__ import annotations

import dataclasses
import json

import pytest

from noyau.errors import OutputError
from noyau.timing import rates
from noyau.timing.conditions import Conditions
from noyau.timing.machine import this_machine
from noyau.timing.rates import SIZES, MachineRates, machine_rates, rate_of, recall_curves, recall_rates
from noyau.toolchain import cache

CALM = Conditions(None, 1e-4, 0.1, None)


def made(rate: float = 1e10) -> MachineRates:
    curves = {1: dict.fromkeys(SIZES, rate), 2: dict.fromkeys(SIZES, 2 * rate)}
    scaling = {"memory": {1: 1.0, 2: 2.0}, "exp": {1: 1.0}}
    return MachineRates(
        this_machine(), {"L1": 32768}, curves, curves, {"exp_f32": 2e9}, scaling, (CALM, CALM), "2026-01-01"
    )


@pytest.fixture
def scripted(monkeypatch, empty_cache):
    """Measuring gives 1, 2, 3... GB/s in turn."""
    count = []

    def measure(options):
        count.append(1)
        return made(1e9 * len(count))

    monkeypatch.setattr(rates, "_measure", measure)
    recall_curves.cache_clear()
    yield count
    recall_curves.cache_clear()


def test_it_is_measured_once_and_read_back_as_it_was(scripted):
    first = machine_rates()
    assert machine_rates() == first == recall_rates()
    assert len(scripted) == 1
    assert json.loads(json.dumps(first.to_json()))["values_per_s"] == {"exp_f32": 2e9}
    assert recall_curves() == (first.copy, first.read)


def test_refreshing_measures_again_and_leaves_one_record(scripted, empty_cache):
    machine_rates()
    assert machine_rates(refresh=True).copy[1][SIZES[0]] == 2e9
    assert recall_rates().copy[1][SIZES[0]] == 2e9
    assert len(list(empty_cache.glob("*.json"))) == 1
    assert recall_curves()[0][1][SIZES[0]] == 2e9


@pytest.mark.parametrize("field", ["cpu", "cores", "compiler", "level"])
def test_another_machine_or_compiler_is_measured_anew(scripted, monkeypatch, field):
    machine_rates()
    other = dataclasses.replace(this_machine(), **{field: 77 if field == "cores" else "another"})
    monkeypatch.setattr(rates, "this_machine", lambda options=None: other)
    assert recall_rates() is None
    machine_rates()
    assert len(scripted) == 2


@pytest.mark.parametrize("text", ["", "{}", '{"format": 0}', "[1]"])
def test_a_record_that_is_none_is_not_used(scripted, text):
    key = rates._key(rates.c_compiler.DEFAULTS)
    cache.store(key, ".json", lambda path: path.write_text(text))
    assert recall_rates() is None
    assert machine_rates().copy[1][SIZES[0]] == 1e9
    assert recall_rates() is not None


def test_a_cache_that_cannot_be_written_keeps_no_rate_and_gives_one(empty_cache, monkeypatch):
    def full(*_):
        raise OutputError("no room")

    with monkeypatch.context() as context:
        context.setattr(cache, "store", full)
        assert rate_of("copy", 1 << 20, 1, lambda *_: 3e9) == 3e9
    assert rate_of("copy", 1 << 20, 1, lambda *_: 4e9) == 4e9
    assert rate_of("copy", 1 << 20, 1, lambda *_: 5e9) == 4e9
