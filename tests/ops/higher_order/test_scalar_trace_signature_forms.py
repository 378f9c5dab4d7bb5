from __future__ import annotations

import pytest

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ops.higher_order.scalar_trace import elements_of, fresh, map_signatures, reduce_signatures
from noyau.signatures.types import parse


def only(*dtypes, gives=None):
    def result(dtype):
        if dtype not in dtypes:
            raise UnsupportedError("no")
        return gives or dtype

    return result


@pytest.mark.parametrize(
    ("result", "found"),
    [
        (lambda dtype: dtype, [("float", "float")]),
        (lambda dtype: DType.BOOL, [("float", "bool")]),
        (lambda dtype: DType.F64 if dtype is DType.F64 else DType.I64, [("f32", "i64")]),
        (only(DType.I64, DType.I32), [("int", "int")]),
        (only(DType.BOOL), [("bool", "bool")]),
        (only(), []),
    ],
)
def test_the_first_family_that_it_takes(result, found):
    assert list(elements_of(result)) == found


def test_shapes_of_functions_cell_by_cell():
    assert map_signatures("float", "bool", ["x"]) == ["float[*batch, n] -> out: bool[*batch, n]"]
    texts = map_signatures("float", "float", ["n", "out", "c"])
    assert len(texts) == 3
    for text in texts:
        assert len(parse(text, ["n", "out", "c"]).inputs) == 3
    assert "float[m, 1], float[n_], float[n_] -> out_: float[m, n_]" in texts


def test_shapes_of_reductions():
    found = reduce_signatures("f32", "f32", "x")
    assert [said["axis"] for said in found.values()] == [-1, 0, None]
    assert [str(parse(text, ["x"])) for text in found] == [
        "f32[*batch, n] -> f32[*batch]",
        "f32[n, *batch] -> f32[1, *batch]",
        "f32[m, n] -> f32",
    ]


def test_names_that_are_taken():
    assert fresh(["n", "n_"], "n", "m") == ["n__", "m"]
