from __future__ import annotations

import functools
import math
import operator

import numpy as np
import pytest

import noyau
from noyau.errors import SignatureError
from noyau.ops.higher_order.ops import inputs_of, name_of, over_arrays

X = np.array([-2.5, -0.5, 0.0, 0.3, 0.9])


def damped(x):
    return math.exp(-abs(x))


def calls_another(x, scale=2.0, *, shift=1.0):
    return max(damped(x), 0.1) * scale + shift


def test_what_is_no_def_is_wrapped():
    for function, want in ((math.exp, np.exp(X)), (np.tanh, np.tanh(X)), (operator.neg, -X), (abs, np.abs(X))):
        assert np.array_equal(over_arrays(function, 1, "map")(X), want)
    power = functools.partial(math.pow, 2.0)
    assert np.array_equal(over_arrays(power, 1, "map")(X), 2.0**X)
    assert np.array_equal(over_arrays(np.where, 3, "zip")(X > 0, X, 0.0), np.where(X > 0, X, 0.0))


def test_an_op_is_its_reference():
    twice = noyau.op("float[n] -> float[n]")(lambda x: x + x)
    assert np.array_equal(over_arrays(twice, 1, "map")(X), X + X)


def test_parameters_with_defaults_become_constants():
    made = over_arrays(calls_another, 1, "map")
    assert made.__kwdefaults__ == {"scale": 2.0, "shift": 1.0}
    assert made.__code__.co_argcount == 1
    assert np.array_equal(made(X, scale=0.0), np.ones(5))
    assert over_arrays(lambda a, b, k=3: a, 2, "zip").__kwdefaults__ == {"k": 3}
    assert over_arrays(lambda a, b=1: a, 2, "zip").__defaults__ is None


def test_how_many_numbers_it_takes():
    assert [inputs_of(each) for each in (damped, calls_another, np.exp, np.add, operator.add, max)] == [
        1,
        1,
        1,
        2,
        2,
        2,
    ]
    assert inputs_of(noyau.op("f32[n], f32[n] -> f32[n]")(lambda a, b: a + b)) == 2


def test_names():
    assert [name_of(each) for each in (damped, np.add, lambda x: x, math.exp)] == ["damped", "add", "lambda", "exp"]


@pytest.mark.parametrize(
    ("function", "inputs", "told"),
    [
        (3, 1, "noyau.x takes a function of numbers, not 3"),
        (damped, 2, "noyau.x takes a function of two numbers; damped takes x"),
        (lambda: 1, 1, "noyau.x takes a function of one number; <lambda> takes none"),
        (lambda x, y: x, 1, "noyau.x takes a function of one number; <lambda> takes x, y"),
        (lambda *x: x, 1, "takes [*] or [*][*]"),
        (np.exp, 2, "noyau.x takes a function of two numbers; exp is none"),
        (operator.add, 1, "noyau.x takes a function of one number; add is none"),
        (operator.add, 4, "noyau.x takes a function of 4 numbers; add is none"),
    ],
)
def test_what_is_no_function_of_so_many_numbers(function, inputs, told):
    with pytest.raises(SignatureError, match=told):
        over_arrays(function, inputs, "noyau.x")


def test_a_function_of_a_text_that_has_no_module():
    space: dict[str, object] = {}
    exec("def size(x): return abs(x)", space)
    assert space["size"].__module__ is None
    assert noyau.map(space["size"]).name == "map_size"
