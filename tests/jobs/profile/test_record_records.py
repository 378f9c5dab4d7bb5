from __future__ import annotations

import json
from dataclasses import replace

import pytest

from noyau.errors import OutputError
from noyau.jobs.profile.record import NodeMemory
from tests.jobs.profile.samples import MEMORY, PATHS, at, profile


def test_the_record_is_plain_data(tmp_path):
    made = profile(1, 128)
    made.write(tmp_path / "r.json")
    told = json.loads((tmp_path / "r.json").read_text())
    assert told == made.to_json()
    assert list(told) == ["schema_version", "machine", "model", "nodes", "threads", "at"]
    assert (told["schema_version"], told["nodes"], len(told["at"])) == (1, 12, 2)
    first = told["at"][0]
    assert first["sizes"] == {"batch": 1, "sequence": 1}
    assert first["ceiling"] == pytest.approx(1.25)
    assert first["nodes"][1]["stands_for"] == ["Sigmoid#4", "Mul#5"]
    assert first["nodes"][1]["made_by_optimizer"] is True
    assert first["paths"][1]["bytes"] is None
    assert first["memory"]["largest_values"][0] == {"name": "h", "dtype": "float", "shape": [2, 128], "bytes": 1024}
    assert first["operators"][1]["in_file"] is False


def test_a_record_that_cannot_be_written(tmp_path):
    with pytest.raises(OutputError, match="cannot be written: No such file"):
        profile().write(tmp_path / "missing" / "r.json")


def test_the_ceiling_is_that_of_all_gains():
    assert at().ceiling == pytest.approx(1 / 0.8)
    assert at(paths=()).ceiling == 1
    assert at(paths=(replace(PATHS[0], gain_s=0.96e-3),)).ceiling is None


def test_what_is_outside_of_paths_is_by_operator():
    assert at().outside == {"MatMul": 600e-6, "Reorder": 40e-6}
    assert at().paths_s == pytest.approx(300e-6)


def test_the_peak_is_the_most_of_what_is_known():
    assert MEMORY.peak == 70 << 20
    assert NodeMemory(5, running=7).peak == 7
    assert NodeMemory(5).peak is None


def test_it_prints_itself():
    assert str(profile()).startswith("llama.onnx: 12 nodes in the file, 5 run by onnxruntime\n")
    assert all(line == line.rstrip() and len(line) <= 100 for line in str(profile(1, 128)).splitlines())
