"""Lanes merged by halves in one word: the bits of a loop over halves."""

from __future__ import annotations

from itertools import product

import numba as compiler
import numpy as np
import pytest

from noyau.codegen.numba import printer
from noyau.codegen.numba.printer import merge_words
from noyau.compiler.schedules.cpu.folds import State, halves
from noyau.dtypes import DType
from noyau.sanitizer.numba.kernel import plainly
from noyau.toolchain.numba.kernel import load

IMPORTS = """\
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np import arrayobj


"""
STATES = {  # a monoid, the dtypes of its states, the words that merge them
    ("sum", DType.F32): ["add_f32"],
    ("sum", DType.I32): ["add_i32"],
    ("prod", DType.F64): ["multiply_f64"],
    ("max", DType.U8): ["max_u8"],
    ("min", DType.I64): ["min_i64"],
    ("any", DType.BOOL): ["or_bool"],
    ("all", DType.BOOL): ["and_bool"],
    ("max_apart", DType.F32, DType.I32): ["max_f32", "or_i32"],
    ("min_apart", DType.F64, DType.I32): ["min_f64", "or_i32"],
}


@pytest.mark.parametrize(("monoid", "words"), STATES.items())
def test_merges_that_have_a_word(monoid, words):
    name, *dtypes = monoid
    (merge,) = halves(State(name, ("a", "b")[: len(dtypes)], tuple(dtypes)), 16, "#lane")
    assert list(merge_words(merge).values()) == [f"noyau_merge_{word}" for word in words]


def test_merges_of_states_that_belong_together_have_none():
    (merge,) = halves(State("argmax", ("best", "at"), (DType.F32, DType.I64)), 16, "#lane")
    assert merge_words(merge) is None


@pytest.mark.parametrize("word", sorted({word for words in STATES.values() for word in words}))
def test_the_bits_are_those_of_python(word, empty_cache):
    text = IMPORTS + printer.merge_text({f"noyau_merge_{word}"})
    name, _, kind = word.partition("_")
    merge, plain = load(text)[1][f"noyau_merge_{word}"], plainly(text)[f"noyau_merge_{word}"]

    @compiler.njit
    def merged(lanes):
        merge(lanes, 64)

    dtype = np.dtype(
        {"f": "f", "i": "i", "u": "u"}.get(kind[0], "?") + (str(int(kind[1:]) // 8) if kind != "bool" else "")
    )
    rng = np.random.default_rng(0)
    for few, _ in product((False, True), range(3)):
        lanes = (rng.integers(0, 2 if few else 100, 64) - (0 if kind[0] in "ub" else 50)).astype(dtype)
        lanes = lanes * dtype.type(0.1) if kind[0] == "f" else lanes
        got, wanted = lanes.copy(), lanes.copy()
        merged(got)
        with np.errstate(over="ignore"):
            plain(wanted, 64)
        assert got[0].tobytes() == wanted[0].tobytes(), name
