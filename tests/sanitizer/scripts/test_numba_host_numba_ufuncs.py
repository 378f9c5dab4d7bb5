from __future__ import annotations

import numba
import numpy as np
import pytest

from noyau.errors import InputError
from noyau.sanitizer.scripts.numba_host import stood_in


def plus(a, b):
    return a + 2 * b


def test_functions_of_numbers_cell_by_cell():
    notes = []
    with stood_in(notes.append):
        typed = numba.vectorize(["float32(float32, float32)", "float64(float64, float64)"], target="cuda")(plus)
        bare = numba.vectorize(target="cuda")(plus)
        plain = numba.vectorize(plus)
    assert typed(np.ones(3, np.float32), np.ones(3, np.float32)).dtype == np.float32
    assert typed(np.ones(3), 1).tolist() == [3, 3, 3]
    assert bare(np.arange(3), 1).tolist() == [2, 3, 4]
    assert typed(np.ones((2, 1)), np.ones(3), out=(out := np.zeros((2, 3)))) is out
    assert out.sum() == 18
    assert plain(1.0, 2.0) == 5
    line = plus.__code__.co_firstlineno
    assert set(notes) == {f"plus (line {line}) is a function of numbers, which touches no memory: called cell by cell"}


def test_functions_of_arrays_over_what_is_around_them():
    def product(a, b, c):
        c[:] = a @ b

    def total(x, s):
        s[0] = x.sum()

    notes = []
    with stood_in(notes.append):
        types = ["void(float64[:,:], float64[:,:], float64[:,:])"]
        many = numba.guvectorize(types, "(m,n),(n,p)->(m,p)", target="cuda")(product)
        one = numba.guvectorize([(numba.float32[:], numba.float32[:])], "(n)->()", target="cuda")(total)
    a, b = np.random.default_rng(0).random((2, 5, 3, 3))
    assert np.allclose(many(a, b), a @ b)
    many(a, b, out := np.zeros((5, 3, 3)))
    assert np.allclose(out, a @ b)
    assert one(np.ones((2, 4), np.float32)).tolist() == [4, 4]
    assert notes[0].startswith("product (line ") and notes[0].endswith("in Python: its accesses are not seen")
    with pytest.raises(InputError, match=r"^total takes 1 arrays: \(n\)->\(\)$"):
        one()


def test_all_is_as_before_afterwards():
    before = numba.vectorize, numba.guvectorize
    with stood_in(print):
        assert numba.vectorize is not before[0]
    assert (numba.vectorize, numba.guvectorize) == before


def test_a_function_of_arrays_may_have_several_results():
    def totals(x, total, doubled):
        total[0] = x.sum()
        doubled[:] = 2 * x

    with stood_in(lambda line: None):
        both = numba.guvectorize(["void(f8[:], f8[:], f8[:])"], "(n)->(),(n)", target="cuda")(totals)
    total, doubled = both(np.ones((2, 3)))
    assert (total.tolist(), doubled.shape) == ([3, 3], (2, 3))
    both(np.ones((2, 3)), total, doubled := np.zeros((2, 3)))
    assert doubled.sum() == 12
