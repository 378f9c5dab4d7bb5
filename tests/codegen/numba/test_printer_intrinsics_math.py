"""The scalar functions in Python: translated whole, as right as the C that they come from, and vectorised."""

from __future__ import annotations

import platform
import re

import numpy as np
import pytest

from noyau.codegen import cmath
from noyau.codegen.numba import printer as numba_math
from noyau.codegen.tables import SCALARS
from noyau.errors import UnsupportedError
from tests.codegen import test_cmath
from tests.codegen.numba.test_spellings import everything, names_of
from tests.codegen.numba_kernels import build
from tests.jobs.check.groups import Group
from tests.nodes import F32, F64

COUNTS = {np.float32: 1 << 12, np.float64: 1 << 11}  # a look; the sweep is that of the C, by the same algorithms
DTYPES = {F32: "f32", F64: "f64"}


@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPES.get)
def test_functions_keep_their_promises(dtype, monkeypatch):
    if dtype is F64 and np.finfo(np.longdouble).nmant < 63:
        pytest.skip("no wider float here to judge float64 by")
    monkeypatch.setattr(test_cmath, "COUNTS", COUNTS)
    made = everything(dtype)
    for at, name in enumerate(names_of(dtype)):
        if name not in SCALARS:
            continue
        stem = f"noyau_{SCALARS[name]}_{DTYPES[dtype]}"
        operands, truth = test_cmath.cases.__wrapped__(stem)
        given = [np.zeros(operands[0].shape, bool), operands[0], operands[-1]]
        error = test_cmath.ulps(made(*given)[at], truth)
        if re.search(r"max|min", name):
            error[(operands[0] == 0) & (operands[-1] == 0)] = 0  # of -0 and 0, either
        worst = int(np.argmax(error))
        slack = 1 if stem == "noyau_erf_f64" else 0  # the truth is no wider than float64 there
        assert error[worst] <= cmath.ULP[stem] + slack, (name, [float(each[worst]).hex() for each in operands])


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="looks for instructions of x86-64")
@pytest.mark.parametrize("name", ["exp", "sin"])
def test_a_loop_over_a_function_is_vectorised(name, empty_cache):
    """There are instructions on several numbers at once, and no call of a function for one. (Numba does not say of what
    it has loaded.)"""
    g = Group()
    g.map(name, g.input("x", F32, "n"), dtype=F32)
    (launch,) = build(g.graph(), f"{name}_of_x")._launches
    assembly = launch.inspect_asm(launch.signatures[0])
    assert re.search(r"\bv?mulp[sd]\b", assembly)
    assert not re.search(rf"call.*\b{name}f?\b", assembly)


def test_text_has_each_function_once_after_what_it_calls():
    text = numba_math.scalar_text(["noyau_tanh_f64", "noyau_exp_f64"])
    order = re.findall(r"^(?:def )?(noyau_\w+)(?:\(| = )", text, re.MULTILINE)
    assert len(order) == len(set(order)) > 3
    for at, name in enumerate(order):
        text = numba_math.functions().get(name, "")
        called = set(re.findall(r"\bnoyau_\w+(?=\()", text)) - {name}
        assert called <= set(order[:at])


def test_text_is_the_same_for_the_same_set():
    one, other = (
        numba_math.scalar_text(["noyau_exp_f32", "noyau_log_f32"]),
        numba_math.scalar_text(["noyau_log_f32", "noyau_exp_f32"]),
    )
    assert one == other
    assert numba_math.scalar_text([]) == ""


def test_a_function_brings_what_it_calls_alone():
    assert re.findall(r"^def (noyau_\w+)", numba_math.scalar_text(["noyau_exp_f32"]), re.MULTILINE) == ["noyau_exp_f32"]


def test_every_function_of_c_is_there():
    assert numba_math.functions().keys() | numba_math.BIT_CASTS.keys() == cmath.SNIPPETS.keys()


def test_an_unknown_function_is_refused():
    with pytest.raises(UnsupportedError, match="numba has no function noyau_gamma_f32"):
        numba_math.scalar_text(["noyau_gamma_f32"])
