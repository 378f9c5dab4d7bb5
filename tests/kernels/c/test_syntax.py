"""Functions, macros and launches of texts, odd ones among them."""

from __future__ import annotations

import importlib
import sys

import pytest

from noyau.errors import MissingExtraError
from noyau.kernels.c import syntax as c_syntax
from noyau.kernels.c.syntax import blank_comments, plain_name, syntax

TEXT = """
#include "common.h"
#define CHECK(call) do { cudaError_t e = (call); if (e) { printf("%s", cudaGetErrorString(e)); exit(1); } } while (0)
#define RUN(n) \\
    add<<<n, 64>>>(x, x)  // launched
using Clock = std::chrono::high_resolution_clock;
template <typename T> __global__ void __launch_bounds__(256, (2)) add(const T *x, T *out) { long long t = clock(); }
__host__ __device__ float twice(float x) { return 2 * x; }
__device__ float thrice(float x) { return 3 * x; }  /* void none() { } */
BENCHMARK(twice)
void run(float *x) {
    a::add<float> <<<4, dim3(1,
        256)>>> (x, x); // add<<<1, 1>>>(x, x)
    puts("add<<<1, 1>>>(x, x)"); extern __shared__ __align__(sizeof(float)) T own[];
}
struct T { T() : a(1) {} int a; };
int cut("""


def test_functions_and_macros_with_their_lines():
    tree = syntax(TEXT, "cuda")
    lines = {each.name: each.line for each in tree.functions}
    assert lines == {"add": 7, "twice": 8, "thrice": 9, "run": 11, "T": 16}
    assert [each.name for each in tree.functions if each.is_on_device] == ["add", "thrice"]
    assert [name for name, _ in tree.macros] == ["CHECK", "RUN"]
    run = next(each for each in tree.functions if each.name == "run")
    assert (run.head, tree.source(run.parameters)) == (("void",), "(float *x)")


def test_launches_with_their_lines():
    tree = syntax(TEXT, "cuda")
    assert [(each.name, each.line, each.last_line) for each in tree.launches] == [("add", 5, 5), ("add", 12, 13)]
    assert tree.source(tree.launches[1].callee) == "a::add<float>"
    assert tree.launches[1].grid == "4, dim3(1,\n        256)"
    assert [(each.type, each.name) for each in tree.dynamic_arrays] == [("T", "own")]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("void f() { if (x) {", ["f"]),  # cut off
        ("f(" * 20_000, []),
        ("void f(const float *RESTRICT x, RESTRICT float *y) {}", ["f"]),
        ("int f(a) int a; { return a; }", []),  # no name of a parameter has a type there
        ("static inline\nINLINE void f(int a) __attribute__((noinline)) {}", ["f"]),
        ('__attribute__((target("avx2"))) void f(int a) {}\nint g(int);', ["f"]),
        ("FOO(x)\nvoid f(void) {}\nLOOP(a, long, chunk(b))\nlong g(long a) { return a; }", ["f", "g"]),
        ("void f(/* a, { */ int a, // )\n int b) {}", ["f"]),
        ('const char *s = "void g() {"; void f(void) {}', ["f"]),
        ("#if 0\n don't\n#endif\nvoid f(void) {}", ["f"]),
        ("void f(void)\n{\n#ifdef X\n if (a) {\n#else\n if (b) {\n#endif\n }\n}\nvoid g(void) {}", ["f", "g"]),
        ("", []),
    ],
)
def test_odd_texts(text, names):
    assert [each.name for each in syntax(text, "c").functions] == names


def test_functions_of_cpp():
    text = "namespace a { template <class T> struct S { const T &get() const { return x; } T x; }; }\n"
    text += "void a::b::f(int &x) {}\ntemplate <> void g<int>(int) {}\nint operator+(S, S) { return 1; }\n"
    assert [each.name for each in syntax(text, "cpp").functions] == ["get", "f", "g", "operator"]


def test_places_are_those_of_the_text():
    text = 'void f(int \u00e9) { puts("\U0001f600"); }\nvoid g(int b) {}'
    tree = syntax(text, "cpp")
    assert [tree.source(each.parameters) for each in tree.functions] == ["(int \u00e9)", "(int b)"]


def test_names_without_what_they_are_in():
    assert [plain_name(each) for each in ("f", "a::f", "f<a::b>", "a::f<int, 2> ")] == ["f"] * 4


def test_what_is_blanked_keeps_its_place():
    text = 'a /* b\n c */ "d" // e\nf'
    assert blank_comments(text) == "a     \n" + 14 * " " + "\nf"


def test_a_text_needs_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "tree_sitter", None)
    fresh = importlib.util.module_from_spec(c_syntax.__spec__)
    monkeypatch.setitem(sys.modules, c_syntax.__name__, fresh)
    c_syntax.__spec__.loader.exec_module(fresh)
    told = r"a kernel in cpp is read by tree-sitter, which is not .*; run: pip install 'noyau-kernels\[check-c\]'"
    with pytest.raises(MissingExtraError, match=told):
        fresh.syntax("void f() {}", "cpp")
