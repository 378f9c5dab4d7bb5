"""A program for `noyau check`: one test of an installed package, `MODULE.Class.test`. Where a test of Numba's puts
prange in place of range, it is done in the text of its function, since noyau reads texts; what it
executes becomes a file."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import itertools
import os
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np

FOLDER = Path(tempfile.mkdtemp(prefix="noyau-suite-"))
_NUMBERS = itertools.count()
_EXEC = exec


def with_prange(function: Any, instances: list[int] | None = None) -> Any:
    """A function with prange in place of these uses of range, or of all, from a file of its own."""
    import numba

    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    uses = [each for each in ast.walk(tree) if isinstance(each, ast.Name) and each.id == "range"]
    uses.sort(key=lambda each: (each.lineno, each.col_offset))
    for use in uses if instances is None else [uses[each] for each in instances]:
        use.id = "prange"
    path = FOLDER / f"{function.__name__}_{next(_NUMBERS)}.py"
    path.write_text(ast.unparse(tree), encoding="utf-8")
    names = {**function.__globals__, **inspect.getclosurevars(function).nonlocals, "prange": numba.prange}
    exec(compile(path.read_text("utf-8"), str(path), "exec"), names)  # noqa: S102  the test's own function
    return names[function.__name__]


def execute_file(text: Any, names: dict[str, Any] | None = None, own: dict[str, Any] | None = None) -> None:
    """Execute a text as `exec` does, from a file of its own, so that the functions of it have a text to read."""
    caller = sys._getframe(1)
    if isinstance(text, str):
        path = FOLDER / f"text_{next(_NUMBERS)}.py"
        path.write_text(text, encoding="utf-8")
        text = compile(text, str(path), "exec")
    _EXEC(text, caller.f_globals if names is None else names, caller.f_locals if own is None and names is None else own)


def prange_test(case: Any, function: Any, *args: Any, **options: Any) -> list[Any]:
    """As Numba's own: the result of the parallel function is that of Python's."""
    import numba

    parallel = numba.njit(parallel=True)(with_prange(function, options.get("patch_instance")))
    want, got = (each(*map(_copied, args)) for each in (function, parallel))
    np.testing.assert_allclose(got, want, rtol=1e-6)
    return []


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def main(name: str) -> int:
    """Run it; 1 where it fails."""
    os.environ["SUBPROC_TEST"] = "1"  # else Numba skips those that want a process of their own, which this is
    for each in ("filecheck", *(f"filecheck.{part}" for part in ("matcher", "options", "parser", "finput"))):
        sys.modules.setdefault(each, MagicMock())  # which reads texts of compilers, and there are none
    module, kind, test = name.rsplit(".", 2)
    builtins.exec = execute_file
    if module.startswith("numba.cuda."):  # which asks a driver for its device as a class is defined
        testing: Any = importlib.import_module("numba.cuda.testing")
        testing.cc_X_or_above, testing.cudadevrt_missing = lambda *_: True, lambda: False
        testing.skip_if_curand_kernel_missing = unittest.skip("no curand_kernel.h")
    holder = getattr(importlib.import_module(module), kind)
    if hasattr(holder, "prange_tester"):
        holder.prange_tester = prange_test
    result = unittest.TextTestRunner(verbosity=0).run(holder(test))
    if result.skipped:
        print(f"skipped: {result.skipped[0][1]}")
    return int(not result.wasSuccessful())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
