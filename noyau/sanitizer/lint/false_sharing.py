"""False sharing: threads update their own cells, which lie in one cache line. It is reported only if it is slow on this
machine, which is measured with two threads on adjacent and on distant cells.

Source of the pattern: J. Torrellas, M. Lam, J. Hennessy, False Sharing and Spatial Locality in Multiprocessor Caches,
IEEE Transactions on Computers 43 (1994)."""

import ast
import ctypes
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np

from noyau.codegen.language import LANGUAGES
from noyau.errors import BuildError, FindingKind
from noyau.kernels.user_kernel import UserKernel
from noyau.sanitizer.lint.arithmetic import text_of
from noyau.sanitizer.lint.diagnostics import Diagnostic
from noyau.text import package_text
from noyau.timing.rates import least_s
from noyau.toolchain.c import compiler as c_compiler

FEW = 256  # iterations; a loop with more runs over rows, not threads
WORTH = 2.0  # slowdown from which false sharing is reported
_LINE_CELLS = 16  # float32 in a line of 64 bytes
_TIMES, _ROUNDS = 2_000_000, 5
_MEND = "add to a local variable and store it once, or keep the cells 64 bytes apart: totals[16 * t]"


def diagnose_false_sharing(kernel: UserKernel) -> list[Diagnostic]:
    """Diagnose a kernel whose threads update neighbouring cells in their inner loops."""
    language = LANGUAGES[kernel.language]
    text = text_of(kernel) if language.is_threaded and not language.on_gpu else None
    if text is None:
        return []
    places = {line: name for name, line in updates(text.body, text.names)}
    times = slowdown() if places else 1.0
    if times < WORTH:
        return []
    ratio = f"{times:.1f} times as long on one line of the cache as on two, measured here"
    message = f"is updated in each round, and neighbouring cells by other threads: two threads took {ratio}"
    launch, file = FindingKind.LAUNCH, text.file
    return [Diagnostic(launch, file, line, f"{name} {message}", _MEND, about=name) for line, name in places.items()]


def updates(body: Iterable[ast.stmt], names: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield cells, indexed by the number of a thread, that an inner loop updates: `totals[t] += x[i]`; and lines."""
    for node in (each for statement in body for each in ast.walk(statement)):
        match node:
            case ast.For(target=ast.Name(id=thread), iter=ast.Call(func=func, args=args), body=inner):
                if ast.unparse(func).rpartition(".")[2] == "prange" and _is_few(args, names):
                    yield from _within(inner, thread)
            case _:
                continue


def _is_few(args: list[ast.expr], names: Mapping[str, Any]) -> bool:
    """Whether a loop's iteration count is a number of threads, independent of the arrays."""
    end = args[min(1, len(args) - 1)]
    match end:
        case ast.Constant(value=int() as count):
            return 1 < count <= FEW
        case ast.Name(id=name) if isinstance(names.get(name), int):
            return 1 < int(names[name]) <= FEW
        case _:
            return re.search(r"threads\b", ast.unparse(end)) is not None


def _within(body: list[ast.stmt], thread: str) -> Iterator[tuple[str, int]]:
    loops = (each for statement in body for each in ast.walk(statement) if isinstance(each, ast.For | ast.While))
    for node in (each for loop in loops for statement in loop.body for each in ast.walk(statement)):
        target = node.target if isinstance(node, ast.AugAssign) else None
        if isinstance(target, ast.Subscript):
            index = target.slice.elts[-1] if isinstance(target.slice, ast.Tuple) else target.slice
            if isinstance(index, ast.Name) and index.id == thread:
                yield ast.unparse(target), target.lineno


@lru_cache(maxsize=1)
def slowdown() -> float:
    """Measure the time of two threads that update adjacent cells, divided by that of distant cells.

    Each time is the minimum of some rounds. 1.0 if it cannot be measured."""
    try:
        text = package_text("sanitizer/lint/sharing.c")
        loaded = ctypes.CDLL(str(c_compiler.compile_library([text])))
    except (BuildError, OSError):
        return 1.0
    add = loaded.noyau_add_f32
    add.restype, add.argtypes = None, (ctypes.c_void_p, ctypes.c_int64)
    cells = np.zeros(8 * _LINE_CELLS, np.float32)
    first = -(-cells.ctypes.data // 64) * 64  # the beginning of a cache line
    pairs = [(partial(add, first), partial(add, first + away)) for away in (4, 256)]
    times = [[least_s(pair, _TIMES, 1, time.perf_counter) for pair in pairs] for _ in range(_ROUNDS)]
    together, apart = (min(each) for each in zip(*times, strict=True))
    return float(together / apart)
