from __future__ import annotations

import numpy as np
from numba import cuda, float32

import noyau
from noyau.sanitizer.lint.constants import constants_of
from noyau.sanitizer.lint.idle_lines import idle_lines

TILE, LIMIT = 8, 512


@noyau.op("f32[n] -> f32[n]")
def double(x):
    return x + x


@double.kernel(launch=lambda n: ((n + TILE - 1) // TILE, TILE))
@cuda.jit
def capped(x, out):
    shared = cuda.shared.array((TILE, TILE * 3), float32)
    i = cuda.grid(1)
    shared[0, 0] = float32(0)
    if i < LIMIT:
        out[i] = x[i] + x[i]
    else:
        out[i] = x[i]
        if i > 1000:
            out[i] = x[i] * np.float32(2)


TEXT = """
#define WIDTH 64
static const int LAST = 100;
static float unrelated(float x) { return x < 77 ? x : 78; }
static long bound(long n) { return n < 48 ? n : LAST; }
void twice(const float *x, float *out, long n) {  // not 4096
    for (long i = 0; i < bound(n) && i < WIDTH; i++) out[i] = x[i] + x[i];
}
"""


def test_numbers_of_a_kernel_in_python_of_its_launch_and_of_what_it_names():
    told = {8: "TILE = 8", 24: "24", 512: "LIMIT = 512", 1000: "1000"}
    assert constants_of(double.kernels["capped"]) == told


def test_numbers_of_a_function_in_c_and_of_those_that_it_calls():
    op = noyau.op("f32[n] -> f32[n]")(lambda x: x + x)
    op.kernel(TEXT, language="c", entry="twice", constants={"UNROLL": [4, 16]})
    told = {4: "UNROLL = 4", 16: "UNROLL = 16", 48: "48", 64: "WIDTH = 64", 100: "LAST = 100"}
    assert constants_of(op.kernels["twice"]) == told


def test_lines_whose_accesses_were_never_seen():
    kernel = double.kernels["capped"]
    first = capped.py_func.__code__.co_firstlineno
    file = capped.py_func.__code__.co_filename
    then, other, rare = first + 7, first + 9, (first + 10, first + 11)
    assert idle_lines(kernel, {(file, then)}) == (other, *rare)
    assert idle_lines(kernel, {(file, then), (file, other)}) == (rare[1],)
    assert idle_lines(kernel, {(file, then), (file, other), (file, rare[1])}) == ()
    assert idle_lines(kernel, ()) == ()
