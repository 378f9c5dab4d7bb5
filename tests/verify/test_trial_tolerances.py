from __future__ import annotations

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import InputError
from noyau.kernels.reference import graph_of
from noyau.verify.checks import require_tolerance
from noyau.verify.failures import Case
from noyau.verify.trial import KernelTrial
from tests.kernels.written import op_of

X = np.array([0.5, -3.0, 100.0, np.nan, np.inf], np.float32)


def outcome(kernel, tolerance, dtype=DType.F32, given=X):
    op = op_of(f"{dtype.value}[n] -> {dtype.value}[n]")
    graph = graph_of(op.description.reference, op.instance([dtype], [1]), {})
    return KernelTrial(graph, kernel, is_check=True, tolerance=tolerance).outcome(Case("case", (given,)), 0)


def off(by):
    return lambda inputs: [(inputs[0] + by * np.maximum(1, np.abs(inputs[0]))).astype(np.float32)]


def test_a_tolerance_is_relative_and_below_1_absolute():
    assert outcome(off(1e-3), None).broken
    assert outcome(off(0.9e-3), 1e-3).beyond == 0
    assert outcome(off(0.9e-3), 1e-3).worst_ratio == pytest.approx(0.9, rel=1e-3)
    assert outcome(off(1e-2), 1e-3).broken


def test_nan_and_infinity_stay_as_in_the_reference():
    assert outcome(lambda inputs: [np.where(np.isfinite(inputs[0]), inputs[0], np.float32(0))], 0.5).broken


def test_integers_are_exact_anyway():
    given = np.arange(3)
    assert not outcome(lambda inputs: [inputs[0]], 0.5, DType.I64, given).broken
    assert outcome(lambda inputs: [inputs[0] + (inputs[0] == 1)], 10.0, DType.I64, given).broken


@pytest.mark.parametrize("tolerance", [0, -1e-3, float("nan"), float("inf"), "1e-3"])
def test_what_is_no_tolerance(tolerance):
    with pytest.raises(InputError, match=r"the tolerance is .*; give a number above 0, such as 1e-3"):
        require_tolerance(tolerance)
    require_tolerance(None)
    require_tolerance(1)
