from __future__ import annotations

import math

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.numpy.tape import Tape
from noyau.frontends.numpy.trace import trace_shapes
from noyau.ir.dims import Dim
from noyau.ir.sizes import Demand
from tests.frontends.numpy.traces import agrees, found, newer, traced_only, x


@pytest.mark.parametrize(
    "function",
    [
        lambda a: a * a.shape[0] / 2 + a.shape[1] * 0.5,
        lambda a: a / math.sqrt(a.shape[1]) + a * (1 / a.shape[0]) ** 2,
        lambda a: a * (a.shape[0] / a.shape[1] % 1 + a.shape[0] // 2 - 3.5),
        lambda a: a * np.sqrt(a.shape[0]),
        lambda a: a.astype(np.int32) + a.shape[0],
        lambda a: a.astype(np.int32) * (a.shape[0] / 2),
        lambda a: a - len(a) + np.float32(2) * a.shape[1] ** 2,
        lambda a: a.reshape(math.prod(a.shape)) + np.prod(a.shape),
        lambda a: np.zeros((max(a.shape), min(a.shape), max(a.shape[0], 2))),
        lambda a: (a.sum() / a.size, a.mean(), a.shape[0] - a.shape[0]),
        lambda a: a + np.arange(a.shape[0])[:, None] * a.shape[1],
        lambda a: a * (np.prod(a.shape) / 2) + np.prod(a.shape[:1]) * np.float32(2),
        lambda a: -(2.0 - a.shape[0]) * a,
        lambda a: a / (len(a) * 0.3 * np.sqrt(2 * np.pi)),
        lambda a: a * (np.float64(2) * a.shape[0]) + a / (a.shape[1] / np.float64(3)),
        lambda a: a - np.float64(0.5) ** (a.shape[0] / 2) + (np.float32(2) + a.shape[0]),
    ],
)
def test_sizes_calculate_as_numbers_do(function):
    array = x(3, 4)
    agrees(function, array)
    assert found(function, array).specialised == {}


HIDDEN = {  # what stands in a dict sees numpy itself, which asks for numbers
    "arange": lambda a: a + np.arange(a.shape[1]),
    "tri": lambda a: np.tri(a.shape[0])[:, :1] + a,
    "zeros": lambda a: a + np.zeros(a.shape),
}


@pytest.mark.parametrize(
    ("function", "specialised"),
    [
        (lambda a: a * int(a.shape[0]), {"x0_0": 3}),
        (lambda a: a * float(a.shape[1]), {"x0_1": 4}),
        (lambda a: sum(a[k] for k in range(a.shape[0])), {"x0_0": 3}),
        (lambda a: sum(row for row in a), {"x0_0": 3}),
        (lambda a: a * {3: 2.0}[a.shape[0]], {"x0_0": 3}),
        (lambda a: a * round(a.shape[0] / 2), {"x0_0": 3}),
        (lambda a: a[:, :: a.shape[0]], {"x0_0": 3}),
        (lambda a: a * 2 ** a.shape[0], {"x0_0": 3}),
        (lambda a: np.concatenate([a] * a.shape[0]), {"x0_0": 3}),
        (lambda a: a + np.arange(3)[:, None], {"x0_0": 3}),
        (lambda a: a if a.shape[0] / 2 > 1 else -a, {"x0_0": 3}),
        (lambda a: HIDDEN["arange"](a), {"x0_1": 4}),
        (lambda a: HIDDEN["tri"](a), {"x0_0": 3}),
        (lambda a: HIDDEN["zeros"](a), {"x0_0": 3, "x0_1": 4}),
        (lambda a: np.split(a, a.shape[1] // 2, axis=1)[0], {"x0_1": 4}),
    ],
)
def test_what_asks_for_a_number_makes_it_one(function, specialised):
    assert found(function, x(3, 4)).specialised == specialised


def test_a_comparison_is_a_demand():
    made = found(lambda a: a if a.shape[0] > 2 and a.shape[1] != 3 and a.shape[0] else -a, x(3, 4))
    assert [str(each) for each in made.graph.demands] == ["3 <= x0_0", "4 <= x0_1", "1 <= x0_0"]
    assert made.specialised == {}
    assert [str(d) for d in found(lambda a: a if a.shape[0] == 3 else -a, x(3)).graph.demands] == [
        "x0_0 <= 3",
        "3 <= x0_0",
    ]
    assert found(lambda a: a if a.shape[0] >= 0 and a.shape[0] == a.shape[0] else -a, x(3)).graph.demands == ()


@pytest.mark.parametrize(
    "function",
    [
        lambda a: a * (1 / a.shape[0]),
        lambda a: a * a.shape[0] ** -0.5,
        lambda a: a * (a.shape[1] / a.shape[0]),
        lambda a: a * (2.5 % a.shape[0]),
    ],
)
def test_a_quotient_by_a_size_of_0_is_none(function):
    agrees(function, x(3, 4))
    assert [str(each) for each in found(function, x(3, 4)).graph.demands] == ["1 <= x0_0"]
    with pytest.raises(UnsupportedError, match="it needs x0_0 to be at most -1"):
        trace_shapes(function, {"x0": (DType.F32, (0, 4))}, {})


def test_sizes_that_are_divided_by_may_be_below_0():
    found(lambda a: a * (1 / (a.shape[0] - 5)), x(3, 4))
    found(lambda a: a * (np.prod(a.shape) / a.shape[0]), x(0, 4))  # of NumPy's int64


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda a: a * int(a.shape[0]), "s2 is asked for its number, and it has none yet"),
        (lambda a: a if a.shape[0] > 3 else -a, "s2 is compared with 3, and it has no number yet"),
        (lambda a: a * int(a.sum() / a.shape[0]), "it asks for the number in an array"),
        (lambda a: a * int(np.count_nonzero(a > 0)), "it asks for the number in an array"),
        (lambda a: a[a.shape[0] / 2], "a place is no whole size: it is calculated with /, or counted; use //"),
        (lambda a: sum(a[k % 2] for k in range(3_000)), "it takes more than 500 steps, as loops are unrolled"),
    ],
)
def test_what_is_not_traced(function, told, monkeypatch):
    monkeypatch.setattr(Tape, "most_nodes", 500)  # in place of 5,000
    with pytest.raises(UnsupportedError, match=told):
        traced_only(function, x(2, 3))


@pytest.mark.parametrize("extent", [5, 300])
def test_a_size_beyond_a_narrow_dtype_compares_and_clips_as_numpys_numbers(extent):
    a = np.full(extent, 200, np.uint8)
    found(lambda a: (np.clip(a, 0, len(a)), a > a.shape[0], a.shape[0] == a), a)
    found(lambda a: a[np.clip(a, 0, a.shape[0] - 1).astype(np.int32)], a)
    found(lambda a: (np.clip(a, -1, 1000), np.clip(a.astype(np.int8), -300, 3)), a)
    found(lambda a: (np.clip(a, -1, 1000, dtype=np.int32), np.clip(a, None, 256, dtype=np.int16)), a)


@newer("2.0.0")
def test_a_size_beyond_a_narrow_dtype_is_added_to_nothing():
    a = np.zeros(300, np.uint8)
    assert found(lambda a: a + len(a), a[:5]).graph.demands == (Demand(Dim.of("x0_0"), Dim.of(255), "at most"),)
    with pytest.raises(UnsupportedError, match="x0_0 does not fit into u8"):
        trace_shapes(lambda a: a + len(a), {"x0": (DType.U8, (300,))}, {})


@pytest.mark.parametrize(
    "function",
    [
        lambda a: np.zeros(np.abs(a.shape[0] - a.shape[1])),
        lambda a: np.ones((np.maximum(a.shape[0], 2), np.minimum(3, a.shape[1]))),
        lambda a: a * np.add(a.shape[0], 1) + np.multiply(a.shape[1], 2) * np.int8(1),
    ],
)
def test_ufuncs_of_sizes_are_sizes(function):
    assert not found(function, x(3, 4)).specialised
