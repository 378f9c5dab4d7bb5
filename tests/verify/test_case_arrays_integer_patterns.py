"""The integers of adversarial cases."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.verify.case_arrays import CaseMaker, Pattern, define_operands, whole
from noyau.verify.lookup_tables import is_searched
from noyau.verify.patterns import normal
from tests.frontends.numpy.traces import found


@pytest.mark.parametrize("dtype", [dtype for dtype in DType if dtype.kind in ("int", "uint")], ids=lambda d: d.value)
def test_integers_of_every_style_fit_their_dtype(dtype):
    rng, limits = np.random.default_rng(0), np.iinfo(dtype.numpy)
    made = {
        style: whole(style, dtype, (50, 40), rng, mask=False)
        for style in ("small", "zeros", "equal", "lowest", "highest", "extremes")
    }
    assert all(array.dtype == dtype.numpy and array.shape == (50, 40) for array in made.values())
    assert not made["zeros"].any()
    assert len(np.unique(made["equal"])) == 1
    assert (made["extremes"].min(), made["extremes"].max()) == (limits.min, limits.max)
    assert np.abs(made["small"].astype(float)).max() <= 100
    assert int(made["lowest"].max()) <= int(limits.min) + 100
    assert int(made["highest"].min()) >= int(limits.max) - 100
    masks = whole("small", dtype, (50, 40), rng, mask=True)
    assert np.isin(masks, (0, 1)).mean() > 0.6
    assert masks.max() > 1


@pytest.mark.parametrize("dtype", [DType.I8, DType.I64, DType.U8, DType.U64], ids=lambda dtype: dtype.value)
def test_divisors_are_neither_zero_nor_the_least_number(dtype):
    given = whole("extremes", dtype, (500,), np.random.default_rng(0), mask=False)
    divisors = define_operands(given, divides=True, shifts=False)
    assert divisors.dtype == dtype.numpy
    assert (divisors != 0).all()
    assert dtype.kind == "uint" or divisors.min() > np.iinfo(dtype.numpy).min
    shifts = define_operands(given, divides=True, shifts=True)
    assert shifts.min() >= 0
    assert shifts.max() <= 7
    assert define_operands(given, divides=False, shifts=False) is given


def test_a_vector_that_is_searched_ascends():
    table, x = np.arange(9.0), np.linspace(-1, 9, 7)
    graph = found(lambda a, v: np.interp(v, a, a * a) + np.searchsorted(a, v), table, x).graph
    assert [is_searched(graph, node) for node in graph.inputs] == [True, False]
    drawn = CaseMaker(graph, np.random.default_rng(0)).inputs({"x0_0": 9, "x1_0": 7}, Pattern("normal", normal))
    assert drawn is not None and (np.diff(drawn["x0"]) > 0).all() and (np.diff(drawn["x1"]) < 0).any()
    other = found(lambda a, k: a[k] + a[k + 1], table, np.arange(3)).graph  # places that follow from no cell
    assert not is_searched(other, other.inputs[0])


@pytest.mark.parametrize("style", ["small", "zeros", "equal", "lowest", "highest", "extremes"])
@pytest.mark.parametrize("dtype", [DType.U8, DType.I8, DType.I32, DType.U64])
def test_a_lone_number_has_the_dtype_that_was_asked_for(dtype, style):
    for mask in (True, False):
        assert whole(style, dtype, (), np.random.default_rng(0), mask=mask).dtype == dtype.numpy
