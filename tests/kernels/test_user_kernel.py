from __future__ import annotations

import math
from inspect import signature

import pytest

from noyau.errors import SignatureError, UnsupportedError
from noyau.kernels.user_kernel import (
    Target,
    Usage,
    language_named,
    language_of,
    number_text,
    python_function,
    validate,
)
from noyau.signatures.types import parse

TARGET = Target("op", parse("f32[n], f32[m], i32 -> out: f32[n], hist: i32[n]", ["x", "y", "k"]), {"eps": 1e-5})


@pytest.mark.parametrize(
    "said",
    [
        {"launch": lambda n, device, BLOCK: ((n // BLOCK,), (BLOCK,)), "constants": {"BLOCK": [64, 128]}},
        {"launch": (64, 128)},
        {"launch": "n"},
        {"args": lambda x, out, hist, n, eps: (x, out, hist, n, eps)},
        {"init": {"out": "x", "hist": 0}},
        {"init": lambda n: {"hist": n}},
        {"args": lambda x, other=3: (x, other)},
        {"constants": {"eps": 1e-3}},
    ],
)
def test_what_may_be_said_of_a_kernel(said):
    validate(Usage(**said), TARGET, "op[f]")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            {"launch": lambda rows: rows},
            "launch= of op[f] asks for rows; there are x, y, k, out, hist, n, m, eps, device",
        ),
        ({"args": lambda *each: each}, "args= of op[f] takes *each; it gets what it asks for by the name"),
        (
            {"launch": 3},
            "launch= of op[f] is 3; give (grid, block), or a function that does; for begin and end in C a size (n, m)",
        ),
        ({"launch": "rows"}, "launch= of op[f] is 'rows'; give (grid, block)"),
        ({"init": {"x": 0}}, "init= of op[f] names 'x'; the outputs are out, hist"),
        ({"init": {"out": "hist"}}, "init= of op[f] copies 'hist' to out; the inputs are x, y, k"),
        ({"init": {"out": "y"}}, "init= of op[f]: y is f32[m], and out is f32[n]; they must be alike"),
        ({"init": {"out": None}}, "init= of op[f] gives out None; give a number, or the name of an input"),
        ({"constants": {"a b": 1}}, "constants= of op[f] names 'a b', which is no identifier"),
        ({"constants": {"n": 1}}, "constants= of op[f] names n, which is an input, an output or a size"),
        ({"constants": {"BLOCK": []}}, "constants= of op[f] has an empty list for BLOCK"),
        ({"constants": {3: 1}}, "constants= of op[f] names 3, which is no identifier"),
        ({"constants": 3}, "constants= of op[f] is 3; give {'BLOCK': 128}, or lists of values"),
        ({"init": 3}, "init= of op[f] is 3; give {'out': 0}, or a function that does"),
        ({"args": 3}, "args= of op[f] is 3; give a function that gives a tuple of all arguments"),
        ({"options": ["-O2"]}, "options= of op[f] is ['-O2']; give a dict, such as {'num_warps': 8}"),
        ({"returns": 3}, "returns= of op[f] is 3; give True or False"),
        ({"trust": "yes"}, "trust= of op[f] is 'yes'; give True or False"),
        ({"updates": (3,)}, "updates= of op[f] is (3,); give names of inputs: ('p', 'm')"),
        ({"updates": ("z",)}, "updates= of op[f] names 'z'; the inputs are x, y, k"),
        ({"updates": ("x",)}, "updates= of op[f] names 1 inputs for 2 outputs"),
        ({"updates": ("x", "y")}, "updates= of op[f]: y is f32[m], and hist is i32[n]; they must be alike"),
    ],
)
def test_what_may_not_be_said_of_a_kernel(said, told):
    with pytest.raises(SignatureError) as error:
        validate(Usage(**said), TARGET, "op[f]")
    assert told in str(error.value)


def test_what_is_updated_cannot_be_initialised():
    target = Target("op", parse("f32[n] -> f32[n]", ["p"]), {})
    with pytest.raises(SignatureError, match="has updates= and init="):
        validate(Usage(updates=("p",), init={"out": 0}), target, "op[f]")


class Jitted:
    """As a decorator of numba or triton makes it: a callable around a function."""

    def __init__(self, module: str, name: str = "py_func") -> None:
        type(self).__module__ = module
        setattr(self, name, test_what_may_be_said_of_a_kernel)

    def __call__(self) -> None: ...


@pytest.mark.parametrize(
    ("module", "language"),
    [
        ("numba.core.registry", "numba"),
        ("numba.cuda.dispatcher", "numba_cuda"),
        ("triton.runtime.jit", "triton"),
        ("cupy", "python"),
    ],
)
def test_the_language_of_a_callable(module, language):
    made = type("Jitted", (Jitted,), {})(module)
    assert language_of(made) == language
    assert python_function(made) is test_what_may_be_said_of_a_kernel


def test_a_plain_function_is_in_python():
    assert language_of(math.sqrt) == "python"
    assert python_function(math.sqrt) is math.sqrt


def test_a_language_that_there_is_not():
    with pytest.raises(
        UnsupportedError, match="op: there is no language 'fortran'; there are c, cpp, numba, triton, cuda, numba_cuda"
    ):
        language_named("fortran", "op")


@pytest.mark.parametrize(
    ("value", "text"),
    [(3, "3"), (True, "1"), (0.5, "0.5"), (1e-5, "1e-05"), (math.inf, "(1.0 / 0.0)"), (-math.inf, "(-1.0 / 0.0)")],
)
def test_numbers_as_c_has_them(value, text):
    assert number_text(value) == text


def test_nan_is_nan_in_c():
    assert number_text(math.nan) == "(0.0 / 0.0)"


def test_what_numba_s_decorators_were_given():
    import numba

    def plain(x):
        return x + x

    def filled(x, out):
        out[:] = x

    assert python_function(numba.vectorize(plain)) is plain
    assert python_function(numba.guvectorize("(n)->(n)")(filled)) is filled
    shifted = numba.stencil(lambda x: x[-1] + x[1])
    assert list(signature(python_function(shifted)).parameters) == ["x"]
    assert [language_of(each) for each in (numba.vectorize(plain), shifted)] == ["numba"] * 2
