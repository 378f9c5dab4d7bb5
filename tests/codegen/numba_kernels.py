"""Kernels of language numba for tests: scheduled as it wants them, compiled once. Support for tests, not a test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from noyau.codegen.numba import printer as numba_printer
from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.cpu.strategy_choice import Options, schedule
from noyau.ir.graph import Graph
from noyau.ir.loops import Kernel
from noyau.toolchain.numba.kernel import NumbaKernel
from tests.codegen.kernels import GOLDEN, LAYOUTS, MORE


def wanted(options: Options) -> Options:
    """The options, but where language numba has its own."""
    own = numba_printer.SCHEDULE
    lanes = options.lanes or own.lanes
    taken = {name: getattr(own, name) for name in ("around_bytes", "short", "pairs", "rests", "lines")}
    return replace(options, lanes=lanes, **taken)


@cache
def kernel_of(name: str) -> Kernel:
    """The kernel of that name, scheduled."""
    graph, options = {**GOLDEN, **MORE}[name]
    return schedule(lower(normalise(graph), name, LAYOUTS.get(name)), wanted(options))


@cache
def compiled(name: str) -> NumbaKernel:
    return NumbaKernel(numba_printer.together([kernel_of(name)]), kernel_of(name))


def build(graph: Graph, name: str) -> NumbaKernel:
    """A graph as it is, compiled for arrays that fit into a cache: Numba takes as long again for larger ones."""
    made = schedule(lower(graph, name), replace(numba_printer.SCHEDULE, around_bytes=0))
    return NumbaKernel(numba_printer.together([made]), made)


def of(made: Kernel) -> NumbaKernel:
    return NumbaKernel(numba_printer.together([made]), made)


def text_of(names: Sequence[str]) -> str:
    return numba_printer.together([kernel_of(name) for name in names])
