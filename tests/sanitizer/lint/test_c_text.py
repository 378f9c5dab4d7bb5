from __future__ import annotations

import ast

import pytest

from noyau.errors import UnsupportedError
from noyau.sanitizer.lint.c_text import statements

TEXT = """
/* twice */
template <int N> __global__ void __launch_bounds__(128) twice(const float *x, float *out, long long n, unsigned m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, j;   // i < n
    float own[4] = {0, 1, 2, 3}, s = 0.5f;
    for (int k = 0; k < n; ++k) { out[(size_t)i * n + k] += 2 * x[k]; }
    for (j = 7; j > 0; j /= 2) if (i < j && !(m >> 1)) s += own[j]; else { return; }
    while (i < n) { i += gridDim.x; s = i % 2 ? -s : float(i); }
    *out = fmaxf(s, 0x10 + 3L);
    i++;
}
"""
READ = """\
i = cast('int', blockIdx.x * blockDim.x + threadIdx.x)
own = cast('float', None)
s = cast('float', 0.5)
for k in range(cast('int', 0), n, 1):
    out[cast('size_t', i) * n + k] += 2 * x[k]
j = 7
while j > 0:
    if i < j and (not m >> 1):
        s += own[j]
    else:
        return
    j //= 2
while i < n:
    i += gridDim.x
    s = -s if i % 2 else cast('float', i)
out[0] = fmaxf(s, 16 + cast('long long', 3))
i += 1"""


def test_statements_with_their_lines():
    body = statements(TEXT, "twice", "cuda")
    assert ast.unparse(ast.Module(body, [])) == READ
    assert [node.lineno for node in body] == [4, 5, 5, 6, 7, 7, 8, 9, 10]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("void f() {}", "no function g is found"),
        ("void g() { int i = [] { return 1; }(); }", "line 1 is not read: '['"),
        ("void g() { if (1) {", "the text ends within a function"),
        ("void g() { x + 1 = 3; }", "line 1 is not read"),
        ("void g() { (x) = 3; f(x) = 3; }", "line 1 assigns to what is no name and no cell"),
        ("void g() { int i = 3 }", "line 1 is not read: '}' where ';' is expected"),
    ],
)
def test_what_is_not_read_is_refused(text, told):
    with pytest.raises(UnsupportedError, match=told.replace("[", r"\[")):
        statements(text, "g", "cpp")
