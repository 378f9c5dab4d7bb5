from __future__ import annotations

import pytest

from noyau.dtypes import DType
from noyau.signatures.instances import instance_of
from noyau.signatures.types import ELEMENTS, Family, brief, parse


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("float32[ n ],f32->hist:int32[bins]", "f32[n], f32 -> hist: i32[bins]"),
        ("f32[n, m] -> out: f32[n - 2, (n + 1) // 2 * m]", "f32[n, m] -> f32[n - 2, m * ((n + 1) // 2)]"),
        ("any[..., n], i64[] -> any[...]", "any[..., n], i64[] -> any[...]"),
        ("-> f32[3]", "-> f32[3]"),
    ],
)
def test_a_signature_prints_in_short(text, printed):
    assert str(parse(text)) == printed


def test_a_very_long_signature_is_told_by_its_ends():
    told = brief(parse(f"f32[{' * '.join(f'n{k}' for k in range(500))}] -> f32[3]"))
    assert len(told) < 250
    assert told.startswith("f32[n0 * n1")
    assert told.endswith("* n99] -> f32[3]")
    assert brief("f32[n]") == "f32[n]"


def test_sizes_come_in_the_order_of_the_text():
    assert parse("f32[*batch, rows, n], f32[k] -> f32[*batch, m, k]").sizes == ("batch", "rows", "n", "k", "m")


def test_families_hold_what_their_names_say():
    assert set(Family.FLOAT.members) == {DType.F16, DType.BF16, DType.F32, DType.F64}
    assert set(Family.INT.members) == {dtype for dtype in DType if dtype.kind in ("int", "uint")}
    assert set(Family.ANY.members) == {dtype for dtype in DType if dtype is not DType.OTHER and not dtype.is_float8}
    assert ELEMENTS["f8e5m2"] is ELEMENTS["float8_e5m2"] is DType.F8E5M2
    assert ELEMENTS["bfloat16"] is DType.BF16


def test_an_instance_prints_with_its_names():
    signature = parse("float[*batch, n], f32 -> float[n]", ["x", "eps"])
    made = instance_of(signature, (DType.F64, DType.F32), (3, 0))
    assert str(made) == "x: f64[batch_0, batch_1, n], eps: f32 -> out: f64[n]"
    assert made.ranks == (3, 0)
