"""What a function reads is part of what it says."""

from __future__ import annotations

import ctypes
import functools
import math
import operator
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

import noyau
from noyau.kernels.trust import fingerprint, source_of


def scaled(factor: Any) -> Any:
    def kernel(x: Any, out: Any) -> None:
        out[:] = x * factor

    return kernel


class Scaling:
    """A callable object with a state."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, x: Any, out: Any) -> None:
        out[:] = x * self.factor


def calling(inner: Any) -> Any:
    return lambda x: inner(x)


def told_in(text: str, name: str = "f") -> str:
    """What a function says that a module of this text has."""
    module = types.ModuleType("told_in")
    module.__file__ = "/nowhere/told_in.py"
    exec(compile(text, module.__file__, "exec"), vars(module))
    sys.modules["told_in"] = module
    try:
        return fingerprint(vars(module)[name])
    finally:
        del sys.modules["told_in"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (2, 3),
        (2, 2.0),
        ("a", "b"),
        ((1, 2), (1, 3)),
        ([1, 2], [1, 3]),
        ({"a": 1}, {"a": 2}),
        ({1}, {2}),
        (np.arange(3), np.arange(3) + 1),
        (np.arange(3), np.arange(3.0)),
        (np.float32, np.float64),
        (np.add, np.subtract),
        (operator.add, operator.mul),
        (math.exp, math.log),
        (scaled(1), scaled(2)),
        (functools.partial(scaled, 1), functools.partial(scaled, 2)),
        (Scaling(1), Scaling(2)),
        (Scaling(1).__call__, Scaling(2).__call__),
        (calling(scaled(1)), calling(scaled(2))),
        (numba.njit(scaled(1)), numba.njit(scaled(2))),
        (noyau.op("f32[n] -> f32[n]")(lambda x: x + 1), noyau.op("f32[n] -> f32[n]")(lambda x: x + 2)),
        (noyau.op("f32[n] -> f32[n]")(calling(1)), noyau.op("f64[n] -> f64[n]")(calling(1))),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_closure_is_part_of_what_is_told(one: Any, other: Any) -> None:
    assert fingerprint(scaled(one)) != fingerprint(scaled(other))
    assert fingerprint(scaled(one)) == fingerprint(scaled(one))


def test_globals_that_are_named_are_told_and_no_others() -> None:
    text = "G = {}\nH = {}\ndef inner(x): return x * G\ndef f(x): return [inner(y) for y in x]"
    assert told_in(text.format(1, 1)) == told_in(text.format(1, 2))
    assert told_in(text.format(1, 1)) != told_in(text.format(2, 1))
    assert told_in(text.format(1, 1)) != told_in(text.format(1, 1).replace("x * G", "x + G"))


def test_a_class_of_the_users_is_told_by_its_functions() -> None:
    text = "class K:\n    factor = 2\n    def go(self, x): return x * {}\nk = K()\ndef f(x): return k.go(x)"
    assert told_in(text.format("2")) != told_in(text.format("3"))
    assert told_in(text.format("2")) != told_in(text.format("2").replace("factor = 2", "factor = 3"))


def test_what_calls_itself_or_each_other_is_told_once() -> None:
    text = "def g(x): return f(x)\ndef f(x): return g(x) if x else f({})"
    assert told_in(text.format(1)) != told_in(text.format(2))


def test_a_function_that_counts_its_calls_stays_the_same() -> None:
    calls: list[int] = []

    def kernel(x: Any, out: Any) -> None:
        calls.append(len(x))

    before = fingerprint(kernel)
    kernel([1], None)
    assert fingerprint(kernel) == before


def test_another_process_tells_the_same(tmp_path: Path) -> None:
    file = tmp_path / "told.py"
    file.write_text(
        "import ctypes, math, operator, sys\nimport numpy as np\n"
        "from noyau.kernels.trust import fingerprint\n"
        "table, kinds = np.arange(4), {'a': (1, 2.5), 'b': np.float32}\n"
        "class K:\n    def __call__(self, x): return math.exp(x)\nk = K()\n"
        "def f(x, y=operator.add): return k(x) + table + kinds['a'][0] + np.exp(x)\n"
        "sys.stdout.write(fingerprint(f) + fingerprint(k) + fingerprint(np.add) + fingerprint(operator.add))\n"
    )
    runs = [subprocess.run([sys.executable, file], capture_output=True, text=True, check=True) for _ in range(2)]
    assert runs[0].stdout == runs[1].stdout
    assert " at 0x" not in runs[0].stdout


def test_a_function_of_ctypes_is_told_by_its_library(tmp_path: Path) -> None:
    def told(text: str, name: str) -> str:
        source, library = tmp_path / f"{name}.c", tmp_path / f"{name}.so"
        source.write_text(text)
        subprocess.run(["cc", "-shared", "-fPIC", source, "-o", library], check=True)
        return fingerprint(ctypes.CDLL(str(library)).f)

    assert told("int f(int x) { return x; }", "one") != told("int f(int x) { return x + 1; }", "two")


def test_a_function_without_source_is_told_by_its_code() -> None:
    scope: dict[str, Any] = {}
    exec("def f(x): return x + 1\ndef g(x): return x + 2", scope)
    assert source_of(scope["f"]) != source_of(scope["g"])
    assert fingerprint(scope["f"]) != fingerprint(scope["g"])
