from __future__ import annotations

import inspect

import numpy as np
import pytest

from noyau.errors import UnsupportedError
from noyau.frontends.numpy.traced_array import FUNCTIONS
from tests.frontends.numpy.traces import agrees, found, traced_only, x


def test_an_array_of_its_own_may_be_changed_in_place():
    def softmax(a):
        e = np.exp(a - a.max(-1, keepdims=True))
        e /= e.sum(-1, keepdims=True)
        np.add(e, 1, out=e)
        return e

    agrees(softmax, x(3, 4))


def test_what_is_changed_is_seen_under_each_of_its_names():
    def twice(a):
        b = a + 1
        c = b
        b *= 2
        return b + c

    agrees(twice, x(3, 4))


def test_an_array_tells_of_itself():
    def told(a):
        assert (a.ndim, a.dtype, len(a.shape)) == (2, np.float32, 2)
        return a.T.T

    agrees(told, x(3, 4))


def test_what_has_a_known_extent_can_be_gone_through():
    agrees(lambda a: sum(row.sum() for row in np.stack([a, a])), x(3, 4))
    agrees(lambda a: a * len(np.stack([a, a])), x(3, 4))


def change(a):
    a += 1
    return a


def change_dtype(a):
    b = a > 0
    np.add(a, 1, out=b)
    return a


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (change, "it writes into the argument x0; make a new array: a copy, or np.where"),
        (change_dtype, "np.add does not write f32 into bool; NumPy refuses it too: cast it"),
        (lambda a: a if a.sum() > 0 else -a, "it asks for the number in an array, which is only known when it runs"),
        (lambda a: a * float(a[0, 0]), "it asks for the number"),
        (lambda a: np.float32(a[0, 0]) * a, "asks for the number"),
        (lambda a: a * a[0, 0].item(), "it asks for the number"),
        (lambda a: np.sqrt(a).__array__(), "what is not traced asks for the numbers in an array"),
        (lambda a: a if a.shape[0] > 3 else -a, "s2 is compared with 3, and it has no number yet"),
        (lambda a: a * range(a.shape[0])[0], "s2 is asked for its number, and it has none yet"),
        (lambda a: a.strides, "the method .strides of an array is not among those that are traced: how arrays lie"),
    ],
)
def test_what_is_not_traced(function, told):
    with pytest.raises(UnsupportedError, match=told):
        traced_only(function, x(2, 3))


def changed(made, by):
    seen = made
    made += by
    return made, seen


@pytest.mark.parametrize("make", [np.zeros_like, np.copy, np.asarray, lambda a: np.where(a > 0, a, 1)])
def test_arrays_without_axes_are_changed_in_place(make):
    found(lambda a: changed(make(a.sum()), a[0]), x(3))


@pytest.mark.parametrize("make", [np.reshape, np.transpose, lambda a, *shape: a.copy(), lambda a, *shape: a.T])
def test_scalars_stay_scalars(make):
    found(lambda a: changed(make(a.sum(), ()), np.float64(0.5)), x(3))


@pytest.mark.parametrize("name", ["flat", "real", "shape", "own"])
def test_attributes_are_not_set(name):
    def change(a):
        b = np.zeros_like(a)
        setattr(b, name, a)
        return b

    with pytest.raises(
        UnsupportedError, match=f"'TracedArray' object has no attribute '{name}'|{name}.* has no setter"
    ):
        traced_only(change, x(3))


def positional(function):
    parameters = inspect.signature(function).parameters.values()
    return [each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]


def test_options_have_numpys_positions():
    def different(name):
        function = np
        for part in name.split("."):
            function = getattr(function, part, None)
        try:
            names = positional(function)[2:]
        except (TypeError, ValueError):  # not a function of NumPy, or one of C without a signature
            return False
        return any(own != other for own, other in zip(positional(FUNCTIONS[name])[2:], names, strict=False))

    assert [name for name in FUNCTIONS if different(name)] == []


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: np.cross(a, b, 0),
        lambda a, b: np.cross(a, b, 0, 1, 0),
        lambda a, b: np.cross(a, b, axisc=0),
        lambda a, b: np.cross(a, b, axis=0),
        lambda a, b: np.all(a > b, 0, None, True),
        lambda a, b: np.zeros_like(a, np.float64, "C", True, (3, 2)) + b[:, :2],
        lambda a, b: np.full_like(a, 2, np.float64, "K", True, (3, 2)) + b[:, :2],
        lambda a, b: np.full_like(a, fill_value=2, dtype=np.int64),
        lambda a, b: np.arange(0, a.shape[0], 2, np.float32) + b[:2, 0],
    ],
)
def test_options_are_read_by_position(function):
    agrees(function, x(3, 3), x(3, 3, seed=1))


def test_a_size_is_rounded_to_tens():
    found(lambda a: np.zeros(round(a.shape[0], -1)) + a.sum(), x(17, 2))
    agrees(lambda a: np.zeros(round(a.shape[0], 1)) + a.sum(), x(17, 2))
