"""Defects between a kernel and who calls it, each beside its mended twin: noyau check examples/defects/interfaces.py

The line of a defect says what it is.
"""

import ctypes

import numpy as np

import noyau

# A gradient that forgets what comes from behind.


@noyau.op("f64[n], f64[n] -> f64[n]")
def scaled_forgetting(x, weight):
    return x * weight


@scaled_forgetting.gradient
def gradient_broken(x, weight, grad):  # defect: gradient
    return weight, x


@noyau.op("f64[n], f64[n] -> f64[n]")
def scaled(x, weight):
    return x * weight


@scaled.gradient
def gradient_mended(x, weight, grad):
    return weight * grad, x * grad


# A product that transposes both, whatever it is asked for.


@noyau.op("f32[n, n], f32[n, n] -> f32[n, n]")
def product(a, b, *, transposed=False):
    return (a.T if transposed else a) @ (b.T if transposed else b)


@product.kernel
def panels_broken(a, b, out, *, transposed=False):  # defect: wrong-value
    np.matmul(a.T, b.T, out=out)


@product.kernel
def panels_mended(a, b, out, *, transposed=False):
    np.matmul(a.T if transposed else a, b.T if transposed else b, out=out)


# The address of the first cell, taken for packed float32: strided and expanded arrays, and float64, are something else.


@noyau.op("float[m, n] -> float[m, n]")
def squares(x):
    return x * x


@squares.kernel
def address_broken(x, out):  # defect: wrong-value
    if x.size:
        cells = np.ctypeslib.as_array((ctypes.c_float * x.size).from_address(x.ctypes.data))
        out[...] = (cells * cells).reshape(x.shape)


@squares.kernel
def address_mended(x, out):
    np.multiply(x, x, out=out)
