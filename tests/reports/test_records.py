from __future__ import annotations

import dataclasses
import errno
import json
import math
import os

import numpy as np
import pytest

from noyau.errors import OutputError
from noyau.reports.records import BindingRecord, EndToEnd, number
from noyau.timing.comparing import Verdict
from noyau.timing.conditions import Conditions
from tests.reports.samples import BARE, HOSTILE, KEPT, REPORT, WRONG, hostile

KEYS = "schema_version machine model nodes_before nodes_after ceiling kernels end_to_end not_fused inputs".split()
KEYS.append("conditions")
KERNEL_KEYS = (
    "name places replaces language verdict speedup speedup_low speedup_high bytes floor_ratio error error_unfused "
    "kept reason bindings"
).split()
BINDING_KEYS = "sizes verdict speedup low high floor_ratio before_s after_s cold ceiling timed_on recalled".split()
CALM = Conditions(None, 1e-4, 0.1, None)


@pytest.mark.parametrize("report", [REPORT, BARE])
def test_json_has_the_keys_of_the_schema_in_their_order(report):
    found = report.to_json()
    assert list(found) == KEYS
    assert found["schema_version"] == 1
    assert all(list(kernel) == KERNEL_KEYS for kernel in found["kernels"])
    assert list(found["end_to_end"]) == ["before_s", "after_s", "verdict", "speedup", "bindings"]
    assert all(list(group) == ["nodes", "reason"] for group in found["not_fused"])
    assert list(found["machine"]) == ["cpu", "cores", "level", "compiler", "os", "versions"]


def test_json_holds_what_the_record_holds():
    found = json.loads(json.dumps(REPORT.to_json(), allow_nan=False))
    kernel = found["kernels"][0]
    assert (kernel["name"], kernel["places"], kernel["verdict"], kernel["kept"]) == (KEPT.name, 5, "FASTER", True)
    assert (kernel["speedup"], kernel["speedup_low"], kernel["speedup_high"]) == (4.9, 4.71, 5.02)
    assert (kernel["bytes"], kernel["floor_ratio"], kernel["error"]) == (16_000_000, 0.812, 1.2e-7)
    assert kernel["replaces"] == list(KEPT.replaces)
    whole = {"before_s": 12.3e-3, "after_s": 10.1e-3, "verdict": "FASTER", "speedup": 1.22, "bindings": []}
    assert found["end_to_end"] == whole
    assert found["not_fused"][1] == {"nodes": ["one"], "reason": "a single operator: there is nothing to fuse"}
    assert (found["ceiling"], found["inputs"]) == (1.312, ["ids i64[2, 7]: made up, below 1024"])


def test_what_is_not_known_or_not_finite_is_null():
    assert REPORT.to_json()["kernels"][1]["error"] is None
    assert REPORT.to_json()["kernels"][2]["verdict"] is None
    assert BARE.to_json()["end_to_end"] == {
        **dict.fromkeys(["before_s", "after_s", "verdict", "speedup"]),
        "bindings": [],
    }
    whole = EndToEnd(float("nan"), float("inf"), None, -float("inf"))
    assert list(whole.to_json().values()) == [None] * 4 + [[]]


def test_a_binding_as_json():
    made = BindingRecord({"rows": 3}, Verdict.FASTER, 2.0, 1.9, math.inf, cold=(1.5, 1.4, 1.6), timed_on="2026-01-02")
    found = made.to_json()
    assert list(found) == BINDING_KEYS
    assert (found["sizes"], found["verdict"], found["high"], found["cold"]) == (
        {"rows": 3},
        "FASTER",
        None,
        [1.5, 1.4, 1.6],
    )
    assert dataclasses.replace(made, cold=None).to_json()["cold"] is None
    kernel = dataclasses.replace(KEPT, bindings=(made,)).to_json()
    assert kernel["bindings"] == EndToEnd(bindings=(made,)).to_json()["bindings"] == [found]


def test_doubts_are_told_with_what_to_do_where_anything_was_timed():
    busy = dataclasses.replace(CALM, load=99.0)
    assert REPORT.doubts == dataclasses.replace(REPORT, conditions=(CALM, CALM)).doubts == ""
    assert dataclasses.replace(REPORT, conditions=(CALM, busy)).doubts == (
        f"the times are doubtful: 99.0 processes wanted to run on {REPORT.machine.cores} cores; "
        "end other work on this machine and run it again with --fresh"
    )
    assert dataclasses.replace(BARE, conditions=(CALM, busy)).doubts == ""


def test_numbers_of_numpy_are_plain_numbers():
    kernel = dataclasses.replace(KEPT, bytes=np.int64(7), speedup=np.float32(1.5), error=np.float64(2))
    assert json.loads(json.dumps(kernel.to_json()))["bytes"] == 7
    assert type(number(np.float32(1.5))) is float


def test_the_rate_is_bytes_over_time():
    assert KEPT.rate == pytest.approx(50e9)
    assert WRONG.rate is None


def test_it_prints_itself():
    text = str(REPORT)
    assert "sum_rsqrt_0_3fa91c2b" in text
    assert "\x1b" not in text
    assert f"{BARE}".startswith("plain.onnx: 3 nodes before, 3 after")


def test_writing_makes_one_file_and_writing_again_replaces_it(tmp_path):
    path = tmp_path / "report.json"
    BARE.write(path)
    REPORT.write(path)
    assert json.loads(path.read_text(encoding="utf-8")) == REPORT.to_json()
    assert list(tmp_path.iterdir()) == [path]


def test_the_same_report_gives_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        REPORT.write(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_hostile_names_come_back_as_they_are(tmp_path, name):
    path = tmp_path / "report.json"
    hostile(name).write(path)
    assert path.read_bytes().isascii()
    found = json.loads(path.read_text(encoding="ascii"))
    assert found["kernels"][0]["name"] == found["model"] == found["inputs"][0] == name


@pytest.mark.parametrize("name", ["missing/report.json", "file/report.json", "folder", "nul\0.json"])
def test_a_place_that_cannot_be_written_is_one_clear_error(tmp_path, name):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError, match="cannot be written"):
        REPORT.write(tmp_path / name)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder"]


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "report.json"
    path.write_text("before", encoding="ascii")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="No space left"):
        REPORT.write(path)
    assert path.read_text(encoding="ascii") == "before"
    assert list(tmp_path.iterdir()) == [path]
