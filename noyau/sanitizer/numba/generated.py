"""The kernels that noyau itself prints in Numba, watched as those of a user are."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numba.core.registry import CPUDispatcher

from noyau.codegen.numba.spellings import KINDS
from noyau.ir.loops import SIDE
from noyau.kernels.programs.generate import BuiltProgram
from noyau.sanitizer.compiled_numbers import MATH
from noyau.sanitizer.numba.kernel import MOST, Watching
from noyau.sanitizer.recording_array import Recorder
from noyau.sanitizer.records import WatchedRun
from noyau.toolchain.numba.kernel import NumbaKernel, bits_of, path_of
from noyau.verify.findings import Finding

Array = np.ndarray


def watch_generated(program: BuiltProgram, arrays: Sequence[Array], op: str, name: str, size: str) -> WatchedRun:
    """Every kernel of a program in language numba, on arrays that lie as it wants them."""
    findings, accesses = list[Finding](), list[int]()

    def call(kernel: Any, arrays: Sequence[Array]) -> list[Array]:
        """The results of one of them, watched."""
        assert isinstance(kernel, NumbaKernel)
        inputs, outputs = kernel.open(arrays)
        bits = [bits_of(output) for output in outputs]
        names = {id(each): f"output {n}" for n, each in enumerate(bits)}
        watching = Watching(plainly(kernel.text)[kernel.name], Recorder(MOST), names)
        watching(*inputs, *bits)
        findings.extend((*watching.findings(op, name, size)[0], *watching.unwritten(op, name, size)))
        accesses.append(watching.recorder.shadow.accesses)
        return outputs

    results = program.run(arrays, call)
    return WatchedRun(tuple(findings), sum(accesses), outputs=tuple(results))


@lru_cache(maxsize=16)
def plainly(text: str) -> dict[str, Any]:
    """The names of a text as its functions are watched: with Python in the place of what only LLVM has words for, and
    its scalar functions, which touch no memory, as Python has them. So nothing is compiled."""
    path = path_of(text)
    scope: dict[str, Any] = {"__name__": f"noyau_plain_{path.parent.name}", "__file__": str(path)}
    exec(compile(text, str(path), "exec"), scope)  # noqa: S102  made by codegen/numba/printer.py
    own = {name: each for name, each in scope.items() if name.startswith("noyau_")}
    scope.update((name, each.py_func) for name, each in own.items() if isinstance(each, CPUDispatcher))
    scope.update((name, each) for name, each in _PLAIN.items() if name in scope)
    return scope


def _bits(of: type[np.generic], result: type[np.generic]) -> Callable[[Any], np.generic]:
    return lambda x: of(x).view(result)


def _write(cells: Any, at: int, tile: Any, first: int, count: int) -> None:
    flat = cells.reshape(-1)
    for k in range(count):
        flat[at + k] = tile[first + k]


def _turn(tile: Any, at: int, there: int, cells: Any, begin: int, here: int) -> None:
    flat = cells.reshape(-1)
    for line in range(SIDE):
        for cell in range(SIDE):
            tile[at + cell * there + line] = flat[begin + line * here + cell]


def _merging(merge: Callable[[Any, Any], Any]) -> Callable[[Any, int], None]:
    """The lanes of an array merged into the first by halves."""

    def merged(lanes: Any, count: int) -> None:
        while count > 1:
            count //= 2
            for lane in range(count):
                lanes[lane] = merge(lanes[lane], lanes[count + lane])

    return merged


_MERGES: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "multiply": operator.mul, "max": lambda a, b: max(b, a), "min": lambda a, b: min(b, a),
    "or": operator.or_, "and": operator.and_,
}  # fmt: skip
_PLAIN: dict[str, Any] = {
    **{f"noyau_merge_{word}_{kind}": _merging(merge) for word, merge in _MERGES.items() for kind in KINDS.values()},
    "math": MATH, "noyau_bits_f32": _bits(np.float32, np.uint32), "noyau_bits_f64": _bits(np.float64, np.uint64),
    "noyau_cells": np.empty, "noyau_fetch": lambda cells, at, count: None,
    "noyau_flat": lambda cells: cells.reshape(-1), "noyau_from_bits_f32": _bits(np.uint32, np.float32),
    "noyau_from_bits_f64": _bits(np.uint64, np.float64), "noyau_row": np.empty, "noyau_turn": _turn,
    "noyau_write_around": _write, "noyau_written_around": lambda: None,
}  # fmt: skip
