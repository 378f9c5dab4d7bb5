from __future__ import annotations

import numba
import numpy as np
import pytest
from numba import cuda

from noyau.errors import InputError
from noyau.sanitizer.scripts.numba_hooks import install_hooks
from noyau.sanitizer.scripts.record import ScriptSession


def plus(a, b):
    return a + 2 * b


def test_functions_of_numbers_cell_by_cell():
    session = ScriptSession("here")
    with install_hooks(session):
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
    assert set(session.notes) == {
        f"plus (line {line}) is a function of numbers, which touches no memory: called cell by cell"
    }


def test_functions_of_arrays_over_what_is_around_them():
    def product(a, b, c):
        for i in range(a.shape[0]):
            for j in range(b.shape[1]):
                c[i, j] = 0
                for k in range(b.shape[0]):
                    c[i, j] += a[i, k] * b[k, j]

    def total(x, s):
        s[0] = 0
        for i in range(x.size):
            s[0] += x[i]

    session = ScriptSession("here")
    with install_hooks(session):
        types = ["void(float64[:,:], float64[:,:], float64[:,:])"]
        many = numba.guvectorize(types, "(m,n),(n,p)->(m,p)", target="cuda")(product)
        one = numba.guvectorize([(numba.float32[:], numba.float32[:])], "(n)->()", target="cuda")(total)
        a, b = np.random.default_rng(0).random((2, 5, 3, 3))
        assert np.allclose(many(a, b), a @ b)
        many(a, b, out := np.zeros((5, 3, 3)))
        assert np.allclose(out, a @ b)
        assert one(np.ones((2, 4), np.float32)).tolist() == [4, 4]
        with pytest.raises(InputError, match=r"^total takes 1 arrays: \(n\)->\(\)$"):
            one()
    assert session.notes[0].startswith("product (line ")
    assert session.notes[0].endswith("is a function of arrays, launched with a thread for each")


@pytest.mark.parametrize(
    ("types", "first"), [("f8[:], f8[:], f8[:]", 0), ("f8[:], f8, f8[:]", 0), ("f8[:], f8, f8[:]", 1)]
)
def test_an_operand_of_no_axes_is_an_array_or_a_number_as_its_type_says(types, first):
    def over_cell(x, by, out):
        for i in range(first, x.size):
            out[i] = x[i] / by[0]

    def over_number(x, by, out):
        for i in range(first, x.size):
            out[i] = x[i] / by

    session = ScriptSession("here")
    with install_hooks(session):
        function = over_number if "f8, " in types else over_cell
        divided = numba.guvectorize([f"void({types})"], "(n),()->(n)", target="cuda")(function)
        assert divided(np.ones((2, 3)), np.array([2.0, 4.0]))[:, first:].tolist() == [
            [0.5] * (3 - first),
            [0.25] * (3 - first),
        ]
        divided(np.ones((2, 3)), 2.0, out := cuda.device_array((2, 3)))
        out.copy_to_host()
    (kernel,) = session.finish().kernels
    assert [each.kind for each in kernel.findings] == ["unwritten"] * first


def test_results_stay_on_the_device_where_an_argument_is():
    def steps(x, out):
        for i in range(1, x.size):
            out[i] = x[i] - x[i - 1]

    session = ScriptSession("here")
    with install_hooks(session):
        stepped = numba.guvectorize(["void(f8[:], f8[:])"], "(n)->(n)", target="cuda")(steps)
        rows = stepped(cuda.to_device(np.ones((2, 3))))
        rows[:, 0] = 5.0  # so that the host reads what was written alone
        assert rows.copy_to_host().tolist() == [[5, 0, 0], [5, 0, 0]]
        assert not session.finish().kernels[0].findings
        stepped(np.ones((2, 3)))
    (kernel,) = session.finish().kernels
    (finding,) = kernel.findings
    assert finding.kind == "unwritten"
    assert finding.place == f"{__file__}:{steps.__code__.co_firstlineno}"


def test_all_is_as_before_afterwards():
    before = numba.vectorize, numba.guvectorize
    with install_hooks(ScriptSession("here")):
        assert numba.vectorize is not before[0]
    assert (numba.vectorize, numba.guvectorize) == before


def test_a_function_of_arrays_may_have_several_results():
    def totals(x, total, doubled):
        total[0] = 0
        for i in range(x.size):
            total[0] += x[i]
            doubled[i] = 2 * x[i]

    with install_hooks(ScriptSession("here")):
        both = numba.guvectorize(["void(f8[:], f8[:], f8[:])"], "(n)->(),(n)", target="cuda")(totals)
        total, doubled = both(np.ones((2, 3)))
        assert (total.tolist(), doubled.shape) == ([3, 3], (2, 3))
        both(np.ones((2, 3)), total, doubled := np.zeros((2, 3)))
        assert doubled.sum() == 12
