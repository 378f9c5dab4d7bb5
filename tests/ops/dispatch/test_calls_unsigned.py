from __future__ import annotations

import warnings

import numpy as np
import pytest

import noyau
from noyau.dtypes import DType
from noyau.errors import InputError
from noyau.frontends.numpy.trace import trace_shapes
from noyau.ops.dispatch.calls import signature_of
from tests.ops.dispatch.ops import numbers


def both_op():
    @noyau.op
    def both(x, y, *, factor=2.0):
        return np.exp(x - y) * np.float32(factor), (x + y).sum()

    return both


@pytest.fixture(autouse=True)
def warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def assert_alike(op, *args, **constants):
    for got, want in zip(op(*args, **constants), op.reference(*args, **constants), strict=True):
        assert np.allclose(got, want, rtol=1e-4, atol=1e-5)
        assert type(got) is type(want)
        assert got.dtype == want.dtype
        assert got.shape == want.shape


def test_each_kind_of_call_gets_a_signature():
    op = both_op()
    pairs = [((3, 4), (4,)), ((5, 4), (1, 4)), ((3, 4), (3, 4)), ((7,), (7,)), ((8,), (8,)), ((3, 1), (1, 5))]
    for one, two in pairs:
        assert_alike(op, numbers(*one), numbers(*two))
        assert_alike(op, numbers(*one), numbers(*two), factor=3.0)
    assert_alike(op, numbers(4, 3).T, numbers(4))
    assert_alike(op, numbers(3).astype(np.float64), numbers(3))
    assert len(op.calls.kinds) == 2 * 5 + 1


def test_what_it_runs_is_explained():
    told = both_op().explain(numbers(3, 4), numbers(4))
    assert told.kernel == "c"
    assert told.key == "x: f32[x_0, x_1] packed, y: f32[x_1] packed; factor=2.0"


def test_calls_alike_look_nothing_up(monkeypatch):
    op = both_op()
    op(numbers(3), numbers(3))
    monkeypatch.setattr(op.calls, "of_signature", None)
    assert_alike(op, numbers(9), numbers(9))


def test_a_kind_that_is_known_goes_through_no_more_than_its_fast_call(monkeypatch):
    op = both_op()
    pairs = [((3, 4), (4,)), ((3, 1), (1, 5)), ((3, 4), (3, 4))]
    for one, two in pairs:
        op(numbers(*one), numbers(*two))
    assert len(op.calls.plain) == len(pairs)
    monkeypatch.setattr(op.calls, "whole", None)
    for one, two in pairs:
        assert_alike(op, numbers(*one), numbers(*two))


@pytest.mark.parametrize("shapes", [((1, 4), (4,)), ((3, 1), (4,)), ((3, 4), (1,)), ((3, 4), (1, 4))])
def test_axes_of_one_cell_are_another_kind(shapes):
    op = both_op()
    op(numbers(3, 4), numbers(4))
    (fast_call,) = op.calls.plain
    assert not fast_call(tuple(numbers(*shape) for shape in shapes), None)
    assert_alike(op, *(numbers(*shape) for shape in shapes))


def test_calls_of_which_a_constant_stands_at_its_default_are_plain(monkeypatch):
    @noyau.op
    def scaled(x, factor=2.0):
        return x * np.float32(factor)

    assert scaled(numbers(3))[1] == scaled.reference(numbers(3))[1]
    with pytest.warns(noyau.ReferenceWarning, match="factor is a float"):
        assert scaled(numbers(3), 3.0)[1] == scaled.reference(numbers(3), 3.0)[1]
    monkeypatch.setattr(scaled.calls, "whole", None)
    assert scaled(numbers(5))[1] == scaled.reference(numbers(5))[1]


def test_what_is_forgotten_is_plain_no_more():
    op = both_op()
    op(numbers(3), numbers(3))
    op.calls.forget()
    assert op.calls.plain == ()
    assert_alike(op, numbers(3), numbers(3))


def test_arrays_of_a_shape_that_cannot_be_traced_are_traced_once(monkeypatch):
    @noyau.op
    def ordered(x):
        return np.sort(x)

    with pytest.warns(noyau.ReferenceWarning, match="it sorts"):
        ordered(numbers(5))
    monkeypatch.setattr(ordered.calls, "of_signature", None)
    assert np.array_equal(ordered(numbers(5)), np.sort(numbers(5)))
    monkeypatch.undo()
    assert np.array_equal(ordered(numbers(6)), np.sort(numbers(6)))
    assert np.array_equal(ordered(numbers(5).astype(np.float64)), np.sort(numbers(5)))
    out = np.empty(5, np.float32)
    assert ordered(numbers(5), out=out) is out


def test_results_go_to_an_array_by_the_fast_call(monkeypatch):
    @noyau.op
    def doubled(x):
        return x * 2

    doubled(numbers(3))
    monkeypatch.setattr(doubled.calls, "whole", None)
    out = np.empty(7, np.float32)
    assert doubled(numbers(7), out=out) is out
    assert np.array_equal(out, numbers(7) * 2)


def test_a_parameter_of_the_name_out_is_no_array_to_write_to():
    @noyau.op("f32[n], f32[n] -> y: f32[n]")
    def less(x, out):
        return x - out

    less(numbers(3), numbers(3))
    assert not less(numbers(3), out=numbers(3)).any()


def test_shapes_that_numpy_refuses_are_refused_by_numpy():
    op = both_op()
    op(numbers(3), numbers(3))
    with (
        pytest.warns(noyau.ReferenceWarning, match="an extent is x_0 and y_0 at once"),
        pytest.raises(ValueError, match="could not be broadcast"),
    ):
        op(numbers(3), numbers(4))


def test_sizes_that_it_asks_for():
    @noyau.op
    def total(x):
        made = np.zeros_like(x[0])
        for row in range(x.shape[0]):
            made = made * 2 + x[row]
        return made

    for rows in (1, 3, 2, 3):
        x = numbers(rows, 5)
        assert np.allclose(total(x), total.reference(x), rtol=1e-5)


def test_results_in_an_array_that_is_given():
    @noyau.op
    def doubled(x):
        return x + x

    x, out = numbers(3, 4), np.empty((3, 4), np.float32)
    for _ in range(2):
        assert doubled(x, out=out) is out
    assert np.array_equal(out, x + x)
    with pytest.raises(InputError, match="doubled: out is float64"):
        doubled(x, out=np.empty((3, 4)))
    with noyau.reference():
        assert doubled(x, out=out) is out


def test_a_number_has_no_dtype():
    @noyau.op
    def scaled(x, by):
        return x * by

    with pytest.warns(
        noyau.ReferenceWarning, match="by is a float, and without a signature it has no dtype; give it a signature"
    ):
        assert np.array_equal(scaled(numbers(3), 2.0), numbers(3) * 2)
    scaled(numbers(3), 2.0)
    told = scaled.explain(numbers(3), 2.0)
    assert told.kernel == "reference"
    assert told.rejected[0][1].startswith("by is a float, and without a signature it has no dtype")
    assert scaled.explain(numbers(3), 2).rejected[0][1].startswith("by is an int, and")
    scaled.kernel(lambda x, by: x * by, name="own", returns=True, trust=True)
    assert scaled.explain(numbers(3), 2.0).kernel == "own"


def test_a_trusted_kernel_that_returns_runs():
    @noyau.op
    def doubled(x):
        return x + x

    @doubled.kernel(trust=True)
    def sevens(x):
        return np.full_like(x, 7)

    for _ in range(2):
        assert doubled(numbers(2, 3)).tolist() == [[7] * 3] * 2


def test_forgetting():
    op = both_op()
    op(numbers(3), numbers(3))
    op.calls.forget()
    (kinds,) = op.calls.kinds.values()
    assert kinds[0].calls.plain == ()
    assert_alike(op, numbers(3), numbers(3))


def test_the_signature_of_a_trace():
    made = trace_shapes(lambda x, y: (x @ y, x.sum()), {"x": (DType.F32, (30, 40)), "y": (DType.F32, (40, 50))}, {})
    assert str(signature_of(made)) == "f32[x_0, x_1], f32[x_1, y_1] -> out0: f32[x_0, y_1], out1: f32"


def test_results_that_are_otherwise_for_other_sizes():
    """What a signature was found from holds for the sizes of its call."""
    op = noyau.op(lambda a: a.sum() if a.shape[0] > 3 else a[: a.shape[0] - 1])
    for extent in (5, 2, 7, 3):
        got, want = op(numbers(extent)), op.reference(numbers(extent))
        assert np.shape(got) == np.shape(want)
        assert np.allclose(got, want, atol=1e-6)


def test_what_stands_at_its_default_is_a_constant():
    @noyau.op
    def doubled(x, by=2, /):
        return x * by

    x = numbers(3, 4)
    with pytest.warns(noyau.ReferenceWarning, match="by is an int, and without"):  # it is given by place alone
        assert np.array_equal(doubled(x), 2 * x)

    @noyau.op
    def centred(x, axis=-1, by=None):
        return x - x.mean(axis=axis, keepdims=True)

    told = centred.explain(x)
    assert told.kernel == "c" and "axis=-1; by=None" in str(told)
    assert np.allclose(centred(x), centred.reference(x), atol=1e-6)
    remedy = "or let it be a constant: a keyword-only parameter with a default"
    with pytest.warns(noyau.ReferenceWarning, match=f"axis is an int, and .*{remedy}"):
        assert np.array_equal(centred(x, 0), centred.reference(x, 0))


def test_what_runs_as_written_is_kept_once_for_each_shape():
    """Numbers, and calls with out=, leave the fast calls of others where they are."""

    @noyau.op
    def scaled(x, by=None):
        return x + x if by is None else np.multiply(x, by)

    x = numbers(3)
    scaled(x)
    (fast_call,) = scaled.calls.plain
    with pytest.warns(noyau.ReferenceWarning, match="by is a float"):
        scaled(x, 2.0)
    for by in range(20):
        assert np.array_equal(scaled(x, float(by)), x * by)
    assert len(scaled.calls.plain) == 2
    assert scaled.calls.plain[1] is fast_call

    listed = noyau.op(lambda x: np.asarray(x.tolist(), np.float32))
    with pytest.warns(noyau.ReferenceWarning, match="cannot be traced"):
        listed(x)
    for _ in range(20):
        listed(x, out=np.empty(3, np.float32))
    assert len(listed.calls.plain) == 1


def test_texts_and_truths_are_constants_wherever_they_are_last(monkeypatch):
    @noyau.op
    def activated(x, kind, doubled=False, weights=None):
        y = np.maximum(x, 0) if kind == "relu" else np.tanh(x)
        y = y * np.float32(2) if doubled else y
        return y if weights is None else y * weights

    x, calls = numbers(5), [("relu",), ("tanh",), ("relu", True), ("relu", False, None)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rest in calls:
            np.testing.assert_allclose(activated(x, *rest), activated.reference(x, *rest), rtol=1e-5)
    monkeypatch.setattr(activated.calls, "whole", None)
    for rest in calls:
        np.testing.assert_allclose(activated(x, *rest), activated.reference(x, *rest), rtol=1e-5)


@pytest.mark.parametrize("signature", [None, "f32[m, n] -> f32[n]"])
def test_calls_with_constants_go_through_no_more_than_their_fast_call(signature, monkeypatch):
    @noyau.op(signature)
    def summed(x, *, power=1, halved=False):
        y = (x**power).sum(axis=0)
        return y / np.float32(2) if halved else y

    x, calls = numbers(3, 4), [{}, {"power": 2}, {"power": 2, "halved": True}, {"power": 3}]
    for constants in calls:
        summed(x, **constants)
    monkeypatch.setattr(summed.calls, "whole", None)
    for constants in calls:
        np.testing.assert_allclose(summed(x, **constants), summed.reference(x, **constants), rtol=1e-5)


def test_what_runs_as_its_reference_for_what_is_no_array_is_known_by_types_and_texts(monkeypatch):
    @noyau.op
    def listed(x, numbers, kind="list"):
        return x * 2 if kind == "twice" else np.asarray(x.tolist()) * numbers["by"]

    x = numbers(3)
    with pytest.warns(noyau.ReferenceWarning, match="numbers is a dict"):
        listed(x, {"by": 2})
    monkeypatch.setattr(listed.calls, "of_signature", None)
    for by in range(4):
        assert np.array_equal(listed(x, {"by": by}), np.asarray(x.tolist()) * by)
    with pytest.raises(TypeError):  # another kind asks again
        listed(x, {"by": 2}, "twice")


def test_a_default_that_changes_is_read_again():
    by = {"by": 1.0}

    @noyau.op
    def scaled(x, by=by):
        return x * np.float32(by["by"])

    for number in range(4):
        by["by"] = float(number)
        assert np.array_equal(scaled(numbers(3), by), numbers(3) * np.float32(number))


def test_texts_that_differ_in_each_call_make_no_kernel_each(monkeypatch):
    monkeypatch.setattr("noyau.ops.dispatch.calls.MOST_TEXTS", 2)
    monkeypatch.setattr("noyau.ops.dispatch.calls.MOST_CONSTANTS", 2)

    @noyau.op
    def named(x, name, *, power=1):
        return x**power + np.float32(len(name))

    for name in ("a", "bb"):
        named(numbers(3), name)
    with pytest.warns(noyau.ReferenceWarning, match="name is a str"):
        named(numbers(3), "ccc")
    assert np.array_equal(named(numbers(3), "dddd"), numbers(3) + np.float32(4))
    assert len(named.calls.kinds) == 2
    for power in range(2, 5):
        named(numbers(3), "ccc", power=power)
    assert len(named.calls.others) <= 2
