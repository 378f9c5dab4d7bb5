"""Ops of many kinds, for the tests of ops on tensors."""

from __future__ import annotations

import numpy as np

import noyau


@noyau.op("float[*batch, n] -> float[*batch, n]")
def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@noyau.op("float[rows, n], float[n] -> float[rows, n]")
def weighted_softmax(x, w):
    v = x * w
    e = np.exp(v - v.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@noyau.op("float[*batch, n], float[n] -> float[*batch, n]")
def rmsnorm(x, weight, *, eps=1e-5):
    return (x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight).astype(x.dtype)


@noyau.op("float, float[n] -> float[n]")
def scaled(a, x):
    return a * x


@noyau.op("float[v, d], i64[n] -> float[n, d]")
def embedding(table, at):
    return table[at]


@noyau.op("float[n] -> most: float, at: i64")
def peak(x):
    return x.max(), x.argmax()


@noyau.op("float[m, k], float[k, n] -> float[m, n]")
def layer(x, w):
    return np.tanh(x @ w)


@noyau.op("float[n, m] -> float")
def energy(x):
    return (x * x).sum()


@noyau.op("float[n] -> total: float, same: float[n]")
def summed(x):
    return x.sum(), x


@noyau.op("f64[n], int -> f64[bins]")
def spread(x, bins):
    return np.zeros(bins) + x.sum()


@noyau.op("any[*batch, n] -> any[*batch, n]")
def doubled(x):
    return x + x


@noyau.op("float[n], bool[n], float[n] -> float[n]")
def chosen(x, mask, y):
    return np.where(mask, np.sqrt(x), y)


@noyau.op
def unsigned(x, y):
    return np.tanh(x) * y
