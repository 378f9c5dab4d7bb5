from __future__ import annotations

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.jobs.bench import record
from noyau.jobs.bench.record import Workload, work_of_arrays, work_of_graph
from noyau.kernels.programs.generate import Specialization, trace_reference
from noyau.kernels.reference import reference_of
from noyau.signatures.instances import instance_of
from noyau.signatures.types import parse


def work(text, function, dtypes, ranks, sizes) -> Workload:
    reference = reference_of(function, None)
    instance = instance_of(parse(text, reference.parameters), dtypes, ranks)
    return work_of_graph(trace_reference(reference, Specialization(instance)), sizes)


@pytest.mark.parametrize(
    ("text", "function", "ranks", "sizes", "flops", "moved"),
    [
        ("f32[n], f32[n] -> f32", lambda x, y: (x * y).sum(), (1, 1), {"n": 100}, 200, 804),
        ("f32[m, k], f32[k, n] -> f32[m, n]", lambda x, y: x @ y, (2, 2), {"m": 2, "k": 3, "n": 5}, 60, 124),
        ("f32[n] -> f32[n]", lambda x: np.exp(x), (1,), {"n": 10}, None, 80),
        ("f32[n] -> f32[n]", lambda x: np.where(x > 1, 1, x), (1,), {"n": 10}, 20, 80),
        ("f32[m, n] -> f32[m, n]", lambda x: np.cumsum(x, axis=1), (2,), {"m": 3, "n": 10}, 30, 240),
    ],
)
def test_flops_are_told_where_they_are_plain_arithmetic(text, function, ranks, sizes, flops, moved):
    found = work(text, function, (DType.F32,) * len(ranks), ranks, sizes)
    assert found.flops == flops
    assert found.bytes_moved == moved
    assert found.exact


def test_each_update_that_is_merged_is_a_flop_and_one_that_is_written_is_none():
    def added(key, x):
        out = np.zeros(4, np.float32)
        np.add.at(out, key, x)
        return out

    def written(key, x):
        out = np.zeros(4, np.float32)
        out[key] = x
        return out

    text, dtypes = "i64[n], f32[n] -> f32[m]", (DType.I64, DType.F32)
    merged, kept = (work(text, each, dtypes, (1, 1), {"n": 100, "m": 4}).flops for each in (added, written))
    assert merged == kept + 100


def test_what_is_repeated_is_read_once():
    row = np.broadcast_to(np.zeros(10, np.float32), (5, 10))
    assert work_of_arrays([row], [np.zeros((5, 10), np.float32)]) == Workload(40, 200)


def test_nothing_to_move_has_no_floor():
    assert Workload(0, 0).floor_s(2) is None
    assert Workload(0, 0).mistake(1e-12, 2) == ""


def test_reading_takes_no_longer_than_a_copy_of_as_many_bytes(monkeypatch):
    monkeypatch.setattr(record, "floor_s", lambda read, written, threads: (read + written) / 1e9)
    monkeypatch.setattr(record, "copy_rate", lambda moved, threads: 2e9)
    assert Workload(1 << 20, 0).floor_s(1) == (1 << 20) / 2e9


def test_the_floor_of_what_is_in_no_cache_is_that_of_memory(monkeypatch):
    asked = []
    monkeypatch.setattr(record, "last_level_bytes", lambda: 1 << 20)
    monkeypatch.setattr(record, "floor_s", lambda read, written, threads: asked.append((read, written)) or 1.0)
    Workload(3 << 16, 1 << 16).floor_s(1, cold=True)
    Workload(3 << 22, 1 << 22).floor_s(1, cold=True)
    assert asked == [(3 << 20, 1 << 20), (3 << 22, 1 << 22)]


def test_the_floor_is_positive_and_less_time_is_a_mistake():
    found = Workload(4 << 20, 4 << 20)
    assert found.floor_s(1) > 0
    assert "must move" in found.mistake(1e-9, 1)
    assert found.mistake(1.0, 1) == ""
