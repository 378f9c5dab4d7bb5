"""Sizes that nobody gave are moved until they fit together."""

from __future__ import annotations

import pytest

from noyau.frontends.onnx import import_model
from noyau.hosts.onnxruntime.inputs import fit_sizes
from tests.frontends.onnx.models import model

# Row i of the table for each of `now` tokens, and one cell of the mask for each of past and present.
CACHED = """(float[32, 4] table, float[all] mask, float[past] old, float[now] new) => (float y, float z)
    { zero = Constant<value_int = 0>() one = Constant<value_int = 1>() axis = Constant<value_ints = [0]>()
      whole = Concat<axis = 0>(old, new) s = Shape(whole) n = Gather(s, zero) at = Range(zero, n, one)
      y = Gather(mask, at)
      t = Shape(new) k = Gather(t, zero) rows = Range(zero, k, one) z = Gather(table, rows) }"""


@pytest.mark.parametrize(
    ("sizes", "fixed", "wanted"),
    [
        ({"all": 20, "past": 3, "now": 4}, (), {"all": 20, "past": 3, "now": 4}),
        ({"all": 20, "past": 20, "now": 20}, (), {"all": 40, "past": 20, "now": 20}),  # what others read is longer
        ({"all": 20, "past": 21, "now": 20}, ("all",), {"all": 20, "past": 1, "now": 19}),
        ({"all": 40, "past": 5, "now": 35}, (), {"all": 40, "past": 5, "now": 32}),  # a table has the rows that it has
        ({"all": 1, "past": 5, "now": 100}, ("all", "past", "now"), {"all": 1, "past": 5, "now": 100}),
    ],
)
def test_views_stay_within_what_they_view(sizes, fixed, wanted):
    assert fit_sizes(sizes, import_model(model(CACHED)), fixed) == wanted


def test_extents_that_must_be_equal_are():
    found = import_model(model("(float[n, 3] x, float[m, 3] y) => (float z) { z = Add(x, y) }"))
    assert fit_sizes({"n": 5, "m": 5}, found) == {"n": 5, "m": 5}
    assert len(set(fit_sizes({"n": 5, "m": 9}, found).values())) == 1
    assert fit_sizes({"n": 5, "m": 9}, found, ("n",)) == {"n": 5, "m": 5}
    assert fit_sizes({"n": 5, "m": 9}, found, ("m",)) == {"n": 9, "m": 9}
