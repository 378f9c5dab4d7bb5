from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

from noyau.jobs.optimize.record import BindingRecord, EndToEnd
from noyau.text import as_json
from noyau.timing.conditions import Conditions
from noyau.timing.verdict import Verdict
from tests.jobs.report.samples import BARE, KEPT, REPORT, WRONG

KEYS = "schema_version machine model nodes_before nodes_after ceiling kernels end_to_end not_fused inputs".split()
KEYS.append("conditions")
KERNEL_KEYS = (
    "name places replaces language verdict speedup speedup_low speedup_high bytes floor_ratio error error_unfused "
    "kept reason bindings"
).split()
BINDING_KEYS = (
    "sizes verdict speedup low high floor_ratio before_s after_s cold ceiling timed_on recalled "
    "latency_before latency_after"
).split()
CALM = Conditions(None, 1e-4, 0.1, None)


@pytest.mark.parametrize("report", [REPORT, BARE])
def test_json_has_the_keys_of_the_schema_in_their_order(report):
    found = report.to_json()
    assert list(found) == KEYS
    assert found["schema_version"] == 1
    assert all(list(kernel) == KERNEL_KEYS for kernel in found["kernels"])
    assert list(found["end_to_end"]) == ["before_s", "after_s", "verdict", "speedup", "bindings", "reason"]
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
    assert found["end_to_end"] == {**whole, "reason": ""}
    assert found["not_fused"][1] == {"nodes": ["one"], "reason": "a single operator: there is nothing to fuse"}
    assert (found["ceiling"], found["inputs"]) == (1.312, ["ids i64[2, 7]: made up, below 1024"])


def test_what_is_not_known_or_not_finite_is_null():
    assert REPORT.to_json()["kernels"][1]["error"] is None
    assert REPORT.to_json()["kernels"][2]["verdict"] is None
    assert BARE.to_json()["end_to_end"] == {
        **dict.fromkeys(["before_s", "after_s", "verdict", "speedup"]),
        "bindings": [],
        "reason": "",
    }
    whole = EndToEnd(float("nan"), float("inf"), None, -float("inf"))
    assert list(whole.to_json().values()) == [None] * 4 + [[], ""]


def test_a_binding_as_json():
    made = BindingRecord({"rows": 3}, Verdict.FASTER, 2.0, 1.9, math.inf, cold=(1.5, 1.4, 1.6), timed_on="2026-01-02")
    found = as_json(made)
    assert list(found) == BINDING_KEYS
    assert (found["sizes"], found["verdict"], found["high"], found["cold"]) == (
        {"rows": 3},
        "FASTER",
        None,
        [1.5, 1.4, 1.6],
    )
    assert as_json(dataclasses.replace(made, cold=None))["cold"] is None
    kernel = dataclasses.replace(KEPT, bindings=(made,)).to_json()
    assert kernel["bindings"] == EndToEnd(bindings=(made,)).to_json()["bindings"] == [found]


def test_doubts_are_told_with_what_to_do_where_anything_was_timed():
    busy = dataclasses.replace(CALM, load=99.0)
    assert REPORT.doubts == dataclasses.replace(REPORT, conditions=(CALM, CALM)).doubts == ""
    assert dataclasses.replace(REPORT, conditions=(CALM, busy)).doubts == (
        f"the times are doubtful: other work ran, 99.0 processes on {REPORT.machine.cores} cores; "
        "end other work on this machine and run it again with --fresh"
    )
    assert dataclasses.replace(BARE, conditions=(CALM, busy)).doubts == ""


def test_numbers_of_numpy_are_plain_numbers():
    kernel = dataclasses.replace(KEPT, bytes=np.int64(7), speedup=np.float32(1.5), error=np.float64(2))
    assert json.loads(json.dumps(kernel.to_json()))["bytes"] == 7
    assert type(as_json(np.float32(1.5))) is float


def test_the_rate_is_bytes_over_time():
    assert KEPT.rate == pytest.approx(50e9)
    assert WRONG.rate is None


def test_it_prints_itself():
    text = str(REPORT)
    assert "sum_rsqrt_0_3fa91c2b" in text
    assert "\x1b" not in text
    assert f"{BARE}".startswith("No kernel: nothing in this model could be fused.\n\nplain.onnx: 3 nodes before")
