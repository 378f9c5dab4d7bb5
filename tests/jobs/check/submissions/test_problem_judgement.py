from __future__ import annotations

import numpy as np
import pytest

from noyau.errors import FindingKind
from noyau.jobs.check.submissions.problem import Answer, Status, Tolerance, Truth, faults_of, passes, replays

X, Y = np.linspace(1, 2, 1000, dtype=np.float32), np.linspace(2, 3, 1000, dtype=np.float32)
FACTS = {"changed": [], "unset": [], "unread": [], "aliases": []}
RULE = Tolerance(1e-2, 1e-2, 0.99)


def truth(x=X, **facts):
    wide, moved = x.astype(np.float64), np.nextafter(x, np.float32(9))
    return Truth((x,), (wide,), ((x,), (moved,)), (x,), FACTS | facts)


def answer(result, inputs=X, **facts):
    return Answer((result,), (inputs,), {"aliases": [], "changed": False, "is_same_memory": False} | facts)


def with_cells(array, value, count=1):
    other = array.copy()
    other[:count] = value
    return other


@pytest.mark.parametrize(
    ("result", "statuses"),
    [
        (X, []),
        (np.nextafter(X, np.float32(9)), []),
        (with_cells(X, 5.0), [Status.WRONG]),
        (with_cells(X, np.nan), [Status.WRONG]),
        (with_cells(X.view(np.uint32), 0xFFFFFFFF, 7).view(np.float32), [Status.UNWRITTEN]),
        (X[:-1], [Status.WRONG_SHAPE]),
        (X.astype(np.float64), [Status.WRONG_DTYPE]),
    ],
)
def test_results_are_judged_cell_by_cell(result, statuses):
    assert [each.status for each in faults_of(answer(result), truth(), "n = 1000", RULE, 0xFF)] == statuses


def test_a_nan_of_any_bytes_is_no_unwritten_cell_where_the_reference_has_one():
    ones = with_cells(X.view(np.uint32), 0xFFFFFFFF, 7).view(np.float32)  # as vector instructions give log of -1
    nan = truth(with_cells(X, np.nan, 7))
    assert not list(faults_of(answer(ones, nan.inputs[0]), nan, "", RULE, 0xFF))
    assert [each.status for each in faults_of(answer(ones), truth(with_cells(X, np.nan, 6)), "", RULE, 0xFF)][
        -1
    ] is Status.UNWRITTEN


def test_lost_precision_within_the_tolerance_of_the_problem_is_a_warning():
    result = X * np.float32(1 + 1e-5)
    (fault,) = faults_of(answer(result), truth(), "n = 1000", RULE, 0xFF)
    assert (fault.kind, fault.severity) == (FindingKind.PRECISION, "warning")
    (fault,) = faults_of(answer(result), truth(), "n = 1000", Tolerance(1e-9, 1e-9), 0xFF)
    assert fault.severity == "error"


def test_another_number_of_results_is_wrong():
    both = Answer((X, X), (X,), {"aliases": []})
    assert [each.message for each in faults_of(both, truth(), "", RULE, 0xFF)] == [
        "it gave 2 results, and the reference 1"
    ]


@pytest.mark.parametrize("fact", ["changed", "unset", "unread"])
def test_an_input_may_be_changed_only_where_it_is_an_output(fact):
    changed = answer(X, with_cells(X, 0.0, 3))
    (fault,) = faults_of(changed, truth(), "", RULE, 0xFF)
    assert fault.status is Status.CHANGED_INPUTS
    assert fault.message == "it changed 3 cells of its input 0, [0] first"
    assert not list(faults_of(changed, truth(**{fact: [0]}), "", RULE, 0xFF))


def test_replays_are_seen_in_the_calls_together():
    truths = {"a": truth(), "b": truth(Y)}
    right = {"a": answer(X), "b": answer(Y), "c": answer(X)}
    assert not list(replays(right, truths))
    again = "the results of its first call again"
    assert again in next(replays({"a": answer(X), "b": answer(X), "c": answer(X)}, truths)).message
    assert "the same tensors" in next(replays({"a": answer(X), "b": answer(Y), "c": answer(Y)}, truths)).message
    shared = answer(X, aliases=[[0, 0]])
    (fault,) = replays({"a": shared}, truths)
    assert "lies in the memory of its input 0" in fault.message and fault.status is Status.CHANGED_INPUTS
    assert not list(replays({"a": shared}, {"a": truth(aliases=[[0, 0]])}))
    later = {"a": answer(X), "b": answer(Y, changed=True)}
    assert [each.severity for each in replays(later, truths)] == ["warning"]


@pytest.mark.parametrize(
    ("got", "tolerance", "ok"),
    [
        (X, RULE, True),
        (with_cells(X, 9.0, 10), RULE, True),
        (with_cells(X, 9.0, 11), RULE, False),
        (with_cells(X, 9.0), Tolerance(1e-2, 1e-2, 0.99, 1.0), False),
        (with_cells(X, np.inf), RULE, False),
        (X * 0, Tolerance(9.0, 9.0), False),
        (X[:5], RULE, False),
    ],
)
def test_the_rule_of_a_benchmark(got, tolerance, ok):
    assert passes(got, X, tolerance) is ok
