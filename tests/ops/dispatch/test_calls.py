from __future__ import annotations

import warnings

import numpy as np
import pytest

import noyau
from noyau.errors import InputError, SignatureError
from noyau.ops.dispatch import calls
from tests.hosts.numpy.producers import Producer
from tests.ops.dispatch.ops import forgetting, linear_op, numbers, scale_op, softmax_op


@pytest.fixture(autouse=True)
def warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def ways(op, monkeypatch):
    """How often a call goes the whole way."""
    seen = []
    real = op.calls.anew
    monkeypatch.setattr(op.calls, "anew", lambda *given: seen.append(1) or real(*given))
    return seen


def test_calls_alike_go_through_the_same_fast_call(monkeypatch):
    op = softmax_op()
    seen = ways(op, monkeypatch)
    for rows in range(5):
        assert np.allclose(op(numbers(rows, 3)).sum(-1), 1)
    assert len(seen) == 1


def test_constants_have_fast_calls_of_their_own(monkeypatch):
    op, x = scale_op(), numbers(4)
    seen = ways(op, monkeypatch)
    for _ in range(3):
        assert np.allclose(op(x, 2.0), 2 * x)
        assert np.allclose(op(x, 2.0, shift=1.0), 2 * x + 1)
        assert np.allclose(op(by=2.0, x=x, shift=3.0), 2 * x + 3)
    assert len(seen) == 3


def test_the_last_fast_calls_are_kept(monkeypatch):
    monkeypatch.setattr(calls, "FAST_CALLS", 2)
    op, rows = softmax_op(), numbers(3, 4)
    for rank in range(1, 5):
        op(rows.reshape((1,) * (rank - 1) + (12,)))
    assert len(op.calls.plain) == 2


def test_results_in_an_array_that_is_given():
    op, x = softmax_op(), numbers(3, 4)
    for _ in range(2):
        out = np.empty_like(x)
        assert op(x, out=out) is out
        assert np.allclose(out, op.reference(x))
    with pytest.raises(InputError, match="softmax: out is float64"):
        op(x, out=np.empty((3, 4)))
    with pytest.raises(InputError, match="softmax: out shares memory with an argument"):
        op(x, out=x)
    locked = np.empty_like(x)
    locked.flags.writeable = False
    with pytest.raises(InputError, match="softmax: out may not be written"):
        op(x, out=locked)


def test_out_also_where_the_reference_runs():
    op, x = softmax_op(), numbers(3, 4)
    out = np.empty_like(x)
    with noyau.reference():
        assert op(x, out=out) is out
    assert np.array_equal(out, op.reference(x))


def test_a_parameter_named_out_is_an_input():
    @noyau.op("f32[n] -> y: f32[n]")
    def doubled(out):
        return out + out

    assert np.array_equal(doubled(out=numbers(3)), 2 * numbers(3))


def test_what_does_not_fit_after_a_fast_call_is_there():
    op = linear_op()
    op(numbers(2, 3), numbers(3, 4), numbers(4))
    with pytest.raises(SignatureError, match=r"linear: .*bias: f32\[5\].* does not fit f32\[n\]"):
        op(numbers(2, 3), numbers(3, 4), numbers(5))
    with pytest.raises(SignatureError, match="linear takes 3 inputs"):
        op(numbers(2, 3))


@pytest.mark.parametrize("wrong", [[1.0, 2.0], "text", None, np.array([None]), np.zeros(3, complex), np.ma.ones(3)])
def test_what_is_no_array_of_its_dtypes(wrong):
    with pytest.raises(SignatureError, match="softmax: x: "):
        softmax_op()(wrong)


def test_read_only_and_unaligned_inputs():
    op, x = softmax_op(), numbers(3, 4)
    x.flags.writeable = False
    assert np.allclose(op(x), op.reference(x))
    room = np.zeros(49, np.uint8)
    unaligned = room[1:].view(np.float32).reshape(3, 4)
    unaligned[...] = x
    for _ in range(2):
        assert np.array_equal(op(unaligned), op(x))
    with pytest.raises(SignatureError, match=r"softmax: x: >f4\[3, 4\] does not fit"):
        op(x.astype(">f4"))


def test_an_index_beyond_its_table_is_refused_each_time():
    @noyau.op("f32[n], i64[k] -> f32[k]")
    def taken(table, where):
        return table[where] * 2

    assert taken(numbers(3), np.array([2, -3])).tolist() == [2 * numbers(3)[2], 2 * numbers(3)[0]]
    for _ in range(2):
        with pytest.raises(InputError, match=r"taken.*index"):
            taken(numbers(3), np.array([3]))


def test_other_arrays_by_dlpack():
    class Lent:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **said):
            return self.array.__dlpack__(**said)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    op, x = softmax_op(), numbers(3, 4)
    for _ in range(2):
        assert np.array_equal(np.asarray(op(Lent(x))), op(x))


@pytest.mark.parametrize("view", [np.s_[:], np.s_[::-1], np.s_[::2]])
def test_results_go_to_other_arrays_by_dlpack(view):
    op = scale_op()
    room = np.zeros(8, np.float32)
    x = numbers(len(room[view]))
    for _ in range(2):  # the second time through a fast_call
        producer = Producer(room[view])
        assert op(x, 2, out=producer) is producer
        assert np.array_equal(room[view], 2 * x)
        assert producer.given == producer.deleted == 1
        room[:] = 0
    for said in ({"read_only": True}, {"versioned": False}):
        with pytest.raises(InputError, match="out may not be written"):
            op(x, 2, out=Producer(room[view], **said))
    with pytest.raises(InputError, match="shares memory with an argument"):
        op(room[view], 2, out=Producer(room[view]))
    assert not room.any()


def test_within_reference_no_fast_call_is_taken():
    op, x = softmax_op(), numbers(3, 4)
    op(x)
    with noyau.reference():
        assert np.array_equal(op(x), op.reference(x))


def test_attaching_a_kernel_forgets_the_fast_calls():
    op, x = scale_op(), numbers(3)
    op(x, 2.0)
    op.kernel(lambda x, by: np.zeros_like(x), returns=True, trust=True)
    assert op(x, 2.0).tolist() == [0, 0, 0]


def test_forgetting():
    op, x = scale_op(), numbers(3)
    op(x, 2.0)
    op(x, 2.0, shift=1.0)
    op.calls.forget()
    assert op.calls.plain == ()
    assert np.allclose(op(x, 2.0), 2 * x)


def test_what_is_decided_while_it_is_forgotten_is_forgotten_too(monkeypatch):
    """As winners are recorded, or a check passes, while another thread builds what it found before."""
    op, x = scale_op(), numbers(3)
    with forgetting(op, monkeypatch):
        assert np.allclose(op(x, 2.0), 2 * x)
        assert np.allclose(op(x, 2.0, shift=1.0), 2 * x + 1)
    assert (op.calls.plain, op.calls.others, op.calls.choosing.chosen) == ((), {}, {})
    assert np.allclose(op(x, 2.0), 2 * x)
    assert len(op.calls.plain) == 1
