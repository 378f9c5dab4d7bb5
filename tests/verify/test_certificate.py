from __future__ import annotations

import json
import math

import pytest

from noyau.errors import CheckError, FindingKind
from noyau.verify.certificate import SHARE, Certificate, Outcome
from noyau.verify.failures import Failure
from noyau.verify.floats import Errors

WRONG = Failure.of_cell("masked rows", "x: f32[4, 41]", "all of [:, 40:] is wrong", "out", (3, 40), 0.0, 0.0213, 1.2e-8)
GOOD = Outcome(
    "normal numbers", False, 100, 0, 0.5, Errors(2.0, 50.0, 3e-7, 1e-6, 100), Errors(4.0, 80.0, 4e-7, 2e-6, 100)
)


def bad(ratio: float, beyond: int = 1, cells: int = 100) -> Outcome:
    return Outcome("masked rows", False, cells, beyond, ratio, failures=(WRONG,))


def test_nothing_tried_is_nothing_known():
    certificate = Certificate("softmax[c]", ())
    assert not certificate.ok
    with pytest.raises(CheckError, match=r"^softmax\[c\] is not tried on any case$"):
        certificate.raise_if_bad()


def test_a_right_kernel_raises_nothing():
    certificate = Certificate("softmax[c]", (GOOD,))
    assert certificate.ok
    certificate.raise_if_bad()
    assert certificate.failures == ()


@pytest.mark.parametrize(
    ("ratio", "beyond", "cells", "ok"),
    [
        (1.5, 1, SHARE, True),
        (4.0, 2, 2 * SHARE, True),
        (1.5, 1, SHARE - 1, False),
        (1.5, 2, SHARE, False),
        (4.1, 1, SHARE, False),
        (math.inf, 1, 10 * SHARE, False),
    ],
)
def test_one_cell_in_100000_may_be_beyond_by_4_times(ratio, beyond, cells, ok):
    assert Certificate("k", (bad(ratio, beyond, cells),)).ok is ok


def test_cells_beyond_are_counted_over_all_cases():
    several = (bad(2.0, 1, SHARE // 2), Outcome("normal numbers", False, SHARE // 2))
    assert Certificate("k", several).ok
    assert not Certificate("k", (*several, bad(2.0, 1, 10))).ok


def test_what_is_no_matter_of_cells_is_never_allowed():
    note = Failure(FindingKind.MUTATED_INPUT, "zeros", "x: f32[4]", "changed its input 0")
    large = Outcome("normal numbers", False, 100 * SHARE)
    certificate = Certificate("k", (large, Outcome("zeros", False, failures=(note,))))
    assert not certificate.ok
    with pytest.raises(CheckError, match=r"^k is wrong: it changed its input 0; for x: f32\[4\] \(zeros\)$"):
        certificate.raise_if_bad()


def test_bits_that_depend_on_the_pieces_are_wrong():
    assert Certificate("k", (GOOD,), order_independent=True).ok
    certificate = Certificate("k", (GOOD,), order_independent=False)
    with pytest.raises(CheckError, match="k is wrong: its bits depend on how its work is cut"):
        certificate.raise_if_bad()


def test_the_message_says_what_where_and_how_far():
    with pytest.raises(CheckError) as caught:
        Certificate("softmax[triton]", (GOOD, bad(9.0))).raise_if_bad()
    assert str(caught.value) == (
        "softmax[triton] is wrong at out[3, 40] for x: f32[4, 41] (masked rows): "
        "got 0, want 0.0213 (float64), allowed 1.2e-08; all of [:, 40:] is wrong"
    )


def test_the_worst_kind_of_failure_comes_first():
    other = Failure(FindingKind.WRONG_VALUE, "zeros", "x: f32[4]", "gave 2 outputs, not 1")
    certificate = Certificate("k", (bad(1.5), Outcome("zeros", False, failures=(other,))))
    assert certificate.failures == (other, WRONG)


def test_errors_are_those_of_captured_cases_where_there_are_any():
    captured = Outcome("captured at out", True, 10, kernel=Errors(1.0, 5.0, 1e-7, 5e-7, 10))
    assert Certificate("k", (GOOD, bad(2.0))).kernel == GOOD.kernel
    certificate = Certificate("k", (GOOD, captured))
    assert certificate.captured
    assert certificate.kernel == captured.kernel
    assert certificate.unfused == captured.unfused


def test_the_summary_is_one_line_and_says_what_is_made_up():
    captured = Outcome("captured at out", True, 10, kernel=Errors(1.0, 5.0, 1e-7, 5e-7, 10))
    made_up, real = (Certificate("k", (GOOD, captured), made_up=made_up).summary() for made_up in (True, False))
    assert real == (
        "right on 2 cases, model activations among them: error 1.0e-07, mean 0.5 ulp "
        "(unfused 0.0e+00, 0 ulp); at most 0.50 of what is allowed"
    )
    assert "activations of made-up inputs" in made_up
    assert "\n" not in Certificate("k", (bad(9.0),)).summary()


def test_ratios_by_case_keep_the_worst_of_a_label():
    outcomes = (Outcome("a", False, 1, 0, 0.2), Outcome("b", False, 1, 0, 0.1), Outcome("a", False, 1, 0, 0.7))
    assert Certificate("k", outcomes).cases == {"a": 0.7, "b": 0.1}


def test_the_record_is_json_even_where_numbers_are_not_finite():
    wrong = Failure.of_cell("NaN mixed in", "x: f32[2]", "it is wrong", "out", (1,), math.inf, math.nan, 1e-9)
    outcome = Outcome("NaN mixed in", False, 2, 1, math.inf, failures=(wrong,))
    text = json.dumps(Certificate("k", (GOOD, outcome), order_independent=True).to_json(), allow_nan=False)
    record = json.loads(text)
    assert record["ok"] is False
    assert record["worst_ratio"] == "inf"
    assert record["failures"][0]["got"] == "inf"
    assert record["cases"][0]["kernel"]["worst_ulp"] == 2.0
