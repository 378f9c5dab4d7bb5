from __future__ import annotations

import pytest

from noyau.dtypes import DType
from noyau.errors import SignatureError
from noyau.kernels.c.syntax import functions_of, prototype_of

TEXT = """
#include <stdint.h>
#define LOOP(i, n) for (int64_t i = 0; i < (n); ++i)
/* void kernel(int wrong); */
// void kernel(int wrong) {
static const char *note = "void kernel(int wrong) {";
typedef struct { float a; } pair;
static inline float twice(float x) { return x + x; }
float later(float);

__attribute__((noinline)) static void
kernel(const float *restrict x, float const w[], double * __restrict__ out,
       int64_t rows, /* the columns */ const int n, unsigned long long k, float eps, size_t m[static 4],
       const float table[rows][n], pair *p)
{
    if (rows > 0) { LOOP(i, n) out[i] = twice(x[i]); }
}

int other(void) { return 0; }
"""


def test_parameters_as_they_are_written():
    made = prototype_of(TEXT, "kernel", "op")
    assert made.returns == "void"
    assert [str(parameter) for parameter in made.parameters] == [
        "const float *x",
        "const float *w",
        "double *out",
        "int64_t rows",
        "const int n",
        "long long unsigned k",
        "float eps",
        "size_t *m",
        "const float *table",
        "pair *p",
    ]
    assert [parameter.dtypes for parameter in made.parameters[:6]] == [
        (DType.F32,),
        (DType.F32,),
        (DType.F64,),
        (DType.I64,),
        (DType.I32,),
        (DType.U64,),
    ]
    assert not made.parameters[-1].is_known


def test_functions_that_others_can_see():
    assert functions_of(TEXT) == ["other"]
    assert functions_of("int f(int a)\n{\n return a; }\ndouble g(void) { return f(1); }") == ["f", "g"]


def test_a_function_without_parameters():
    assert prototype_of(TEXT, "other", "op").parameters == ()
    assert prototype_of(TEXT, "other", "op").returns == "int"


def test_a_const_pointer_to_cells_that_are_written():
    made = prototype_of("void f(float *const x, float const *y) {}", "f", "op").parameters
    assert [parameter.is_const for parameter in made] == [False, True]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("void g(int a) {}", "op defines no function f; those it defines: g"),
        ("void f(int a);", "op defines no function f; those it defines: none"),
        ("float *f(int a) { return 0; }", "op: f returns a pointer"),
        ("void f(float **x) {}", r"op: the parameter 'float \*\*x' points to pointers"),
        ("void f(float *x[4]) {}", "points to pointers"),
        ("void f(int (*g)(int)) {}", r"op: the parameter 'int \(\*g\)\(int\)' is no pointer to cells and no number"),
        ("void f(int a, ...) {}", r"op: the parameter '\.\.\.' is no pointer"),
        ("void f(int a, float *) {}", r"op: the parameter 'float \*', number 2, has no name"),
        ("void f(unsigned long) {}", "has no name"),
    ],
)
def test_what_cannot_be_called(text, told):
    with pytest.raises(SignatureError, match=told):
        prototype_of(text, "f", "op")


def test_half_a_text_is_read_as_far_as_it_goes():
    assert prototype_of("void f(int a) { if (a", "f", "op").parameters[0].name == "a"
    with pytest.raises(SignatureError):
        prototype_of('void f(int a " {', "f", "op")


def test_a_long_table_is_passed_over():
    table = f"static const int table[] = {{{'1, 2, 3, ' * 100_000}}};\n"
    assert functions_of(table + TEXT) == ["other"]


@pytest.mark.parametrize(
    "text",
    [
        "EXPORT(void) f(int a) {}",
        "struct s { int (*f)(int); };",
        "int main_loop(void) { f(3); if (f(3)) { } while (f(1)) { } return 0; }",
    ],
)
def test_what_looks_like_a_definition_and_is_none(text):
    with pytest.raises(SignatureError, match="defines no function f"):
        prototype_of(text, "f", "op")
