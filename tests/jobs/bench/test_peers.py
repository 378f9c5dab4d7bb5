from __future__ import annotations

import numpy as np
import pytest

import noyau
from noyau.errors import InputError, MissingExtraError, UnsupportedError
from noyau.jobs.bench import peers
from noyau.jobs.bench.peers import named_peers, numexpr_text
from noyau.kernels.programs.generate import specialization_of, trace_reference
from noyau.signatures.instances import bind

NAMES = {"exp", "sqrt", "maximum", "sum", "tanh"}


@noyau.op("f32[n], f32[n] -> f32[n]")
def wave(x, y, *, factor=2.0):
    return np.exp(-x) * factor / np.maximum(y, 1) + np.tanh(x)


@noyau.op("f32[m, n] -> f32[m]")
def row_sums(x):
    return np.sqrt(x * x).sum(-1)


@noyau.op("f32[n] -> f32[n]")
def backwards(x):
    return x[::-1] + 1


def text_of(op, *arrays):
    bound = bind(op.require_signature(), arrays, {}, op.name)
    request = specialization_of(op.require_signature(), bound, op.description.reference.constants)
    return numexpr_text(trace_reference(op.description.reference, request))


def value(text, numbers, *arrays):
    scope = {name: getattr(np, name) for name in NAMES} | numbers | {f"x{k}": each for k, each in enumerate(arrays)}
    return eval(text, scope)


def test_a_traced_op_is_an_expression_of_the_same_values():
    x, y = np.random.default_rng(0).standard_normal((2, 50)).astype(np.float32)
    found = value(*text_of(wave, x, y), x, y)
    np.testing.assert_allclose(found, wave.reference(x, y), rtol=1e-5)
    assert found.dtype == np.float32
    rows = x.reshape(5, 10)
    np.testing.assert_allclose(value(*text_of(row_sums, rows), rows), np.abs(rows).sum(-1), rtol=1e-5)


def test_what_numexpr_has_no_word_for():
    with pytest.raises(UnsupportedError, match="numexpr has no view like"):
        text_of(backwards, np.ones(5, np.float32))


def test_numba_runs_the_reference_with_its_constants():
    peer = named_peers(["numba"], wave)["numba"]
    x = np.ones(4, np.float32)
    np.testing.assert_allclose(peer(x, x), wave.reference(x, x), rtol=1e-6)


def test_what_is_no_peer(monkeypatch):
    with pytest.raises(InputError, match=r"there is no such peer; there are torch\.compile, numexpr, numba"):
        named_peers(["jax"], wave)
    monkeypatch.setitem(peers._PACKAGES, "numexpr", "no_such_package")
    with pytest.raises(MissingExtraError, match="--against numexpr needs no_such_package: pip install no_such_package"):
        named_peers(["numexpr"], wave)
    monkeypatch.setitem(peers._PACKAGES, "numexpr", "numpy")  # some package that is there
    with pytest.raises(InputError, match=r"time an op, under @noyau\.op"):
        named_peers(["numexpr"], {"f": lambda x: x})
