"""ONNX's own operator cases: what is right stays right, and no case is wrong (the list is committed)."""

from __future__ import annotations

import importlib.util
import json
import sys
import warnings
from collections import Counter
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest

ROOT = Path(__file__).resolve().parents[2]


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("onnx_cases", ROOT / "benchmarks" / "onnx_cases.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


onnx_cases = script()
EACH = 5  # one expanded case in so many is judged by default
LISTED = json.loads(onnx_cases.LIST.read_text(encoding="utf-8"))


@pytest.fixture(scope="module", params=[EACH, pytest.param(1, marks=pytest.mark.long)], ids=["some", "all"])
def outcomes(request):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = list(onnx_cases.cases())
        parameters = onnx_cases.parameters_of(found)
    if {case.name for case in found} != LISTED.keys():
        pytest.skip(f"the list is of the cases of another release than onnx {onnx.__version__}")
    judged = [case for case in found if "_expanded" not in case.name]  # the same operators as functions of simpler ones
    judged += [case for case in found if "_expanded" in case.name][:: request.param]
    return {case.name: onnx_cases.judge(case, parameters[case.name]) for case in judged}


def test_the_list_has_a_thousand_right_ones_and_none_wrong():
    verdicts = Counter(verdict for verdict, *_ in LISTED.values())
    assert verdicts["right"] >= 1000
    assert verdicts.keys() == {"right", "boundary", "refused"}
    assert all(reason for verdict, *reason in LISTED.values() if verdict != "right")


def test_no_case_is_wrong(outcomes):
    assert {name: each.reason for name, each in outcomes.items() if each.verdict == "wrong"} == {}


def test_what_was_right_is_right(outcomes):
    assert len(outcomes) > len(LISTED) / 2
    lost = {name: each for name, each in outcomes.items() if LISTED[name][0] == "right" and each.verdict != "right"}
    assert lost == {}


def test_the_list_is_what_this_release_of_onnx_gives(outcomes):
    listed = {name: LISTED[name] for name in outcomes}
    assert {name: [each.verdict, *([each.reason] if each.reason else [])] for name, each in outcomes.items()} == listed


def test_a_wrong_result_is_found():
    """The judge is not blind: an executor that moves one cell by one part in a hundred is caught."""
    case = next(case for case in onnx_cases.cases() if case.name == "test_exp")

    def skewed(graph, inputs):
        made = {name: np.array(value) for name, value in onnx_cases.evaluate(graph, inputs).items()}
        made["y"].flat[7] *= 1.01
        return made

    assert onnx_cases.judge(case, frozenset()).verdict == "right"
    assert onnx_cases.judge(case, frozenset(), skewed).verdict == "wrong"
    assert onnx_cases.judge(case, frozenset(), lambda graph, inputs: {"y": np.zeros((3, 4, 5))}).verdict == "wrong"
