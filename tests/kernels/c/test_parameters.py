from __future__ import annotations

import pytest

from noyau.errors import SignatureError
from noyau.kernels.c.parameters import misfit, narrow_limit, roles_of
from noyau.kernels.c.syntax import prototype_of
from noyau.kernels.user_kernel import Target, Usage
from noyau.signatures.instances import usual_instance
from noyau.signatures.types import parse

SIGNATURE = parse("f32[rows, n], f32[n], f32 -> f32[rows, n]", ["x", "w", "by"])


def roles(parameters: str, result: str = "void", signature=SIGNATURE, constants=None, **said):
    prototype = prototype_of(f"{result} f({parameters}) {{}}", "f", "op[f]")
    return roles_of(prototype, Usage(**said), Target("op", signature, constants or {}), "op[f]")


def refused(parameters: str, result: str = "void", **said) -> str:
    with pytest.raises(SignatureError) as told:
        roles(parameters, result, **said)
    return str(told.value)


def test_by_name_in_any_order_and_without_some_sizes():
    found = roles("long n, float *out, const float *w, float by, const float *x")
    assert found.names == ("n", "out", "w", "by", "x")


def test_by_position_inputs_outputs_sizes_constants():
    found = roles("const float *a, const float *b, float c, float *d, int m, int k, double e", constants={"eps": 1e-5})
    assert found.names == ("x", "w", "by", "out", "rows", "n", "eps")


@pytest.mark.parametrize("returns", ["int", "int32_t"])
def test_a_status_may_be_returned(returns):
    assert roles("float *x, float *w, float by, float *out", returns).status
    assert not roles("float *x, float *w, float by, float *out").status


def test_a_scalar_result_may_be_returned():
    dot = parse("f32[n], f32[n] -> f32", ["x", "y"])
    assert roles("const float *x, const float *y, long n", "float", dot).returned == "out"
    assert roles("const float *a, const float *b, long k", "float", dot).returned == "out"
    assert roles("const float *x, const float *y, float *out, long n", "void", dot).returned is None
    count = parse("f32[n] -> i32", ["x"])
    assert roles("const float *x, long n", "int", count).returned == "out"
    assert roles("const float *x, int *out, long n", "int", count).status


def test_begin_and_end_are_the_range_of_a_call_wherever_they_stand():
    found = roles("int64_t begin, const float *x, const float *w, float by, float *out, long n, long end")
    assert (found.in_pieces, found.names) == (True, ("begin", "x", "w", "by", "out", "n", "end"))
    found = roles("float *a, float *b, float c, float *d, int m, int k, int64_t begin, int64_t end", "int32_t")
    assert (found.in_pieces, found.status) == (True, True)
    assert found.names == ("x", "w", "by", "out", "rows", "n", "begin", "end")
    found = roles("float *o, int64_t begin, int64_t end", launch="n", args=lambda out: (out,))
    assert (found.in_pieces, found.names) == (True, None)


def test_an_op_that_has_the_name_itself_has_no_range():
    sliced = parse("f32[n], i64, i64 -> f32[n]", ["x", "begin", "end"])
    found = roles("const float *x, int64_t begin, int64_t end, float *out", signature=sliced)
    assert (found.in_pieces, found.names) == (False, ("x", "begin", "end", "out"))


@pytest.mark.parametrize(
    ("parameters", "said", "told"),
    [
        (
            "float *x, float *w, float by, float *out, long begin",
            {},
            "takes begin alone; one that is called for pieces",
        ),
        (
            "float *x, float *w, float by, float *out, int begin, int64_t end",
            {},
            "'int begin' is a place in a range: int64",
        ),
        (
            "float *x, float *w, float by, float *out, int64_t begin, float *end",
            {},
            "'float *end' is a place in a range",
        ),
        (
            "float *x, float *w, float by, float *out",
            {"launch": "n"},
            "f takes no int64_t begin and end, and is called",
        ),
    ],
)
def test_a_range_is_whole_or_refused(parameters, said, told):
    assert told in refused(parameters, **said)


def test_what_is_called_in_pieces_returns_no_result():
    dot = parse("f32[n], f32[n] -> f32", ["x", "y"])
    told = refused("const float *x, const float *y, long n, int64_t begin, int64_t end", "float", signature=dot)
    assert told == "op[f] is called for pieces of its work, and returns out: write it by a pointer"


def test_what_is_updated_has_no_parameter_of_its_own():
    step = parse("f32[n], f32[n] -> f32[n]", ["p", "g"])
    assert roles("float *p, const float *g, long n", signature=step, updates=("p",)).names == ("p", "g", "n")


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        (
            "const float *x, float by, float *out, long n",
            "op[f]: no parameter is named w; say with args= what it is called with",
        ),
        (
            "const float *x, const float *w, float by, float *out, long rows, long n, int extra",
            "op[f] has 7 parameters (x, w, by, out, rows, n, extra); extra is no name of the op, and 6 are expected by "
            "position (x, w, by, out, rows, n); rename them, or say args=",
        ),
        (
            "const float *x, const float *w, float by, float *n, long rows, long m",
            "op[f]: the parameter n stands where out is expected by position; name all of them as the op does "
            "(x, w, by, out, rows, n), or say args=",
        ),
        ("double *x, float *w, float by, float *out", "op[f]: the parameter 'double *x' cannot hold x: f32[rows, n]"),
        (
            "float x, float *w, float by, float *out",
            "op[f]: the parameter 'float x' does not fit: x: f32[rows, n] comes as a pointer to its first cell",
        ),
        (
            "float *x, float *w, float *by, float *out",
            "op[f]: the parameter 'float *by' does not fit: by: f32 comes by value",
        ),
        (
            "float *x, float *w, float by, const float *out",
            "op[f]: the parameter 'const float *out' is const, and out is written",
        ),
        (
            "float *x, float *w, float by, float *out, long *n",
            "op[f]: the parameter 'long *n' is a pointer, and n is a number",
        ),
        (
            "float *x, float *w, float by, float *out, float n",
            "op[f]: the parameter 'float n' stands for a size, which is an integer such as int64_t",
        ),
        ("float *x, float *w, float by, float *out, long n, long n", "op[f]: two parameters are named n"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_name(parameters, told):
    assert refused(parameters) == told


@pytest.mark.parametrize(
    ("parameters", "result", "said", "told"),
    [
        (
            "float *x, float *w, float by, float *out",
            "double",
            {},
            "returns double; a kernel that fills its outputs returns void",
        ),
        ("float *x, float *w, float by", "float", {"returns": True}, "a C function returns a scalar result alone"),
    ],
)
def test_what_may_not_be_returned(parameters, result, said, told):
    assert told in refused(parameters, result, **said)


def test_a_result_of_another_dtype():
    dot = parse("f32[n] -> f32", ["x"])
    assert refused("float *x, long n", "double", signature=dot, returns=True) == (
        "op[f] returns double, and the result out is f32"
    )


def test_a_family_is_held_by_one_of_its_dtypes():
    double = parse("float[n] -> float[n]", ["x"])
    prototype = prototype_of("void f(const double *x, double *out, long n) {}", "f", "op[f]")
    names = roles("const double *x, double *out, long n", signature=double).names
    assert "cannot hold x: f32[n]" in misfit(prototype, names, usual_instance(double, {}), "op[f]")


def test_integers_by_value_widen_and_never_narrow():
    take = parse("f32[n], i32 -> f32[k]", ["x", "k"])
    assert roles("float *x, int64_t k, float *out, long n", signature=take).names == ("x", "k", "out", "n")
    assert refused("float *x, short k, float *out, long n", signature=take) == (
        "op[f]: the parameter 'short k' cannot hold k: i32"
    )


def test_sizes_in_narrow_integers_have_a_limit():
    parameters = prototype_of("void f(int a, int64_t b, uint8_t c, size_t d) {}", "f", "op").parameters
    assert [narrow_limit(parameter) for parameter in parameters] == [2**31 - 1, None, 255, None]
