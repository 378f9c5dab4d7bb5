"""The groups of torch's graphs as kernels: equal groups of all graphs of the process are one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from noyau.codegen.plan import Plan, Shelf, plan_by
from noyau.compiler.lowering.input_layouts import PACKED
from noyau.compiler.partition.cut import Group, scalars_of
from noyau.hosts.numpy.fast_calls import MISS, Argument
from noyau.hosts.torch.fast_calls import TensorDoor, mapped_memory
from noyau.hosts.torch.tensors import array_of, in_memory, tensor_of
from noyau.ir.graph import Graph
from noyau.toolchain.c import compiler as c_compiler

Tensor: TypeAlias = torch.Tensor
OPTIONS = c_compiler.CompilerOptions(export=True)


SHELF = Shelf(12)  # of all graphs of the process


def plan(groups: Iterable[Group], operators: Sequence[str], target: str) -> Plan:
    """One kernel for each kind of group. `operators`: what torch calls the nodes, by position."""
    return plan_by(groups, operators, lambda group: SHELF.kernel(group, target))


def library_of(text: str) -> Path:
    """The built library of one kernel's text, from the cache or built. BuildError as the compiler says."""
    return c_compiler.compile_library([text], OPTIONS)


@dataclass(frozen=True, slots=True)
class KernelEnds:
    """Ends of a kernel: dtypes and ranks of its inputs, and the number of its results."""

    inputs: tuple[Argument, ...]
    results: int


def ends_of(graph: Graph) -> KernelEnds:
    """The ends of the kernel of a graph in normal form."""
    return KernelEnds(tuple(Argument(node.dtype, len(node.shape), PACKED) for node in graph.inputs), len(graph.outputs))


def open_kernel(name: str, library: Path, ends: KernelEnds, scalars: Sequence[np.ndarray | None]) -> Callable[..., Any]:
    """A built kernel as a function of tensors of the CPU, which gives a tensor, or a tuple of them: new ones, packed.

    `scalars` has the numbers that stand for inputs, in their order, None where a tensor is given; a tensor that is not
    packed is copied. BuildError where the library cannot be loaded; a call raises InputError where an index is out of
    bounds or shapes do not fit."""
    door = TensorDoor(library, f"{name}_kernel", ends.inputs, name, mapped_memory)
    fixed = [None if each is None else tensor_of(np.asarray(each)) for each in scalars]
    call = _filled(door.call, fixed) if any(each is not None for each in fixed) else door.call

    def run(*given: Tensor) -> Any:
        result = call(given)
        if result is MISS:
            result = call(tuple(_packed(each) for each in given))
        if result is MISS:
            return _by_arrays(door, fixed, given)
        return result

    run.__name__ = run.__qualname__ = name
    return run


def _filled(door: Callable[..., Any], fixed: Sequence[Tensor | None]) -> Callable[[tuple[Tensor, ...]], Any]:
    """The door behind its numbers."""

    def call(given: tuple[Tensor, ...]) -> Any:
        others = iter(given)
        return door(tuple(next(others) if each is None else each for each in fixed))

    return call


def _packed(tensor: Tensor) -> Tensor:
    """The tensor as a door takes it: its own cells, in C order."""
    result: Tensor = in_memory(tensor.detach()).contiguous()
    return result


def _by_arrays(door: TensorDoor, fixed: Sequence[Tensor | None], given: Sequence[Tensor]) -> Any:
    """The slow way, which says what does not fit."""
    others = iter(_packed(each) for each in given)
    arrays = [(next(others) if each is None else each) for each in fixed]
    result = tuple(tensor_of(array) for array in door.native(*map(array_of, arrays)))
    return result if len(result) > 1 else result[0]


def input_names(group: Group) -> tuple[str, ...]:
    """The values that a kernel is given as tensors, in order."""
    scalars = scalars_of(group)
    return tuple(node.output for node in group.graph.inputs if node.output not in scalars)
