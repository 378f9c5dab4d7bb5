from __future__ import annotations

import numpy as np
import pytest

import noyau
from noyau.dtypes import DType
from noyau.jobs.check.gradients import cases_of, central_difference, subject_of


def soft(x, scale):
    return np.log1p(np.exp(x * scale)).sum(0)


OP = noyau.op("float[n, m], f64 -> float[m]")(soft)


def test_a_subject_is_the_op_for_some_dtype():
    subject, arrays = subject_of(OP, {"n": 4}, DType.F64, 0)
    assert subject.names == ("x", "scale")
    assert arrays["x"].shape == (4, 3) and arrays["x"].dtype == np.float64
    assert subject_of(OP, {}, DType.F32, 0)[1]["x"].dtype == np.float32


def test_cases_have_numbers_above_0_small_sizes_and_ties():
    found = list(cases_of(OP, {}, DType.F64, 0))
    assert [case.label for _, case in found] == [
        "normal numbers",
        "numbers above 0",
        "normal numbers",
        "many equal numbers",
    ]
    assert [case.on_kinks for _, case in found] == [False, False, False, True]
    assert found[1][1].inputs["x"].min() > 0
    assert found[2][1].inputs["x"].shape == (1, 1)
    assert np.array_equal(found[3][1].inputs["x"], np.round(found[3][1].inputs["x"]))
    assert found[0][0].describe(found[0][1]) == "x: f64[5, 3], scale: f64[] (normal numbers)"


def test_a_maker_says_what_the_inputs_are():
    op = noyau.op("float[n] -> float[n]", inputs=lambda rng, n=4: rng.random(n).astype(np.float32))(lambda x: np.log(x))
    ((subject, case),) = list(cases_of(op, {"n": 6}, DType.F64, 0))
    assert case.inputs["x"].shape == (6,) and case.inputs["x"].dtype == np.float64
    assert subject.gradients(subject.derived, case)["x"] == pytest.approx(case.above["out"] / case.inputs["x"])


def test_differences_are_the_derivative():
    subject, case = next(cases_of(OP, {}, DType.F64, 0))
    right = subject.gradients(subject.derived, case)
    for name, cell in (("x", (2, 1)), ("scale", ())):
        slope = central_difference(subject.graph, case.inputs, case.above, name, cell)
        assert slope == pytest.approx(right[name][cell], rel=1e-6, abs=1e-8)


def test_upon_a_kink_the_slopes_of_either_side_are_the_bounds():
    largest = noyau.op("f64[n] -> f64")(lambda x: x.max())
    subject, arrays = subject_of(largest, {}, DType.F64, 0)
    case = next(case for _, case in cases_of(largest, {}, DType.F64, 0))
    ties = type(case)("ties", {"x": np.zeros_like(arrays["x"])}, {"out": np.array(1.0)}, on_kinks=True)
    one, count = np.eye(5)[0], len(arrays["x"])
    assert subject.may_be(ties, {"x": one}) and subject.may_be(ties, {"x": np.full(count, 1 / count)})
    assert not subject.may_be(ties, {"x": np.ones(count)}) and not subject.may_be(ties, {"x": np.zeros(count)})
