from __future__ import annotations

import numpy as np
import pytest

from noyau.compiler.lowering.input_layouts import INNER, PACKED, STRIDED, Layout, Order, lie
from noyau.errors import InputError
from noyau.kernels.programs.generate import build
from tests.ops.dispatch.ops import generated, linear_op, numbers, softmax_op

LAYOUTS = [PACKED, Layout(Order.PERMUTED, (1, 0)), INNER, STRIDED]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_program_gives_what_its_reference_gives(layout, threads):
    x = lie(numbers(37, 65), layout)
    built = build(generated(softmax_op(), x))
    (got,) = built(x, threads=threads)
    assert np.allclose(got, softmax_op().reference(x), rtol=1e-5)
    assert got.tobytes() == built(x)[0].tobytes()


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_between_guards(layout):
    arrays = [lie(numbers(5, 4), layout), lie(numbers(4, 6), layout), numbers(6)]
    built = build(generated(linear_op(), *arrays))
    (got,) = built.call_guarded(*arrays, pieces=3, order=lambda count: reversed(range(count)))
    assert np.allclose(got, linear_op().reference(*arrays), rtol=1e-5)


def test_results_in_arrays_that_are_given():
    for op, arrays, shape in (
        (softmax_op(), [numbers(3, 4)], (3, 4)),
        (linear_op(), [numbers(3, 4), numbers(4, 5), numbers(5)], (3, 5)),
    ):
        out = np.empty(shape, np.float32)
        (got,) = build(generated(op, *arrays))(*arrays, out=[out])
        assert got is out
        assert np.allclose(out, op.reference(*arrays), rtol=1e-5)


def test_shapes_that_do_not_fit():
    arrays = [numbers(3, 4), numbers(4, 5), numbers(5)]
    built = build(generated(linear_op(), *arrays))
    with pytest.raises(InputError, match="bias has shape"):
        built(*arrays[:2], numbers(4))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_language_numba_gives_the_same(layout):
    x = lie(numbers(7, 33), layout)
    built = build(generated(softmax_op(), x, language="numba"))
    (got,) = built(x)
    assert np.allclose(got, softmax_op().reference(x), rtol=1e-5)
    assert got.tobytes() == built(x, threads=2)[0].tobytes()
