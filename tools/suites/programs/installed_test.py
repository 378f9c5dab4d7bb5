"""A program for `noyau check`: one test of an installed package, `MODULE.Class.test`. Where a test of Numba's puts
prange in place of range, it is done in the text of its function, since noyau reads texts; what it
executes becomes a file."""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.util
import inspect
import io
import itertools
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np

FOLDER = Path(tempfile.mkdtemp(prefix="noyau-suite-"))
_NUMBERS = itertools.count()
_EXEC, _RUN = exec, subprocess.run


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


def _parallel_test(case: Any, function: Any, *operands: Any, **options: Any) -> None:
    """As Numba's own check of a parallel function, where its text has a loop; `operands`: two results of a compiler,
    none here, then arguments."""
    import numba

    if "prange" not in inspect.getsource(function):
        return
    args = operands[2:]
    here, there = [*map(_copied, args)], [*map(_copied, args)]
    want, got = function(*here), numba.njit(parallel=True)(function)(*there)
    compared = zip(there, here, strict=True) if options.get("check_arg_equality") else [(got, want)]
    for pair in compared:
        np.testing.assert_allclose(*pair, rtol=1e-6)


def prange_test(case: Any, function: Any, *args: Any, **options: Any) -> list[Any]:
    """As Numba's own: the result of the parallel function is that of Python's."""
    import numba

    parallel = numba.njit(parallel=True)(with_prange(function, options.get("patch_instance")))
    want, got = (each(*map(_copied, args)) for each in (function, parallel))
    np.testing.assert_allclose(got, want, rtol=1e-6)
    return []


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def _of_some_text(asserts: Any, at: int) -> Any:
    """An assertion that lets a text pass which is empty, as those of code are here: there is no compiler. `at`: which
    of its operands the text is."""

    def assertion(case: Any, *operands: Any, **named: Any) -> None:
        if operands[at] != "":
            asserts(case, *operands, **named)

    return assertion


def run_here(command: Any, *args: Any, **named: Any) -> Any:
    """As subprocess.run, but what Python is to run as a text, a file of its own, runs here, where it is watched."""
    if list(command[:2]) != [sys.executable, "-c"]:
        return _RUN(command, *args, **named)
    out, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        execute_file(command[2], {"__name__": "__main__"})
    return SimpleNamespace(stdout=out.getvalue().encode(), stderr=errors.getvalue().encode(), returncode=0)


def main(name: str) -> str:
    """Run it: why it fails or is skipped, nothing otherwise."""
    os.environ["SUBPROC_TEST"] = "1"  # else Numba skips those that want a process of their own, which this is
    for each in ("filecheck", *(f"filecheck.{part}" for part in ("matcher", "options", "parser", "finput"))):
        sys.modules.setdefault(each, MagicMock())  # which reads texts of compilers, and there are none
    module, kind, test = name.rsplit(".", 2)
    builtins.exec = execute_file
    if module.startswith("numba.cuda."):  # which asks a driver for its device as a class is defined
        if importlib.util.find_spec("numba.cuda.memory_management") is not None:
            nrt: Any = importlib.import_module("numba.cuda.memory_management.nrt")  # counts that a driver keeps
            counts = SimpleNamespace(**dict.fromkeys(("alloc", "free", "mi_alloc", "mi_free"), 0))
            nrt.rtsys = MagicMock(**{"get_allocation_stats.return_value": counts})
        testing: Any = importlib.import_module("numba.cuda.testing")
        testing.cc_X_or_above, testing.cudadevrt_missing = lambda *_: True, lambda: False
        testing.skip_if_curand_kernel_missing = unittest.skip("no curand_kernel.h")
        testing.CUDATestCase._dump_failed_filechecks = False
        subprocess.run = run_here
    holder = getattr(importlib.import_module(module), kind)
    for each in ("assertIn", "assertNotIn", "assertRegex", "assertNotRegex"):
        setattr(holder, each, _of_some_text(getattr(holder, each), at=int(each.endswith("In"))))
    if hasattr(holder, "prange_tester"):
        holder.prange_tester = prange_test
    if hasattr(holder, "check_parfors_vs_others"):
        holder.check_parfors_vs_others = _parallel_test
        holder.compile_all = lambda *_, **__: (None, None)
        holder.compile_parallel_fastmath = lambda *_, **__: None
    result = unittest.TextTestRunner(verbosity=0).run(holder(test))
    if result.skipped:
        return f"skipped: {result.skipped[0][1]}"
    failed = [text for _, text in (*result.errors, *result.failures)]
    return _reason(failed[0]) if failed else ""


def _reason(text: str) -> str:
    """The error that a traceback ends with, in a line, and the last line of the test's file that it came through."""
    lines = text.strip().splitlines()
    begins = [at for at, line in enumerate(lines) if line.startswith("  File ")]
    error = " ".join(lines[begins[-1] + 2 :] if begins else lines)
    where = [line.strip() for line in lines if line.startswith("  File ") and "test_" in line]
    return f"{error.strip()[:300]} ({where[-1].rpartition('/')[2]})" if where else error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) or None)
