"""ONNX's own operator cases through generated C: the committed list, and a sample of it run anew."""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from collections import Counter
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
EACH = 25  # one right case in so many is run anew


@pytest.fixture(scope="module")
def in_c():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module("onnx_cases_in_c")
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def listed(in_c):
    return json.loads(in_c.LIST.read_text(encoding="utf-8"))


def test_at_least_700_cases_are_right_in_c_and_none_is_wrong(listed):
    verdicts = Counter(verdict for verdict, *_ in listed.values())
    assert verdicts["right"] >= 700
    assert verdicts.keys() == {"right", "refused"}
    assert all(reason for verdict, *reason in listed.values() if verdict == "refused")


def test_the_list_is_of_the_cases_that_are_right_through_the_interpreter(in_c, listed):
    interpreted = json.loads(in_c.onnx_cases.LIST.read_text(encoding="utf-8"))
    assert listed.keys() == {name for name, (verdict, *_) in interpreted.items() if verdict == "right"}


def test_a_sample_is_right_still(in_c, listed):
    wanted = sorted(name for name, (verdict, *_) in listed.items() if verdict == "right")[::EACH]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [case for case in in_c.onnx_cases.cases() if case.name in wanted]
        outcomes = {outcome.name: outcome for outcome in in_c.judged(found)}
    assert {name: each for name, each in outcomes.items() if each.verdict != "right"} == {}
    assert len(outcomes) >= min(len(wanted), 30)
