from __future__ import annotations

import numpy as np
import pytest

import noyau
from noyau.compiler.lowering.input_layouts import Layout, Order
from noyau.errors import InputError, UnsupportedError
from noyau.hosts.numpy.fast_calls import MISS
from noyau.kernels.programs.generate import build, generate, specialization_of
from noyau.ops.dispatch.choice import Choice, Selection
from noyau.ops.dispatch.fast_entries import arguments_of, entry, into, run
from noyau.signatures.instances import bind
from tests.ops.dispatch.ops import linear_op, numbers, scale_op, softmax_op

COPY = """
void copied(const float *x, float *out, long m, long n) { for (long i = 0; i < m * n; ++i) out[i] = x[i]; }
"""


def wanted(op, *arrays):
    return specialization_of(op.signature, bind(op.signature, arrays, {}, op.name), op.calls.all({}))


def fast_call(op, *arrays):
    return entry(op.name, op.signature, op.calls.choosing.choose(wanted(op, *arrays)))


def two_results():
    @noyau.op("f32[m, n] -> low: f32, rows: f32[m]")
    def ends(x):
        return x.min(), x.max(-1)

    return ends


@pytest.mark.parametrize(
    ("op", "arrays"),
    [
        (softmax_op(), [numbers(3, 4)]),
        (softmax_op(), [numbers(4, 3).T]),
        (softmax_op(), [numbers(3, 8)[:, ::-2]]),
        (linear_op(), [numbers(3, 4), numbers(5, 4).T, numbers(5)]),
        (linear_op(), [numbers(3, 8)[:, ::2], numbers(4, 5), numbers(5)]),
        (scale_op(), [numbers(5), 2.0]),
        (scale_op(), [numbers(5), np.float32(2)]),
        (two_results(), [numbers(3, 4)]),
    ],
)
def test_a_fast_call_gives_what_the_reference_gives(op, arrays):
    made = fast_call(op, *arrays)(tuple(arrays), None)
    want = op.reference(*arrays)
    for got, right in zip(*(x if isinstance(x, tuple) else (x,) for x in (made, want)), strict=True):
        assert np.allclose(got, right, rtol=1e-5)
        assert type(got) is type(right)


def test_what_is_of_another_key_is_missed():
    for op, given, others in (
        (softmax_op(), [numbers(3, 4)], [[numbers(3, 4).astype(np.float64)], [numbers(4)], [numbers(4, 3).T], []]),
        (linear_op(), [numbers(3, 4), numbers(4, 5), numbers(5)], [[numbers(3, 4)], [numbers(3, 4)] * 3]),
    ):
        made = fast_call(op, *given)
        assert [made(tuple(other), None) for other in others] == [MISS] * len(others)


def test_results_are_written_where_they_are_wanted():
    for op, given, shape in (
        (softmax_op(), [numbers(3, 4)], (3, 4)),
        (linear_op(), [numbers(3, 4), numbers(4, 5), numbers(5)], (3, 5)),
    ):
        out = np.zeros((5, *shape), np.float32)[::2][1]
        assert fast_call(op, *given)(tuple(given), out) is out
        assert np.allclose(out, op.reference(*given), rtol=1e-5)
        with pytest.raises(InputError, match=r"shares memory|float64"):
            fast_call(op, *given)(tuple(given), given[0] if shape == given[0].shape else out.astype(np.float64))


def test_kernels_by_hand_take_their_arrays_packed():
    @noyau.op("f32[m, n] -> f32[m, n]")
    def copied(x):
        return x + 0

    by_hand = copied.kernel(COPY, language="c", trust=True)
    turned = numbers(4, 3).T
    assert arguments_of(copied.signature, wanted(copied, turned), packed=True)[0].layout == Layout()
    assert np.array_equal(copied(turned), turned)
    assert np.array_equal(copied(numbers(3, 4)), numbers(3, 4))
    choice = Choice(by_hand.name, "c", "", by_hand)
    assert np.array_equal(run(choice, wanted(copied, turned), [turned])[0], turned)


def test_python_kernels_see_arrays_as_the_caller_does():
    @noyau.op("f32[m, n] -> f32[m, n]")
    def doubled(x):
        return x + x

    seen = []

    @doubled.kernel(trust=True)
    def by_python(x, out):
        seen.append(x.strides)
        out[...] = 2 * x

    turned = numbers(4, 3).T
    for _ in range(2):
        assert np.array_equal(doubled(turned), 2 * turned)
    assert seen == [turned.strides] * len(seen)


def test_by_size_each_kernel_runs_where_it_was_the_fastest():
    op = scale_op()
    op.kernel(lambda x, by: np.zeros_like(x), name="zeros", returns=True, trust=True)
    key = wanted(op, numbers(3), 1.0)
    by_hand = Choice("zeros", "python", "", op.kernels["zeros"])
    generated = next(c for c in op.calls.choosing.candidates(key, "key", {}) if c.kernel == "c")
    made = entry(op.name, op.signature, Selection(key, ((by_hand, 10), (generated, float("inf"))), ()))
    assert made((numbers(4), 1.0), None).tolist() == [0] * 4
    assert np.array_equal(made((numbers(40), 1.0), None), numbers(40))


def test_the_reference_has_no_fast_call():
    op = scale_op()
    chosen = Selection(wanted(op, numbers(3), 1.0), ((Choice("reference", "numpy", "", None), float("inf")),), ())
    assert entry(op.name, op.signature, chosen) is None
    with pytest.raises(UnsupportedError, match="the reference is no kernel"):
        run(chosen.at(3), chosen.wanted, [numbers(3), np.float32(1)])


def test_which_python_numbers_are_taken():
    @noyau.op("float, f32, int, bool, any -> f32")
    def five(a, b, c, d, e):
        return b

    given = [np.float64(1), np.float32(1), np.int64(1), np.bool_(True), np.int8(1)]
    taken = [argument.numbers for argument in arguments_of(five.signature, wanted(five, *given))]
    assert taken == [(int, float), (int, float), (int,), (bool,), ()]
    given[0], given[2] = np.float32(1), np.int32(1)
    taken = [argument.numbers for argument in arguments_of(five.signature, wanted(five, *given))]
    assert taken[0] == taken[2] == ()
    assert Order.PACKED is Layout().order


@pytest.fixture(scope="module")
def in_numba():
    op, x = scale_op(), numbers(300_000)
    built = build(generate(op.description, wanted(op, x, 2.0), "numba"))
    chosen = Selection(wanted(op, x, 2.0), ((Choice("numba", "numba", "asked for", built), float("inf")),), ())
    return built, entry(op.name, op.signature, chosen), x


def test_numba_writes_its_results_where_they_are_wanted(in_numba):
    built, fast_call, x = in_numba
    out = np.zeros_like(x)
    assert into(built)([x, np.float32(2)], (out,))
    assert np.array_equal(out, 2 * x)
    assert fast_call((x, 3.0), out) is out
    assert np.array_equal(out, 3 * x)


def test_what_numba_does_not_write_to_is_copied_to(in_numba):
    built, fast_call, x = in_numba
    wide = np.zeros(2 * x.size, np.float32)
    assert not into(built)([x, np.float32(2)], (wide[::2],))
    assert not into(built)([x, np.float32(2)], ("nothing",))
    fast_call((x, 3.0), wide[::2])
    assert np.array_equal(wide[::2], 3 * x)
    assert not wide[1::2].any()
    with pytest.raises(InputError, match="shares memory with an argument"):
        fast_call((x, 3.0), x)


def test_large_results_of_numba_lie_in_memory_that_was_used_before(in_numba):
    _, fast_call, x = in_numba
    addresses = {fast_call((x, 2.0), None).ctypes.data for _ in range(4)}
    assert len(addresses) == 1
