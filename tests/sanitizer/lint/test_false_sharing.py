from __future__ import annotations

import ast

import numpy as np
import pytest
from numba import njit, prange

import noyau
from noyau.sanitizer.lint import false_sharing
from noyau.sanitizer.lint.c_text import statements
from noyau.sanitizer.lint.false_sharing import diagnose_false_sharing, slowdown, updates

THREADS = 4


@noyau.op("f32[n] -> f32[1]")
def total(x):
    return x.sum(keepdims=True)


@total.kernel
@njit(parallel=True)
def side_by_side(x, out):
    totals = np.zeros(THREADS, np.float32)
    for t in prange(THREADS):
        for i in range(t, x.shape[0], THREADS):
            totals[t] += x[i]  # here
    out[0] = totals.sum()


@total.kernel
@njit(parallel=True)
def local_totals(x, out):
    totals = np.zeros(THREADS)
    for t in prange(THREADS):
        s = 0.0
        for i in range(t, x.shape[0], THREADS):
            s += x[i]
        totals[t] += s
    out[0] = totals.sum()


def test_it_is_said_only_where_it_costs_time(monkeypatch):
    monkeypatch.setattr(false_sharing, "slowdown", lambda: 3.4)
    (found,) = diagnose_false_sharing(total.kernels["side_by_side"])
    assert found.message.startswith("totals[t] is updated in each round")
    assert "two threads took 3.4 times as long on one line of the cache as on two, measured here" in found.message
    with open(found.file, encoding="utf-8") as file:
        assert file.read().splitlines()[found.line - 1].strip() == "totals[t] += x[i]  # here"
    assert diagnose_false_sharing(total.kernels["local_totals"]) == []
    monkeypatch.setattr(false_sharing, "slowdown", lambda: 1.1)
    assert diagnose_false_sharing(total.kernels["side_by_side"]) == []


LOOPS = {
    "for t in prange(4):\n    for i in range(n):\n        a[t] += x[i]": ["a[t]"],
    "for t in prange(0, get_num_threads()):\n    while i < n:\n        a[0, t] += x[i]": ["a[0, t]"],
    "for i in prange(n):\n    for j in range(m):\n        out[i] += x[i, j]": [],
    "for t in prange(4):\n    for i in range(n):\n        a[16 * t] += x[i]": [],
    "for t in prange(4):\n    for i in range(n):\n        a[t, 0] += x[i]": [],
    "for t in range(4):\n    for i in range(n):\n        a[t] += x[i]": [],
    "for t in prange(100000):\n    for i in range(n):\n        a[t] += x[i]": [],
}


@pytest.mark.parametrize("text", LOOPS)
def test_which_updates_are_meant(text):
    assert [name for name, _ in updates(ast.parse(text).body, {})] == LOOPS[text]


def test_loops_of_openmp():
    text = """
void sums(const float *x, float *totals, int n) {
#pragma omp parallel for
    for (int t = 0; t < 4; t++)
        for (int i = t; i < n; i += 4)
            totals[t] += x[i];
    for (int t = 0; t < 4; t++)
        for (int i = t; i < n; i += 4) totals[t] += x[i];
}
"""
    assert list(updates(statements(text, "sums"), {})) == [("totals[t]", 6)]


def test_it_is_measured():
    assert 0.1 < slowdown() < 1000
