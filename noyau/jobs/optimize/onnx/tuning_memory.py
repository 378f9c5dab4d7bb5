"""The options that were found best before, by kernel, machine and shape class.

Wherever nothing was tuned, the usual options are taken; so text follows from the options that stand in its digest, and
from nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from noyau.codegen.c import printer as c_printer
from noyau.codegen.plan import Planned, digest
from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.rewrite import nameless
from noyau.compiler.schedules.cpu.strategy_choice import USUAL, Options, schedule
from noyau.hosts.onnxruntime.activations import Activations
from noyau.ir.graph import Constant
from noyau.jobs.optimize.candidate import Candidate
from noyau.jobs.optimize.onnx.candidates import compile_kernels
from noyau.timing.machine import this_machine
from noyau.toolchain import cache as toolchain_cache
from noyau.toolchain.c import compiler as c_compiler

Arrays = Sequence[np.ndarray]


def variant(planned: Planned, options: Options, target: str) -> Planned:
    """The same kernel with other options of its schedule, under the name that its text then has."""
    key = digest(schedule(lower(nameless(planned.graph), "kernel"), options), target)
    stem = planned.operator.rpartition("_")[0]
    kernel = replace(schedule(planned.groups[0].kernel, options), name=f"{stem}_{key[:8]}")
    return replace(planned, operator=kernel.name, kernel=kernel, text=c_printer.source(kernel))


def tuning_key(kernel: Planned, arrays: Arrays, target: str, threads: int) -> str:
    """Key of a tuning: the kernel with its usual options, the machine, and shapes of the same class, of which
    each extent has the next power of two in common."""
    usual = digest(schedule(lower(nameless(kernel.graph), "kernel")), target)
    machine = this_machine()
    shapes = (str([max(extent - 1, 0).bit_length() for extent in array.shape]) for array in arrays)
    where = (machine.cpu, str(machine.cores), machine.compiler, target, str(threads))
    return toolchain_cache.digest("tuned", usual, *where, *shapes)


def recall(key: str) -> Options | None:
    """The options that were found best on this machine, or None."""
    entry = toolchain_cache.recall(key)
    try:
        return None if entry is None else Options(**entry["options"])
    except (KeyError, TypeError):
        return None


def recall_options(
    candidates: Sequence[Candidate], activations: Activations, options: c_compiler.CompilerOptions, threads: int
) -> list[Candidate]:
    """The kernels with the options that were found best before; where nothing was, as they are."""

    def recall_one(candidate: Candidate) -> Candidate:
        arrays = arrays_of(candidate, activations)
        best = None if arrays is None else recall(tuning_key(candidate.planned, arrays, options.target, threads))
        if best is None or best == USUAL:
            return candidate
        (result,) = compile_kernels([variant(candidate.planned, best, options.target)], options)
        return candidate if result.reason else result

    return [recall_one(each) for each in candidates]


def arrays_of(candidate: Candidate, activations: Activations) -> tuple[np.ndarray, ...] | None:
    """Arrays that a generated kernel reads; None for one that cannot be tuned."""
    if candidate.reason or candidate.planned.by_hand:
        return None
    group = candidate.planned.groups[0]
    constants = {node.output: node.kind.value for node in group.original.nodes if isinstance(node.kind, Constant)}
    values = {**activations.arrays, **constants}
    return tuple(values[name] for name in group.inputs) if values.keys() >= set(group.inputs) else None
